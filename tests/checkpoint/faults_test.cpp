#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "files_in_memory.h"
#include "support/temp_dir.h"

// A save whose system calls fail, one after the other, once and for ever.

namespace tandem::test {
namespace {

using ::testing::HasSubstr;

class FailingOps : public core::FileOps {
 public:
  FailingOps(int first, int error, bool for_ever) : first_(first), error_(error), for_ever_(for_ever) {}

  int open(const char* path, int flags, mode_t mode) override {
    return fails() ? -1 : FileOps::open(path, flags, mode);
  }
  // Half of the bytes go through before the failure.
  ssize_t write(int descriptor, const void* bytes, std::size_t count) override {
    return fails() ? -1 : FileOps::write(descriptor, bytes, count > 1 ? count / 2 : count);
  }
  int fsync(int descriptor) override {
    ++syncs;
    return fails() ? -1 : FileOps::fsync(descriptor);
  }
  int close(int descriptor) override {
    const bool failed = fails();
    const int result = FileOps::close(descriptor);
    if (failed) {
      errno = error_;
    }
    return failed ? -1 : result;
  }
  int fchmod(int descriptor, mode_t mode) override { return fails() ? -1 : FileOps::fchmod(descriptor, mode); }
  int rename(const char* from, const char* to) override { return fails() ? -1 : FileOps::rename(from, to); }
  int unlink(const char* path) override { return fails() ? -1 : FileOps::unlink(path); }

  bool has_failed() const { return calls_ >= first_; }
  int syncs = 0;

 private:
  bool fails() {
    ++calls_;
    const bool failed = for_ever_ ? calls_ >= first_ : calls_ == first_;
    if (failed) {
      errno = error_;
    }
    return failed;
  }

  int first_;
  int error_;
  bool for_ever_;
  int calls_ = 0;
};

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST(SaveFaults, LeaveTheOldFileAndSayWhy) {
  StateDict old, fresh;
  old.set("w", ones({100}));
  fresh.set("w", zeros({100}));
  for (const int error : {ENOSPC, EDQUOT, EFBIG, EIO, EACCES}) {
    for (const bool for_ever : {false, true}) {
      int failures = 0;
      for (int call = 1;; ++call) {
        SCOPED_TRACE(fmt::format("error {}, call {}, for ever: {}", error, call, for_ever));
        const TempDir folder;
        const std::string path = folder.file("model");
        save(old, path);
        const std::string before = read_text(path);
        FailingOps ops(call, error, for_ever);
        std::string text;
        try {
          checkpoint::write_tensors(fresh, path, {}, ops);
        } catch (const IoError& failure) {
          text = failure.what();
        }
        const float value = load(path).at("w").to_vector<float>()[0];
        if (text.empty()) {
          EXPECT_EQ(value, 0.0F);  // what failed does not matter, such as removing a file that is not there
        } else {
          ++failures;
          EXPECT_THAT(text, HasSubstr(path));
          EXPECT_THAT(text, HasSubstr(std::strerror(error)));
          if (text.find("may not survive a power failure") == std::string::npos) {
            EXPECT_EQ(read_text(path), before);
            if (error == ENOSPC || error == EDQUOT) {
              EXPECT_THAT(text, HasSubstr("bytes were to be written, and "));
            }
          }
          // Where nothing can be removed any more, the temporary file stays.
          EXPECT_TRUE(for_ever || names_in(folder.path()).size() == 1);
        }
        EXPECT_LE(ops.syncs, 2);  // the file's and the folder's
        if (!ops.has_failed()) {
          break;
        }
      }
      EXPECT_GE(failures, 8);
    }
  }
}

TEST(SaveFaults, InterruptedWritesGoOn) {
  StateDict state;
  state.set("w", ones({100}));
  const TempDir folder;
  for (int call = 2; call < 12; ++call) {  // the first one opens the file, and many writes follow
    FailingOps ops(call, EINTR, false);
    checkpoint::write_tensors(state, folder.file("model"), {}, ops);
    EXPECT_TRUE(ops.has_failed());
    EXPECT_EQ(load(folder.file("model")).at("w").numel(), 100);
    std::filesystem::remove(folder.file("model"));
  }
}

}  // namespace
}  // namespace tandem::test
