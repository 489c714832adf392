#include <tandem/core/file.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "support/message.h"
#include "support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using core::replace_file;
using test::message_of;
using test::read_text;
using test::TempDir;

std::ptrdiff_t files_in(const TempDir& dir) {
  return std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator());
}

TEST(Pipe, EndsWhenItsWriteEndIsClosed) {
  core::Pipe pipe("no pipe");
  core::Descriptor writer = std::move(pipe.write_end);
  EXPECT_LT(pipe.write_end.get(), 0);
  EXPECT_TRUE(core::write_all(writer.get(), "x"));
  writer.close();
  char byte = 0;
  EXPECT_EQ(::read(pipe.read_end.get(), &byte, 1), 1);
  EXPECT_EQ(::read(pipe.read_end.get(), &byte, 1), 0);
}

TEST(Pipe, ThrowsWhatTheCallerSays) {
  EXPECT_EQ(message_of<IoError>([] { core::Pipe("no pipe for a test", -1); }), "no pipe for a test: Invalid argument");
}

TEST(ReplaceFile, WritesAllPartsInOrder) {
  const TempDir dir;
  replace_file(dir.file("a"), {"one", "", "two"});
  EXPECT_EQ(read_text(dir.file("a")), "onetwo");
  replace_file(dir.file("a"), {});
  EXPECT_EQ(read_text(dir.file("a")), "");
  EXPECT_EQ(files_in(dir), 1);
}

TEST(ReplaceFile, FollowsALink) {
  const TempDir dir;
  fs::create_directory(dir.file("far"));
  dir.write("far/a", "old");
  fs::create_symlink("far/a", dir.file("link"));
  replace_file(dir.file("link"), {"new"});
  EXPECT_TRUE(fs::is_symlink(dir.file("link")));
  EXPECT_EQ(read_text(dir.file("far/a")), "new");
  fs::create_symlink("far/b", dir.file("dangling"));
  replace_file(dir.file("dangling"), {"new"});
  EXPECT_EQ(read_text(dir.file("far/b")), "new");
}

TEST(ReplaceFile, LeavesTheOldFileWhenTheNewDoesNotFit) {
  const TempDir dir;
  dir.write("a", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // otherwise the limit ends the program
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = message_of<IoError>([&] { replace_file(dir.file("a"), {std::string(5000, 'x')}); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(text, "cannot write '" + dir.file("a") + "': File too large");
  EXPECT_EQ(read_text(dir.file("a")), "old");
  EXPECT_EQ(files_in(dir), 1);
}

TEST(ReplaceFile, WritersAtOnceLeaveOneWholeFile) {
  const TempDir dir;
  {
    std::vector<std::jthread> writers;
    for (const char letter : {'a', 'b', 'c'}) {
      writers.emplace_back([&dir, letter] {
        for (int i = 0; i < 20; ++i) {
          replace_file(dir.file("a"), {std::string(100'000, letter)});
        }
      });
    }
  }
  const std::string content = read_text(dir.file("a"));
  EXPECT_EQ(content, std::string(100'000, content.front()));
  EXPECT_EQ(files_in(dir), 1);
}

// On a disk of its own, of 64 KiB.
TEST(ReplaceFile, OnAFullDiskSaysWhatIsMissing) {
  const TempDir folder;
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto say = [&](const std::string& text) { core::write_all(pipe[1], text); };
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=65536") != 0) {
      say("no disk");
      std::_Exit(0);
    }
    try {
      replace_file(folder.file("model"), {std::string(1 << 20, 'x')});
      say("it was written");
    } catch (const IoError& error) {
      say(error.what());
    }
    std::_Exit(0);
  }
  ::close(pipe[1]);
  std::array<char, 1000> text{};
  EXPECT_GT(::read(pipe[0], text.data(), text.size() - 1), 0);
  ::close(pipe[0]);
  ::waitpid(child, nullptr, 0);
  if (std::string(text.data()) == "no disk") {
    GTEST_SKIP() << "the system allows no mounts";
  }
  EXPECT_EQ(std::string(text.data()),
            "cannot write '" + folder.file("model") +
                "': No space left on device; 1048576 bytes were to be written, and 65536 are free there");
}

}  // namespace
}  // namespace tandem
