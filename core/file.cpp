#include <tandem/core/file.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/failpoint.h>
#include <tandem/core/system_limits.h>

namespace tandem::inline v0::core {

namespace {

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// "; 12 bytes were to be written, and 0 are free there"
std::string space_for(const std::string& path, std::size_t bytes) {
  struct statvfs file_system{};
  if (::statvfs(directory_of(path).c_str(), &file_system) != 0) {
    return {};
  }
  return fmt::format("; {} bytes were to be written, and {} are free there", bytes,
                     std::uint64_t{file_system.f_bavail} * file_system.f_frsize);
}

}  // namespace

void fail_io(std::string_view operation, const std::string& path, int error_number, std::size_t bytes) {
  const bool is_full = error_number == ENOSPC || error_number == EDQUOT;
  fail<IoError>("cannot {} '{}': {}{}", operation, path, system_message(error_number),
                is_full && bytes > 0 ? space_for(path, bytes) : "");
}

void Descriptor::close() noexcept {
  if (number_ >= 0) {
    ::close(std::exchange(number_, -1));
  }
}

Pipe::Pipe(std::string_view failure, int flags) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC | flags) != 0) {
    fail<IoError>("{}: {}", failure, system_message(errno));
  }
  read_end = Descriptor(ends[0]);
  write_end = Descriptor(ends[1]);
}

Descriptor open_regular(std::string_view operation, const std::string& path, int flags, unsigned mode) {
  Descriptor file(::open(path.c_str(), (flags & ~O_TRUNC) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode));
  if (file.get() < 0) {
    check<IoError>(errno != ELOOP, "cannot {} '{}': this is a symbolic link; remove it, or name another folder",
                   operation, path);
    check<IoError>(errno != ENXIO, "cannot {} '{}': this is a pipe, expected a file", operation, path);
    fail_io(operation, path, errno);
  }
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {
    fail_io(operation, path, errno);
  }
  check<IoError>(S_ISREG(status.st_mode), "cannot {} '{}': this is a device, a pipe or a folder, expected a file",
                 operation, path);
  check<IoError>(status.st_nlink <= 1, "cannot {} '{}': the file has another name elsewhere (a hard link); remove it",
                 operation, path);
  if ((flags & O_TRUNC) != 0 && ::ftruncate(file.get(), 0) != 0) {
    fail_io(operation, path, errno);
  }
  return file;
}

std::optional<std::string> read_small_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat status{};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  constexpr std::size_t kMost = 4096;
  std::string content(kMost, '\0');
  const ssize_t count = ::read(file.get(), content.data(), content.size());
  if (count < 0) {
    return std::nullopt;
  }
  content.resize(static_cast<std::size_t>(count));
  return content;
}

bool write_all(int descriptor, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

namespace {

namespace fs = std::filesystem;

constexpr int kNames = 16;           // tries to find a free one
constexpr std::size_t kSuffix = 32;  // of a temporary name, at most
constexpr int kMaxLinks = 40;        // Linux has the same limit; longer chains are treated as circular

// Whether nobody else can have made this symbolic link to trick us: it is ours, root's, or of the folder's owner.
bool is_trusted(const fs::path& link) {
  struct stat status{};
  struct stat folder{};
  const fs::path parent = link.has_parent_path() ? link.parent_path() : fs::path(".");
  return ::lstat(link.c_str(), &status) == 0 && ::stat(parent.c_str(), &folder) == 0 &&
         (status.st_uid == ::geteuid() || status.st_uid == 0 || status.st_uid == folder.st_uid);
}

// The file that finally receives the bytes: a link stays in place, and its target is replaced.
std::string target_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  check<IoError>(!fs::exists(status) || fs::is_regular_file(status),
                 "cannot write '{}': this is {}, expected the name of a file", path,
                 fs::is_directory(status) ? "a directory" : "a device or a pipe");
  fs::path target = path;
  for (int links = 0; links < kMaxLinks && fs::is_symlink(fs::symlink_status(target, error)); ++links) {
    check<IoError>(is_trusted(target), "cannot write '{}': the symbolic link '{}' belongs to another user; remove it",
                   path, target.string());
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  check<IoError>(!fs::is_symlink(fs::symlink_status(target, error)),
                 "cannot write '{}': its symbolic links lead in a circle", path);
  return target.string();
}

// Creates a file beside `target` under a name that no other writer uses: processes of several hosts or containers may
// have equal numbers. Returns its descriptor, or -1 with errno set.
int create_beside(FileOps& ops, const std::string& target, std::string& name) {
  for (int attempt = 0; attempt < kNames; ++attempt) {
    std::uint64_t number = 0;
    if (::getrandom(&number, sizeof number, 0) != sizeof number) {
      return -1;
    }
    name.resize(target.size());
    fmt::format_to(std::back_inserter(name), ".tmp-{:016x}", number);
    const int descriptor = ops.open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0 || errno != EEXIST) {
      return descriptor;
    }
  }
  return -1;
}

// Returns 0, or the first error that the system reported. After a failed fsync() the system may have dropped the bytes
// and call the next one a success, so none is ever repeated.
int fill_file(FileOps& ops, int descriptor, std::span<const std::string_view> parts, std::optional<mode_t> mode) {
  int error = mode && ops.fchmod(descriptor, *mode) != 0 ? errno : 0;
  error = error == EPERM || error == ENOTSUP ? 0 : error;  // a file system without permissions
  for (std::string_view part : parts) {
    while (error == 0 && !part.empty()) {
      const ssize_t written = ops.write(descriptor, part.data(), part.size());
      if (written >= 0) {
        part.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno != EINTR) {
        error = errno;
      }
    }
  }
  // Without fsync(), a power failure soon after the rename can leave the new name with no content.
  if (error == 0 && ops.fsync(descriptor) != 0) {
    error = errno;
  }
  if (ops.close(descriptor) != 0 && error == 0 && errno != EINTR) {
    error = errno;
  }
  return error;
}

// The permissions that the new file is to keep; none if there is no file yet. Throws if this user may not write it.
std::optional<mode_t> mode_of(const std::string& target, const std::string& path) {
  struct stat status{};
  if (::stat(target.c_str(), &status) != 0) {
    return std::nullopt;
  }
  if (::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) {
    fail_io("write", path, errno);
  }
  return status.st_mode & 0777;
}

// Makes a rename in this directory durable, where the file system can. Returns 0, or the error that the system
// reported.
int sync_directory(FileOps& ops, const std::string& directory) {
  const int folder = ops.open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (folder < 0) {
    return errno == EACCES ? 0 : errno;  // a folder that may be written and not be read
  }
  const int error = ops.fsync(folder) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
  ops.close(folder);
  return error;
}

}  // namespace

void replace_file(const std::string& path, std::span<const std::string_view> parts, FileOps& ops) {
  const std::string target = target_of(path);
  const std::string directory = directory_of(target);  // now: nothing may throw between the rename and its fsync
  const std::optional<mode_t> mode = mode_of(target, path);
  std::string temporary = target;
  temporary.reserve(target.size() + kSuffix);
  const auto refuse = [&](const char* operation, int number) {
    std::size_t bytes = 0;
    for (const std::string_view part : parts) {
      bytes += part.size();
    }
    const bool is_full = number == ENOSPC || number == EDQUOT;
    fail<IoError>("cannot {} '{}': {}{}", operation, path, system_message(number),
                  is_full ? space_for(target, bytes) : "");
  };
  const int descriptor = create_beside(ops, target, temporary);
  if (descriptor < 0) {
    refuse(errno == EACCES || errno == EROFS ? "make a new file beside" : "write", errno);
  }
  int error = fill_file(ops, descriptor, parts, mode);
  if (error == 0) {
    failpoint("save.written");
  }
  if (error == 0 && ops.rename(temporary.c_str(), target.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    ops.unlink(temporary.c_str());
    refuse("write", error);
  }
  error = sync_directory(ops, directory);
  if (error != 0) {
    fail<IoError>(
        "'{}' has its new content, which may not survive a power failure: its folder cannot be synchronised "
        "with the disk: {}",
        path, system_message(error));
  }
}

}  // namespace tandem::inline v0::core
