#include <tandem/data/idx.h>

#include "fuzz/promises.h"
#include "fuzz/targets.h"

namespace tandem::fuzz {

void idx(Bytes input) {
  check_promises(input.size(), [&] {
    const data::IdxArray array = data::parse_idx({input.begin(), input.end()}, "a.idx");
    promise(!array.sizes.empty(), "an array has dimensions");
    std::size_t bytes = item_size(array.dtype);
    for (const std::int64_t size : array.sizes) {
      promise(size > 0, "sizes are positive");
      bytes *= static_cast<std::size_t>(size);
    }
    promise(array.bytes.size() == bytes, "there are as many bytes as the sizes say");
  });
}

}  // namespace tandem::fuzz
