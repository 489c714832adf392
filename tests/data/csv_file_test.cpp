#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/data/csv.h>
#include <tandem/data/csv_file.h>
#include <tandem/data/csv_rows.h>

#include "files.h"
#include "random_csv.h"

// A large file without quotes is read in pieces and is never in memory as a whole. All others are.

namespace tandem {
namespace {

using data::CsvFile;
using test::message_of;
using test::TempDir;

constexpr std::size_t kPieceBytes = 16;

std::string lines(int count, const std::string& line = "1,2", const std::string& end = "\n") {
  std::string text = "a,b" + end;
  for (int i = 0; i < count; ++i) {
    text += line + end;
  }
  return text;
}

std::string text_of(const CsvFile& file) {
  std::string text;
  for (const data::CsvPiece& piece : file.pieces()) {
    std::string part(piece.bytes, '\0');
    file.read(piece, part.data());
    text += part;
  }
  return text;
}

std::size_t line_ends_of(const CsvFile& file) {
  std::size_t count = 0;
  for (const data::CsvPiece& piece : file.pieces()) {
    count += piece.survey.line_ends;
  }
  return count;
}

TEST(CsvFile, IsCutAtLineEnds) {
  const TempDir dir;
  for (const char* end : {"\n", "\r\n"}) {
    for (int blanks = 0; blanks < 16; ++blanks) {  // pieces end at every byte of a line
      const std::string text = lines(100, "1," + std::string(static_cast<std::size_t>(blanks) % 8, ' ') + "2", end);
      const std::string path = dir.write("a.csv", text + std::string(static_cast<std::size_t>(blanks) / 8, ' '));
      const auto file = CsvFile::open(path, {}, 2 * kPieceBytes);
      ASSERT_NE(file, nullptr);
      EXPECT_GT(file->pieces().size(), 10U);
      EXPECT_EQ(text_of(*file), text.substr(0, text.find_last_not_of("\r\n") + 1));
      EXPECT_EQ(line_ends_of(*file), 100U);
    }
  }
}

TEST(CsvFile, LeavesOtherFilesToTheReaderOfWholeFiles) {
  const TempDir dir;
  const auto is_opened = [&](const std::string& text, const data::CsvOptions& options = {}) {
    return CsvFile::open(dir.write("a.csv", text), options, kPieceBytes) != nullptr;
  };
  const std::string text = lines(100);
  EXPECT_TRUE(is_opened(text));
  EXPECT_FALSE(is_opened(lines(14)));                                    // small
  EXPECT_FALSE(is_opened(text, {.max_bytes = 100}));                     // too large
  EXPECT_FALSE(is_opened(text + "\"1\",2\n"));                           // quotes
  EXPECT_FALSE(is_opened(text + std::string(1, '\0') + ",2\n"));         // a NUL byte
  EXPECT_FALSE(is_opened(text + std::string(40, '1') + ",2\n" + text));  // a long line
  EXPECT_FALSE(is_opened(text + std::string(40, '\n')));                 // many blank lines at the end
  EXPECT_FALSE(is_opened(std::string(40, '\n') + text));                 // or at the beginning
  EXPECT_FALSE(is_opened(lines(100, "1,2", "\r")));
  EXPECT_FALSE(is_opened(test::gzip(text) + text));
  EXPECT_EQ(CsvFile::open(dir.file("none.csv"), {}, kPieceBytes), nullptr);
  EXPECT_EQ(CsvFile::open("/dev/zero", {}, kPieceBytes), nullptr);
}

TEST(CsvFile, GivesTheSameTablesAndErrorsAsTextInMemory) {
  const TempDir dir;
  std::mt19937_64 random(11);
  int opened = 0;
  int tables = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = test::random_csv(random, 80, 16);
    std::erase(text, random() % 8 == 0 ? 'N' : '"');
    const data::CsvOptions options = test::random_csv_options(random);
    const std::string path = dir.write("a.csv", text);
    const std::size_t piece_bytes = kPieceBytes << (random() % 2);
    const std::string whole = test::description_of([&] { return data::read_table(text, path, options, 1U << 20U); });
    const std::string pieces = test::description_of([&] { return data::read_table(path, options, piece_bytes); });
    if (text.empty()) {
      EXPECT_EQ(pieces, path + ": the file is empty");
      continue;
    }
    ASSERT_EQ(pieces, whole) << ::testing::PrintToString(text);
    const bool is_opened = CsvFile::open(path, options, piece_bytes) != nullptr;
    opened += is_opened ? 1 : 0;
    tables += is_opened && whole.find("dropped;") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(opened, 500);
  EXPECT_GT(tables, 300);
}

TEST(CsvFile, ThatChangesIsRefused) {
  const TempDir dir;
  const std::string text = lines(100);
  const std::string path = dir.write("a.csv", text);
  const auto file = CsvFile::open(path, {}, kPieceBytes);
  ASSERT_NE(file, nullptr);
  const std::string expected = path + ": the file has changed while it was read";
  for (const std::string& changed : {text.substr(0, text.size() / 2), lines(200, ""), lines(100, "\"\","),
                                     lines(100, "1," + std::string(1, '\0')), std::string()}) {
    dir.write("a.csv", changed);
    EXPECT_EQ(message_of<IoError>([&] { text_of(*file); }), expected);
  }
  dir.write("a.csv", text + "3,4\n");
  EXPECT_EQ(text_of(*file) + "\n", text);
}

}  // namespace
}  // namespace tandem
