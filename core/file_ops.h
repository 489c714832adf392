#pragma once

#include <cstddef>

#include <sys/types.h>

#include <tandem/core/export.h>

// Internal: the system calls by which a file is replaced. Tests put their own in their place, which fail at the n-th
// call or record all of them.

namespace tandem::inline v0::core {

/// As the functions of the same names: -1 with errno set if the system refuses.
class TANDEM_API FileOps {
 public:
  virtual ~FileOps() = default;
  virtual int open(const char* path, int flags, mode_t mode);
  virtual int fchmod(int descriptor, mode_t mode);
  virtual ssize_t write(int descriptor, const void* bytes, std::size_t count);
  virtual int fsync(int descriptor);
  virtual int close(int descriptor);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);

  /// The system's.
  static FileOps& system();
};

}  // namespace tandem::inline v0::core
