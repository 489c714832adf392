#include <tandem/telemetry/file.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::telemetry {

void fail_io(const std::string& path, std::string_view operation, int error_number) {
  fail<IoError>("'{}': cannot {}: {}", path, operation, std::generic_category().message(error_number));
}

bool write_all(int fd, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void replace_file(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    fail_io(temporary, "open for writing", errno);
  }
  // Without the fsync a power cut soon after the rename can leave the new name with no content.
  int error = write_all(fd, bytes) && ::fsync(fd) == 0 ? 0 : errno;
  if (::close(fd) != 0 && error == 0) {
    error = errno;
  }
  if (error != 0) {
    ::unlink(temporary.c_str());
    fail_io(temporary, "write", error);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
    ::unlink(temporary.c_str());
    fail_io(path, "put the finished file in place", error);
  }
}

}  // namespace tandem::inline v0::telemetry
