#include <algorithm>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include <tandem/data/byte_source.h>

#include "fuzz/promises.h"
#include "fuzz/targets.h"

namespace tandem::fuzz {

namespace {

constexpr std::int64_t kMaxBytes = 64 * 1024;

// A file without a disk.
class MemoryFile {
 public:
  explicit MemoryFile(Bytes content) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    promise(descriptor_ >= 0 &&
                ::write(descriptor_, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
            "(of the target itself) the input can be written");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace

// Unpacking makes a file larger, so the size limit here is max_bytes, not the size of the file.
void gzip(Bytes input) {
  const MemoryFile file(input);
  check_promises(static_cast<std::size_t>(kMaxBytes), [&] {
    const auto bytes = data::read_file(file.path(), kMaxBytes);
    promise(!bytes.empty() && bytes.size() <= static_cast<std::size_t>(kMaxBytes), "max_bytes is kept");
    const bool packed = input.size() >= 2 && input[0] == 0x1f && input[1] == 0x8b;
    promise(packed || std::equal(bytes.begin(), bytes.end(), input.begin(), input.end()), "other bytes are left alone");
  });
}

}  // namespace tandem::fuzz
