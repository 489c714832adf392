#include <tandem/data/npy.h>

#include <cstring>
#include <string>

#include <tandem/data/npy_header.h>

#include "fuzz/promises.h"
#include "fuzz/targets.h"

namespace tandem::fuzz {

void npy(Bytes input) {
  check_promises(input.size(), [&] {
    const Tensor tensor = data::parse_npy(input, "a.npy");
    promise(tensor.is_contiguous(), "the result is contiguous");
    const std::size_t bytes = static_cast<std::size_t>(tensor.numel()) * item_size(tensor.dtype());
    if (bytes > 4096) {
      return;
    }
    // A tensor that was written must be read back unchanged.
    std::string written = data::npy_header(tensor.dtype(), tensor.shape());
    written.append(static_cast<const char*>(tensor.raw().data()), bytes);
    const Tensor again = data::parse_npy({reinterpret_cast<const std::uint8_t*>(written.data()), written.size()}, "b");
    promise(again.shape() == tensor.shape() && again.dtype() == tensor.dtype(), "the second reading has the same kind");
    promise(bytes == 0 || std::memcmp(again.raw().data(), tensor.raw().data(), bytes) == 0,
            "the second reading has the same elements");
  });
}

}  // namespace tandem::fuzz
