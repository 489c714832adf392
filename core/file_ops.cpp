#include <tandem/core/file_ops.h>

#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tandem::inline v0::core {

int FileOps::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
int FileOps::fchmod(int descriptor, mode_t mode) { return ::fchmod(descriptor, mode); }
ssize_t FileOps::write(int descriptor, const void* bytes, std::size_t count) {
  return ::write(descriptor, bytes, count);
}
int FileOps::fsync(int descriptor) { return ::fsync(descriptor); }
int FileOps::close(int descriptor) { return ::close(descriptor); }
int FileOps::rename(const char* from, const char* to) { return ::rename(from, to); }
int FileOps::unlink(const char* path) { return ::unlink(path); }

FileOps& FileOps::system() {
  static FileOps ops;
  return ops;
}

}  // namespace tandem::inline v0::core
