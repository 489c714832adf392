#include <tandem/parallel/rendezvous/file_store.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <openssl/evp.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/parallel/rendezvous/store_table.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A pause that doubles from 1 ms to 32 ms.
class Pause {
 public:
  // Returns false once the deadline has passed.
  bool until(steady_clock::time_point deadline) {
    const auto now = steady_clock::now();
    if (now >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::min<steady_clock::duration>(next_, deadline - now));
    next_ = std::min(2 * next_, milliseconds(32));
    return true;
  }

 private:
  milliseconds next_{1};
};

// The folder's lock, which the system releases when its owner dies.
class FolderLock {
 public:
  FolderLock(const std::string& folder, steady_clock::time_point deadline) {
    const std::string path = folder + "/lock";
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor_ < 0) {
      core::fail_io("open", path, errno);
    }
    for (Pause pause; ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0;) {
      const int error = errno;
      const bool busy = error == EWOULDBLOCK || error == EINTR;
      if (!busy || !pause.until(deadline)) {
        ::close(descriptor_);
        if (!busy) {
          core::fail_io("lock", path, error);
        }
        throw StoreError(StoreError::Kind::timeout,
                         fmt::format("store in '{}': another rank has held the lock until the deadline: it is stopped, "
                                     "or the file system is slow",
                                     folder));
      }
    }
  }
  ~FolderLock() { ::close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

void claim(const std::string& folder, int rank) {
  const std::string path = fmt::format("{}/rank-{}", folder, rank);
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const int error = errno;
  if (descriptor < 0 && error == EEXIST) {
    std::ifstream file(path);
    const std::string who{std::istreambuf_iterator<char>(file), {}};
    fail<ConfigError>(
        "file store '{}': rank {} was here before ({}). Each start of a job needs a fresh folder: remove "
        "this one, or name another",
        folder, rank, who.empty() ? "a process unknown" : who);
  }
  if (descriptor < 0) {
    core::fail_io("create", path, error);
  }
  const bool written = core::write_all(descriptor, fmt::format("pid {} on {}", ::getpid(), own_host_name()));
  const int write_error = errno;
  ::close(descriptor);
  if (!written) {
    core::fail_io("write", path, write_error);
  }
}

std::size_t bytes_in(const std::string& folder) {
  std::size_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    std::error_code gone;
    const std::uintmax_t size = entry.file_size(gone);
    if (!gone && entry.path().filename().string().starts_with("key-")) {
      bytes += stored_bytes(0, static_cast<std::size_t>(size));
    }
  }
  return bytes;
}

}  // namespace

FileStore::FileStore(std::string folder, int rank) : folder_(std::move(folder)) {
  check<ConfigError>(!folder_.empty(), "file store: expected a folder, got an empty path");
  check<ConfigError>(rank >= 0, "file store '{}': expected a rank of 0 or more, got {}", folder_, rank);
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    core::fail_io("create", folder_, error.value());
  }
  claim(folder_, rank);
}

// The hash turns any key into a file name; SHA-256 collisions are not expected.
std::string FileStore::file_of(std::string_view key) const {
  std::array<unsigned char, 32> hash{};
  check<IoError>(EVP_Digest(key.data(), key.size(), hash.data(), nullptr, EVP_sha256(), nullptr) == 1,
                 "OpenSSL has no SHA-256: its installation is broken");
  std::string path = folder_ + "/key-";
  for (const unsigned char byte : hash) {
    fmt::format_to(std::back_inserter(path), "{:02x}", byte);
  }
  return path;
}

std::optional<std::string> FileStore::read(std::string_view key) const {
  std::ifstream file(file_of(key), std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

void FileStore::write(std::string_view key, std::string_view value) const {
  const std::string path = file_of(key);
  std::error_code none;
  const std::uintmax_t size = fs::file_size(path, none);
  const std::size_t before = none ? 0 : stored_bytes(0, static_cast<std::size_t>(size));
  const std::size_t after = stored_bytes(0, value.size());
  if (after > before) {
    check_room(key, bytes_in(folder_), after - before);
  }
  core::replace_file(path, {value});
}

void FileStore::do_set(std::string_view key, std::string_view value, Deadline deadline) {
  const FolderLock lock(folder_, deadline);
  write(key, value);
}

bool FileStore::do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) {
  Pause pause;
  std::optional<std::string> found = read(key);
  while (!found && wait && pause.until(deadline)) {
    found = read(key);
  }
  if (found && value != nullptr) {
    *value = std::move(*found);
  }
  return found.has_value();
}

std::int64_t FileStore::do_add(std::string_view key, std::int64_t amount, Deadline deadline) {
  const FolderLock lock(folder_, deadline);
  const std::int64_t value = add_to_counter(key, read(key).value_or("0"), amount);
  write(key, std::to_string(value));
  return value;
}

bool FileStore::do_erase(std::string_view key, Deadline deadline) {
  const FolderLock lock(folder_, deadline);
  return ::unlink(file_of(key).c_str()) == 0;
}

}  // namespace tandem::inline v0::parallel
