#include <tandem/data/byte_source.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/data/csv.h>
#include <tandem/data/idx.h>
#include <tandem/data/npy.h>
#include <tandem/tensor/factories.h>

#include "files.h"

namespace tandem {
namespace {

using data::read_file;
using test::bytes_of;
using test::gzip;
using test::message_of;
using test::TempDir;

constexpr std::int64_t kNoLimit = std::int64_t{1} << 40;

std::string long_text() {
  std::string text;
  for (int i = 0; i < 200'000; ++i) {
    text += std::to_string(i * 7919 % 10007) + ",";
  }
  return text;
}

std::string io_error(const std::string& path, std::int64_t max_bytes = kNoLimit) {
  return message_of<IoError>([&] { read_file(path, max_bytes); });
}

TEST(ReadFile, GivesTheBytesOfAPlainFile) {
  const TempDir dir;
  EXPECT_EQ(read_file(dir.write("short", "abc"), kNoLimit), bytes_of("abc"));
  const std::string text = long_text();  // several chunks
  EXPECT_EQ(read_file(dir.write("long", text), kNoLimit), bytes_of(text));
}

TEST(ReadFile, UnpacksGzipWhateverTheNameSays) {
  const TempDir dir;
  const std::string text = long_text();
  EXPECT_EQ(read_file(dir.write("data.csv", gzip(text)), kNoLimit), bytes_of(text));
  EXPECT_EQ(read_file(dir.write("plain.gz", "not packed"), kNoLimit), bytes_of("not packed"));
}

TEST(ReadFile, JoinsConcatenatedGzipMembers) {
  const TempDir dir;
  const std::string path = dir.write("two.gz", gzip("one,") + gzip("") + gzip(long_text()) + gzip("end"));
  EXPECT_EQ(read_file(path, kNoLimit), bytes_of("one," + long_text() + "end"));
}

TEST(ReadFile, UnpacksOutputFarLargerThanItsInput) {
  const TempDir dir;
  const std::string zeros(8'000'000, '\0');
  EXPECT_EQ(read_file(dir.write("zeros.gz", gzip(zeros)), kNoLimit), bytes_of(zeros));
}

TEST(ReadFile, ReadsAPipe) {
  const TempDir dir;
  const std::string path = dir.path() + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string text = long_text();
  std::thread writer([&] { std::ofstream(path, std::ios::binary) << text; });
  EXPECT_EQ(read_file(path, kNoLimit), bytes_of(text));
  writer.join();
}

TEST(ReadFile, AcceptsExactlyTheLimit) {
  const TempDir dir;
  EXPECT_EQ(read_file(dir.write("five", "12345"), 5), bytes_of("12345"));
  EXPECT_EQ(read_file(dir.write("five.gz", gzip("12345")), 5), bytes_of("12345"));
}

TEST(ReadFileErrors, MissingFile) {
  EXPECT_EQ(io_error("/no/such/file.csv"), "cannot open '/no/such/file.csv': No such file or directory");
  EXPECT_EQ(io_error("no-such-file.csv"),
            "cannot open 'no-such-file.csv': No such file or directory (current "
            "directory: " +
                std::filesystem::current_path().string() + ")");
}

TEST(ReadFileErrors, UnreadableFile) {
  const TempDir dir;
  const std::string path = dir.write("secret", "x");
  ::chmod(path.c_str(), 0);
  if (::access(path.c_str(), R_OK) == 0) {
    GTEST_SKIP() << "this user may read every file";
  }
  EXPECT_EQ(io_error(path), "cannot open '" + path + "': Permission denied");
}

TEST(ReadFileErrors, Directory) {
  const TempDir dir;
  EXPECT_EQ(io_error(dir.path()), dir.path() + ": this is a directory, expected a file");
}

TEST(ReadFileErrors, EmptyFile) {
  const TempDir dir;
  const std::string path = dir.write("empty", "");
  EXPECT_EQ(io_error(path), path + ": the file is empty");
  const std::string packed = dir.write("empty.gz", gzip(""));
  EXPECT_EQ(io_error(packed), packed + ": the file is empty");
}

TEST(ReadFileErrors, MoreThanTheLimit) {
  const TempDir dir;
  const std::string path = dir.write("six", "123456");
  EXPECT_EQ(io_error(path, 5), path + ": more than the limit of 5 bytes (max_bytes)");
  const std::string bomb = dir.write("bomb.gz", gzip(std::string(5'000'000, '\0')));
  EXPECT_EQ(io_error(bomb, 1'000'000), bomb + ": more than the limit of 1000000 bytes (max_bytes)");
}

TEST(ReadFileErrors, EndlessFileStopsAtTheLimit) {
  EXPECT_EQ(io_error("/dev/zero", 1'000'000), "/dev/zero: more than the limit of 1000000 bytes (max_bytes)");
}

TEST(ReadFileErrors, EveryTruncationOfGzipData) {
  const TempDir dir;
  const std::string packed = gzip("some text that is packed");
  for (std::size_t length = 2; length < packed.size(); ++length) {
    const std::string path = dir.write("cut.gz", packed.substr(0, length));
    EXPECT_EQ(io_error(path),
              path + ": byte " + std::to_string(length) + ": the gzip data ends early; the file is truncated");
  }
}

TEST(ReadFileErrors, CorruptGzipData) {
  const TempDir dir;
  std::string packed = gzip("some text that is packed");
  packed[packed.size() - 8] ^= 1;  // the checksum of the content
  const std::string path = dir.write("corrupt.gz", packed);
  EXPECT_EQ(io_error(path),
            path + ": byte " + std::to_string(packed.size() - 4) + ": corrupt gzip data: incorrect data check");
}

TEST(ReadFileErrors, BytesAfterTheGzipData) {
  const TempDir dir;
  const std::string packed = gzip("text");
  const std::string path = dir.write("more.gz", packed + "garbage");
  EXPECT_EQ(io_error(path), path + ": byte " + std::to_string(packed.size()) +
                                ": the gzip data ends here, but other bytes follow; the file is damaged");
}

TEST(ReadFile, ReadsNoMoreOnceTheContentIsRefused) {
  const TempDir dir;
  const std::string text = "head" + std::string(8'000'000, '\0');
  for (const std::string& path : {dir.write("zeros.gz", gzip(text)), dir.write("members.gz", gzip("h") + gzip(text)),
                                  dir.write("zeros", text), std::string("/dev/zero")}) {
    std::size_t seen = 0;
    const auto inspect = [&](std::span<const std::uint8_t> bytes, std::size_t total) {
      seen += bytes.size();
      EXPECT_EQ(seen, total);
      return total < 300'000;
    };
    const std::size_t size = read_file(path, kNoLimit, inspect).size();
    EXPECT_EQ(size, seen) << path;
    EXPECT_GE(size, 300'000U) << path;
    EXPECT_LT(size, 5'000'000U) << path;
  }
}

// These would not end, or take gigabytes, if their beginning were not looked at first.
TEST(ReadFileErrors, EndlessFiles) {
  EXPECT_EQ(message_of<IoError>([] { data::read_csv("/dev/zero"); }),
            "/dev/zero:1:1: a NUL byte; is this a binary file, or UTF-16 text?");
  EXPECT_EQ(
      message_of<IoError>([] { data::read_idx("/dev/zero"); }),
      "/dev/zero: byte 2: unknown element type 0x00; expected 08 (u8), 09 (i8), 0b (i16), 0c (i32), 0d (f32) or 0e "
      "(f64)");
  EXPECT_TRUE(message_of<IoError>([] { data::load_npy("/dev/zero"); }).find("byte 0: not a NumPy file") !=
              std::string::npos);
  const TempDir dir;
  const std::string line = dir.write("line.csv.gz", gzip("a,b\n1," + std::string(8'000'000, '1')));
  // The limit on the file's bytes is not reached.
  EXPECT_TRUE(message_of<IoError>([&] { data::read_csv(line, {.max_bytes = 4'000'000}); }).find("max_field_bytes") !=
              std::string::npos);
  const std::string header("\0\0\x08\x01\0\0\0\x02", 8);
  const std::string path = dir.write("long.idx.gz", gzip(header + std::string(8'000'000, '\1')));
  EXPECT_EQ(message_of<IoError>([&] { data::read_idx(path); }),
            path + ": byte 10: too many bytes: sizes [2] of u8 need 2 bytes after the header, and more follow");
}

TEST(ReadFileErrors, APipeThatGoesOnAfterItsArray) {
  const TempDir dir;
  const std::string path = dir.path() + "/pipe.npy";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string array = dir.path() + "/array.npy";
  data::save_npy(array, zeros({3}));
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  std::thread writer([&] {
    std::ofstream pipe(path, std::ios::binary);
    pipe << std::ifstream(array, std::ios::binary).rdbuf();
    while (pipe << std::string(65'536, '\1')) {  // until the reader has gone
    }
  });
  EXPECT_TRUE(message_of<IoError>([&] { data::load_npy(path); }).find("too many bytes: shape [3] of f4 needs 12") !=
              std::string::npos);
  writer.join();
  ::signal(SIGPIPE, before);
}

}  // namespace
}  // namespace tandem
