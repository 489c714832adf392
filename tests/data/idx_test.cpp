#include <tandem/data/idx.h>

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "files.h"

namespace tandem {
namespace {

using data::IdxArray;
using data::parse_idx;
using data::read_idx;
using test::bytes_of;
using test::message_of;
using test::TempDir;

using namespace std::string_literals;

// A header with the given type code and with sizes below 256.
std::string header(char code, std::initializer_list<char> sizes) {
  std::string text = {0, 0, code, static_cast<char>(sizes.size())};
  for (const char size : sizes) {
    text += "\0\0\0"s + size;
  }
  return text;
}

template <class T>
std::vector<T> values(const IdxArray& array) {
  EXPECT_EQ(array.dtype, dtype_of<T>);
  std::vector<T> result(array.bytes.size() / sizeof(T));
  std::memcpy(result.data(), array.bytes.data(), array.bytes.size());
  return result;
}

std::string idx_error(const std::string& file) {
  return message_of<IoError>([&] { parse_idx(bytes_of(file), "a.idx"); });
}

TEST(Idx, ReadsUnsignedBytes) {
  const IdxArray array = parse_idx(bytes_of(header(0x08, {2, 3}) + "\0\1\2\3\xfe\xff"s), "a.idx");
  EXPECT_EQ(array.sizes, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(values<std::uint8_t>(array), (std::vector<std::uint8_t>{0, 1, 2, 3, 254, 255}));
}

TEST(Idx, WidensSmallSignedIntegersToI32) {
  EXPECT_EQ(values<std::int32_t>(parse_idx(bytes_of(header(0x09, {3}) + "\x7f\xff\x80"s), "a.idx")),
            (std::vector<std::int32_t>{127, -1, -128}));
  EXPECT_EQ(values<std::int32_t>(parse_idx(bytes_of(header(0x0B, {3}) + "\x01\x02\xff\xff\x80\x00"s), "a.idx")),
            (std::vector<std::int32_t>{258, -1, -32768}));
}

TEST(Idx, TurnsBigEndianElementsIntoHostOrder) {
  EXPECT_EQ(values<std::int32_t>(parse_idx(bytes_of(header(0x0C, {2}) + "\x01\x02\x03\x04\xff\xff\xff\xfe"s), "a.idx")),
            (std::vector<std::int32_t>{0x01020304, -2}));
  EXPECT_EQ(values<float>(parse_idx(bytes_of(header(0x0D, {2}) + "\x3f\x80\0\0\xc0\x20\0\0"s), "a.idx")),
            (std::vector<float>{1.0F, -2.5F}));
  EXPECT_EQ(values<double>(parse_idx(bytes_of(header(0x0E, {1}) + "\x3f\xb9\x99\x99\x99\x99\x99\x9a"s), "a.idx")),
            (std::vector<double>{0.1}));
}

TEST(Idx, ReadsFilesPlainOrPacked) {
  const TempDir dir;
  const std::string file = header(0x08, {4}) + "abcd";
  EXPECT_EQ(read_idx(dir.write("plain", file)).bytes, bytes_of("abcd"));
  EXPECT_EQ(read_idx(dir.write("packed", test::gzip(file))).bytes, bytes_of("abcd"));
}

TEST(Idx, ReadsEightDimensions) {
  EXPECT_EQ(parse_idx(bytes_of(header(0x08, {1, 1, 1, 1, 1, 1, 1, 2}) + "ab"), "a.idx").sizes.size(), 8U);
}

TEST(IdxErrors, NotAnIdxFile) {
  const std::string expected = "], expected [00 00], a type code and the number of dimensions";
  EXPECT_EQ(idx_error("\x89PNG\r\n\x1a\n"),
            "a.idx: not an IDX file: its first bytes are [89 50 4e 47" + expected + "; this looks like a PNG picture");
  EXPECT_EQ(idx_error("a,b,c\n1,2,3\n"), "a.idx: not an IDX file: its first bytes are [61 2c 62 2c" + expected +
                                             "; this looks like a text file, perhaps CSV");
  EXPECT_EQ(idx_error("<!DOCTYPE html><html>"), "a.idx: not an IDX file: its first bytes are [3c 21 44 4f" + expected +
                                                    "; this looks like an HTML page (a download that failed?)");
  EXPECT_EQ(idx_error(test::gzip("x")).substr(0, 62), "a.idx: not an IDX file: its first bytes are [1f 8b 08 00], exp");
  EXPECT_EQ(idx_error("\x07\x01\x02\x03\x04"), "a.idx: not an IDX file: its first bytes are [07 01 02 03" + expected);
  EXPECT_EQ(idx_error("\0\0\x08"s), "a.idx: not an IDX file: its first bytes are [00 00 08" + expected);
}

TEST(IdxErrors, UnknownElementType) {
  EXPECT_EQ(idx_error(header(0x0A, {1}) + "x"),
            "a.idx: byte 2: unknown element type 0x0a; expected 08 (u8), 09 (i8), 0b (i16), 0c (i32), 0d (f32) or 0e "
            "(f64)");
}

TEST(IdxErrors, WrongNumberOfDimensions) {
  EXPECT_EQ(idx_error(header(0x08, {})), "a.idx: byte 3: 0 dimensions, expected 1 to 8");
  EXPECT_EQ(idx_error(header(0x08, {1, 1, 1, 1, 1, 1, 1, 1, 1}) + "x"), "a.idx: byte 3: 9 dimensions, expected 1 to 8");
}

TEST(IdxErrors, EndsInsideTheHeader) {
  EXPECT_EQ(idx_error(header(0x08, {2, 3}).substr(0, 9)),
            "a.idx: byte 9: the file ends inside its header; 2 dimensions need 12 header bytes");
}

TEST(IdxErrors, NoData) {
  EXPECT_EQ(idx_error(header(0x08, {3, 0})), "a.idx: byte 8: size 0 in dimension 1: the file holds no data");
}

TEST(IdxErrors, Truncated) {
  EXPECT_EQ(idx_error(header(0x0C, {2, 3}) + std::string(23, 'x')),
            "a.idx: byte 35: the file ends early: sizes [2, 3] of i32 need 24 bytes after the header, found 23");
}

TEST(IdxErrors, BytesTooMany) {
  EXPECT_EQ(idx_error(header(0x08, {2, 3}) + "abcdefgh"),
            "a.idx: byte 18: too many bytes: sizes [2, 3] of u8 need 6 bytes after the header, and more follow");
}

TEST(IdxErrors, SizesAreNotBelievedBeforeTheLengthIsChecked) {
  const std::string huge = "\xff\xff\xff\xff";
  EXPECT_EQ(idx_error("\0\0\x0e\x01"s + huge),
            "a.idx: byte 8: the file ends early: sizes [4294967295] of f64 need 34359738360 bytes after the header, "
            "found 0");
  EXPECT_EQ(idx_error("\0\0\x08\x03"s + huge + huge + huge),
            "a.idx: byte 4: sizes [4294967295, 4294967295, 4294967295] are more than can be counted; the header is "
            "corrupt");
}

TEST(IdxErrors, NameTheFileThatWasRead) {
  const TempDir dir;
  const std::string path = dir.write("cut.gz", test::gzip(header(0x08, {5}) + "abc"));
  EXPECT_EQ(message_of<IoError>([&] { read_idx(path); }),
            path + ": byte 11: the file ends early: sizes [5] of u8 need 5 bytes after the header, found 3");
  EXPECT_EQ(message_of<IoError>([&] { read_idx(path, {.max_bytes = 10}); }),
            path + ": more than the limit of 10 bytes (max_bytes)");
}

}  // namespace
}  // namespace tandem
