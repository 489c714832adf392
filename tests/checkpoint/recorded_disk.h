#pragma once

#include <cerrno>
#include <cstddef>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>

#include <tandem/core/file_ops.h>

// A disk in memory that remembers what is only in the page cache, and the states in which a power failure may leave it.

namespace tandem::test {

/// The system calls of a save, on a model of one folder. Files live in memory.
class RecordedDisk : public core::FileOps {
 public:
  struct Inode {
    std::string durable;  // what a power failure leaves
    std::string cached;   // what programs see
    bool is_dirty = false;
  };
  using Names = std::map<std::string, std::size_t>;  // inodes by name
  /// Called before each system call, and after the last one by the test.
  std::function<void(const RecordedDisk&)> before_call = [](const RecordedDisk&) {};
  bool forgets_file_sync = false;  // planted faults
  bool forgets_folder_sync = false;

  /// A file that is on the disk.
  void add(const std::string& path, const std::string& content) {
    inodes.push_back({content, content});
    history.back()[path] = inodes.size() - 1;
  }

  int open(const char* path, int flags, mode_t /*mode*/) override {
    before_call(*this);
    if ((flags & O_DIRECTORY) != 0) {
      return kFolder;
    }
    Names names = history.back();
    if (names.contains(path)) {
      errno = EEXIST;
      return -1;
    }
    inodes.emplace_back();
    names[path] = inodes.size() - 1;
    history.push_back(names);
    return static_cast<int>(inodes.size() - 1);
  }
  ssize_t write(int descriptor, const void* bytes, std::size_t count) override {
    before_call(*this);
    const std::size_t part = std::min<std::size_t>(count, 4096);  // the system may write less than was asked for
    Inode& inode = inodes[static_cast<std::size_t>(descriptor)];
    inode.cached.append(static_cast<const char*>(bytes), part);
    inode.is_dirty = true;
    return static_cast<ssize_t>(part);
  }
  int fsync(int descriptor) override {
    before_call(*this);
    if (descriptor == kFolder) {
      if (!forgets_folder_sync) {
        history.erase(history.begin(), history.end() - 1);
      }
    } else if (!forgets_file_sync) {
      Inode& inode = inodes[static_cast<std::size_t>(descriptor)];
      inode.durable = inode.cached;
      inode.is_dirty = false;
    }
    return 0;
  }
  int close(int /*descriptor*/) override {
    before_call(*this);
    return 0;
  }
  int rename(const char* from, const char* to) override {
    before_call(*this);
    Names names = history.back();
    names[to] = names.at(from);
    names.erase(from);
    history.push_back(names);
    return 0;
  }
  int unlink(const char* path) override {
    before_call(*this);
    if (!history.back().contains(path)) {
      errno = ENOENT;
      return -1;
    }
    Names names = history.back();
    names.erase(path);
    history.push_back(names);
    return 0;
  }

  /// A legal content of the inode after a power failure now: each sector of what was not synchronised may be there or
  /// not, and the length is any that the file has had.
  std::string after_crash(std::size_t number, std::mt19937_64& random) const {
    const Inode& inode = inodes[number];
    if (!inode.is_dirty) {
      return inode.durable;
    }
    constexpr std::size_t kSector = 512;
    std::string content = inode.durable;
    const std::size_t most = inode.cached.size() - inode.durable.size();
    content.resize(inode.durable.size() + (random() % 4 == 0 ? most : random() % (most + 1)), '\0');
    for (std::size_t at = 0; at < content.size(); at += kSector) {
      if (random() % 2 == 0) {
        const std::size_t end = std::min(content.size(), at + kSector);
        content.replace(at, end - at, inode.cached, at, end - at);
      }
    }
    return content;
  }

  static constexpr int kFolder = 1 << 20;
  std::vector<Inode> inodes;
  /// The names after each change of the folder, from the last one that is durable to what programs see. A power failure
  /// leaves any of them.
  std::vector<Names> history{Names()};
};

}  // namespace tandem::test
