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

#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/core/host_name.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Sleeps for `time`, which then doubles up to 32 ms. Returns false once the deadline has passed.
bool pause(milliseconds& time, steady_clock::time_point deadline) {
  const auto left = deadline - steady_clock::now();
  std::this_thread::sleep_for(std::min<steady_clock::duration>(time, left));
  time = std::min(2 * time, milliseconds(32));
  return left > milliseconds(0);
}

// Returns the folder's lock, which the system also releases when its owner dies.
core::Descriptor lock_of(const std::string& folder, steady_clock::time_point deadline) {
  const std::string path = folder + "/lock";
  core::Descriptor file = core::open_regular("open", path, O_RDWR | O_CREAT, 0600);
  for (milliseconds time{1}; ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      core::fail_io("lock", path, errno);
    }
    if (!pause(time, deadline)) {
      fail_store(StoreError::Kind::timeout,
                 "store in '{}': another rank has held the lock until the deadline: it is stopped, or the file system "
                 "is slow",
                 folder);
    }
  }
  return file;
}

void claim(const std::string& folder, int rank) {
  const std::string path = fmt::format("{}/rank-{}", folder, rank);
  const core::Descriptor created(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (created.get() < 0 && errno != EEXIST) {
    core::fail_io("create", path, errno);
  }
  if (created.get() < 0) {
    std::ifstream file(path);
    const std::string who{std::istreambuf_iterator<char>(file), {}};
    fail<ConfigError>(
        "file store '{}': rank {} was here before ({}). Each start of a job needs a fresh folder: remove "
        "this one, or name another",
        folder, rank, who.empty() ? "a process unknown" : who);
  }
  if (!core::write_all(created.get(), fmt::format("pid {} on {}", ::getpid(), core::host_name()))) {
    core::fail_io("write", path, errno);
  }
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
  return fmt::format("{}/key-{:02x}", folder_, fmt::join(hash, ""));
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
  const auto bytes_of = [](const fs::path& file) {
    std::error_code gone;
    const std::uintmax_t size = fs::file_size(file, gone);
    return gone ? 0 : stored_bytes(0, static_cast<std::size_t>(size));
  };
  const std::size_t before = bytes_of(path);
  const std::size_t after = stored_bytes(0, value.size());
  if (after > before) {
    std::size_t used = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      used += entry.path().filename().string().starts_with("key-") ? bytes_of(entry.path()) : 0;
    }
    check_room(key, used, after - before);
  }
  core::replace_file(path, {value});
}

void FileStore::do_set(std::string_view key, std::string_view value, Deadline deadline) {
  const core::Descriptor lock = lock_of(folder_, deadline);
  write(key, value);
}

bool FileStore::do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) {
  std::optional<std::string> found = read(key);
  for (milliseconds time{1}; !found && wait && pause(time, deadline);) {
    found = read(key);
  }
  if (found && value != nullptr) {
    *value = std::move(*found);
  }
  return found.has_value();
}

std::int64_t FileStore::do_add(std::string_view key, std::int64_t amount, Deadline deadline) {
  const core::Descriptor lock = lock_of(folder_, deadline);
  const std::int64_t value = add_to_counter(key, read(key).value_or("0"), amount);
  write(key, std::to_string(value));
  return value;
}

bool FileStore::do_erase(std::string_view key, Deadline deadline) {
  const core::Descriptor lock = lock_of(folder_, deadline);
  return ::unlink(file_of(key).c_str()) == 0;
}

}  // namespace tandem::inline v0::parallel
