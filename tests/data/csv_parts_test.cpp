#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/data/csv.h>
#include <tandem/data/csv_rows.h>

#include "files.h"
#include "random_csv.h"

// Large texts are read in parts, on several threads, and plain rows without a list of their fields. Where fields have
// quotes, a text is one part, and every row is read by the whole grammar: the two must agree.

namespace tandem {
namespace {

using data::CsvTable;
using data::Missing;
using data::parse_csv;
using test::message_of;

constexpr int kRows = 60'000;  // of about 80 bytes: some parts

std::string digits(std::mt19937_64& random) {
  std::string text;
  for (std::size_t i = 1 + random() % 17; i > 0; --i) {
    text += static_cast<char>('0' + random() % 10);
  }
  return text;
}

std::string number_text(std::mt19937_64& random) {
  const double value = std::bit_cast<double>(random());
  const double unit = static_cast<double>(random()) / 1e19;
  switch (random() % 16) {
    case 0: return "0";
    case 1: return "-0.0";
    case 2: return fmt::format("{}", static_cast<std::int64_t>(random()));
    case 3: return fmt::format("{}", static_cast<std::int64_t>(random() % 100));
    case 4: return fmt::format("{:.17g}", unit);
    case 5: return fmt::format("{:.3f}", unit);
    case 6: return "1e-400";
    case 7: return ".5";
    case 8: return fmt::format("-{}e{}", random() % 10, static_cast<int>(random() % 40) - 20);
    case 9: return std::string(40, '9');
    case 10: return "+7";  // not plain
    case 11:
    case 12:
    case 13: return digits(random) + "." + digits(random);  // around the length up to which numbers are short
    case 14: return "-" + digits(random) + (random() % 2 == 0 ? "" : ".");
    default: return std::isfinite(value) ? fmt::format("{:.17g}", value) : "3";
  }
}

std::string word(std::mt19937_64& random) {
  const std::vector<std::string> words{"red", "n", "N", "Nan tes", "7 dwarfs", "x", "inf", "-", "a.b", "\xc3\xbc"};
  return words[random() % words.size()];
}

// A table with three columns of numbers and one of words. With `quoted`, fields have quotes.
std::string table_text(bool quoted, const char* line_end = "\n") {
  std::mt19937_64 random(5);
  const std::string mark = quoted ? "\"" : "";
  std::string text = "a,b,c,word" + std::string(line_end);
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < 3; ++i) {
      text += mark + number_text(random) + mark + ",";
    }
    text += mark + word(random) + mark + line_end;
  }
  return text;
}

void expect_equal(const CsvTable& table, const CsvTable& expected) {
  ASSERT_EQ(table.num_rows(), expected.num_rows());
  for (const char* name : {"a", "b", "c"}) {
    const auto got = table.numeric(name);
    const auto wanted = expected.numeric(name);
    for (std::size_t row = 0; row < got.size(); ++row) {
      ASSERT_EQ(std::bit_cast<std::uint64_t>(got[row]), std::bit_cast<std::uint64_t>(wanted[row])) << name << row;
    }
  }
  EXPECT_TRUE(std::ranges::equal(table.text("word"), expected.text("word")));
  for (std::int64_t row = 0; row < table.num_rows(); row += 997) {
    EXPECT_EQ(table.line_of_row(row), row + 2);
  }
}

TEST(CsvParts, HoldWhatOnePassOfTheWholeGrammarFinds) {
  const CsvTable expected = parse_csv(table_text(true), "quoted");
  for (const char* line_end : {"\n", "\r\n", "\r"}) {  // texts with the last are not cut
    const std::string text = table_text(false, line_end);
    ASSERT_GT(text.size(), 2U << 20U);
    expect_equal(parse_csv(text, "plain"), expected);
  }
}

std::string numbers(int rows, const std::function<std::string(int row)>& line) {
  std::string text = "x,y\n";
  for (int row = 0; row < rows; ++row) {
    text += line(row) + "\n";
  }
  return text;
}

TEST(CsvParts, OfAFewBytesGiveTheSameTablesAndErrorsAsOne) {
  std::mt19937_64 random(9);
  int tables = 0;
  for (int round = 0; round < 10'000; ++round) {
    const std::string text = test::random_csv(random, 40, 2);
    const data::CsvOptions options = test::random_csv_options(random);
    const auto description_of = [&](std::size_t part_bytes) {
      return test::description_of([&] { return data::read_table(text, "a.csv", options, part_bytes); });
    };
    const std::string whole = description_of(1U << 20U);
    for (const std::size_t part_bytes : {1, 16}) {
      ASSERT_EQ(description_of(part_bytes), whole) << ::testing::PrintToString(text);
    }
    tables += whole.find("dropped;") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(tables, 500);
}

constexpr int kMany = 400'000;  // rows of 10 bytes and more

TEST(CsvParts, ErrorsOfTheFirstRowThatHasOneAreTold) {
  const auto text = [](int row) {
    return row == 350'000 ? "1" : row == 250'000 ? "1,2,3" : fmt::format("{},{}", row, row);
  };
  EXPECT_EQ(message_of<IoError>([&] { parse_csv(numbers(kMany, text), "a.csv"); }),
            "a.csv:250002:5: expected 2 fields as in line 1, found 3: '1,2,3'");
  const auto infinite = [](int row) {
    return row == 390'000 || row == 300'000 ? "5,1e999" : fmt::format("{},{}", row, row);
  };
  EXPECT_EQ(message_of<IoError>([&] { parse_csv(numbers(kMany, infinite), "a.csv"); }),
            "a.csv:300002:3: '1e999' in column 'y' is infinite or does not fit into a double");
}

TEST(CsvParts, AWordAnywhereMakesAColumnText) {
  const CsvTable table = parse_csv(numbers(kMany,
                                           [](int row) {
                                             return row == 380'000   ? std::string("1,low")
                                                    : row == 390'000 ? std::string("1,high")
                                                                     : fmt::format("{0},{0}", row);
                                           }),
                                   "a.csv");
  EXPECT_FALSE(table.is_numeric("y"));
  EXPECT_EQ(table.text("y")[379'999], "379999");
  EXPECT_EQ(table.text("y")[380'000], "low");
  EXPECT_EQ(table.numeric("x")[380'001], 380'001);
  EXPECT_EQ(table.column(1).first_text.line, 380'002);
  EXPECT_EQ(table.column(1).first_text_excerpt, "'low'");
}

TEST(CsvParts, DroppedRowsLeaveNoGaps) {
  const auto line = [](int row) { return std::to_string(row) + "," + (row % 3 == 0 ? "" : std::to_string(row)); };
  const CsvTable table = parse_csv(numbers(kMany, line), "a.csv", {.missing = Missing::drop_row});
  EXPECT_EQ(table.num_rows() + table.num_dropped_rows(), kMany);
  for (std::int64_t row = 0; row < table.num_rows(); ++row) {
    const double expected = static_cast<double>(row / 2 * 3 + row % 2 + 1);
    ASSERT_EQ(table.numeric("y")[static_cast<std::size_t>(row)], expected);
    ASSERT_EQ(table.line_of_row(row), static_cast<std::int64_t>(expected) + 2);
  }
}

}  // namespace
}  // namespace tandem
