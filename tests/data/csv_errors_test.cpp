#include <tandem/data/csv.h>

#include <string>

#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "files.h"

namespace tandem {
namespace {

using data::CsvOptions;
using data::CsvTable;
using data::Missing;
using data::one_hot;
using data::parse_csv;
using data::read_csv;
using test::message_of;
using test::TempDir;

using namespace std::string_literals;

std::string csv_error(std::string_view text, const CsvOptions& options = {}) {
  return message_of<IoError>([&] { parse_csv(text, "a.csv", options); });
}

CsvTable small_table() { return parse_csv("size,price,kind\n1,2,red\n3,4,blue\n", "a.csv"); }

TEST(CsvErrors, NoRows) {
  EXPECT_EQ(csv_error(""), "a.csv: there are no rows");
  EXPECT_EQ(csv_error("\n \r\n\n"), "a.csv: there are no rows");
  EXPECT_EQ(csv_error("\xef\xbb\xbf"), "a.csv: there are no rows");
  EXPECT_EQ(csv_error("a,b\n"), "a.csv: there is a header, but no rows follow");
  EXPECT_EQ(csv_error("a,b\n1,\n,2\n", {.missing = Missing::drop_row}),
            "a.csv: each of the 2 rows misses a value, and CsvOptions::missing is drop_row: nothing is left");
}

TEST(CsvErrors, RaggedRow) {
  EXPECT_EQ(csv_error("a,b,c\n1,2,3\n4,5\n"), "a.csv:3:4: expected 3 fields as in line 1, found 2: '4,5'");
  EXPECT_EQ(csv_error("a,b\n1,2,3,4\n"), "a.csv:2:5: expected 2 fields as in line 1, found 4: '1,2,3,4'");
  EXPECT_EQ(csv_error("a,b\n1,2\n\n3,4\n"), "a.csv:3:1: expected 2 fields as in line 1, found 1: ''");
  EXPECT_EQ(csv_error("a,b\n\"x\ny\",2,3\n"), "a.csv:3:6: expected 2 fields as in line 1, found 3: '\"x\\x0ay\",2,3'");
}

TEST(CsvErrors, LongRowsAreShortenedBetweenCharacters) {
  EXPECT_EQ(csv_error("a,b\n" + std::string(99, 'x') + "\xc3\xa4\n"),
            "a.csv:2:102: expected 2 fields as in line 1, found 1: '" + std::string(99, 'x') + "...'");
}

TEST(CsvErrors, TextWhereNumbersAreDue) {
  const CsvTable table = parse_csv("size,price\n1,10\n2,20 EUR\n3,30\n", "a.csv");
  EXPECT_EQ(message_of<IoError>([&] { table.numeric("price"); }),
            "a.csv:3:3: column 'price' holds text where numbers are due: '20 EUR'");
}

TEST(CsvErrors, NumbersWhereTextIsDue) {
  EXPECT_EQ(
      message_of<ConfigError>([] { small_table().text("price"); }),
      "a.csv: column 'price' holds numbers, not text; read it with numeric(), or name it in CsvOptions::text_columns");
}

TEST(CsvErrors, UnknownColumn) {
  EXPECT_EQ(message_of<ConfigError>([] { small_table().numeric("prize"); }),
            "a.csv: there is no column 'prize' (did you mean 'price'?); the columns are 'size', 'price', 'kind'");
  EXPECT_EQ(message_of<ConfigError>([] { small_table().is_numeric("population"); }),
            "a.csv: there is no column 'population'; the columns are 'size', 'price', 'kind'");
  EXPECT_EQ(message_of<ConfigError>([] { small_table().text(3); }),
            "a.csv: there is no column 3; the columns are 0 to 2: 'size', 'price', 'kind'");
}

TEST(CsvErrors, UnknownColumnOfAWideTableListsTheFirstTwenty) {
  std::string wide = "0";
  std::string listed = "'column_0'";
  for (int i = 1; i < 25; ++i) {
    wide += ",0";
    listed += i < 20 ? ", 'column_" + std::to_string(i) + "'" : "";
  }
  const CsvTable table = parse_csv(wide, "a.csv");
  EXPECT_EQ(message_of<ConfigError>([&] { table.numeric("x"); }),
            "a.csv: there is no column 'x'; the columns are " + listed + " and 5 more");
}

TEST(CsvErrors, UnknownColumnBecauseOfTheDelimiter) {
  const CsvTable table = parse_csv("size;price\n1;2\n", "a.csv");
  EXPECT_EQ(message_of<ConfigError>([&] { table.numeric("size"); }),
            "a.csv: there is no column 'size'; the columns are 'size;price'; is CsvOptions::delimiter ';'?");
}

TEST(CsvErrors, UnknownRow) {
  EXPECT_EQ(message_of<ConfigError>([] { small_table().line_of_row(2); }), "a.csv: there is no row 2; rows are 0 to 1");
}

TEST(CsvErrors, MissingValue) {
  EXPECT_EQ(csv_error("a,b\n1,2\n3,\n"),
            "a.csv:3:3: column 'b' has no value here (found ''); set CsvOptions::missing to drop_row or keep_nan");
  EXPECT_EQ(csv_error("a,b\n?,2\n"),
            "a.csv:2:1: column 'a' has no value here (found '?'); set CsvOptions::missing to drop_row or keep_nan");
}

TEST(CsvErrors, UnclearHeader) {
  EXPECT_EQ(csv_error("5.1,setosa\n7.0,versicolor\n"),
            "a.csv:1:5: is this row a header? It has both text such as 'setosa' and numbers such as '5.1'; set "
            "CsvOptions::header to yes or no");
}

TEST(CsvErrors, DuplicateColumnNames) {
  EXPECT_EQ(csv_error("a,b,a\n1,2,3\n"), "a.csv:1:5: column name 'a' is used twice, in fields 1 and 3");
}

TEST(CsvErrors, NumbersBeyondDouble) {
  EXPECT_EQ(csv_error("a,b\n1,2\n3,1e999\n"),
            "a.csv:3:3: '1e999' in column 'b' is infinite or does not fit into a double");
  EXPECT_EQ(csv_error("a\n1\n-Infinity\n"),
            "a.csv:3:1: '-Infinity' in column 'a' is infinite or does not fit into a double");
  EXPECT_EQ(csv_error("a\ninf\n1\n"), "a.csv:2:1: 'inf' in column 'a' is infinite or does not fit into a double");
}

TEST(CsvErrors, Quotes) {
  EXPECT_EQ(csv_error("a,b\n1,x\"y\n"),
            "a.csv:2:4: a quote inside the unquoted field 'x\"'; put the field in quotes and double the quotes inside "
            "it");
  EXPECT_EQ(csv_error("a,b\n1,\"x\" y\n"),
            "a.csv:2:7: text after the closing quote: '\"x\" y'; a quote inside a quoted field must be doubled");
  EXPECT_EQ(csv_error("a,b\n1,2\n3,\"x\n4,5\n"), "a.csv:3:3: the quote that opens here is never closed: '\"x\\x0a4,5'");
}

TEST(CsvErrors, NotText) {
  EXPECT_EQ(csv_error("a,b\n1,\0\n"s), "a.csv:2:3: a NUL byte; is this a binary file, or UTF-16 text?");
  EXPECT_EQ(csv_error("\xff\xfe"s + "a\0"s), "a.csv: not a CSV file; this looks like UTF-16 text");
  EXPECT_EQ(csv_error("\0\0\x08\x01\0\0\0\1x"s), "a.csv: not a CSV file; this looks like an IDX file");
  EXPECT_EQ(csv_error("<!DOCTYPE html>\n"),
            "a.csv: not a CSV file; this looks like an HTML page (a download that failed?)");
}

TEST(CsvErrors, Limits) {
  EXPECT_EQ(csv_error("a\n12345\n", {.max_field_bytes = 4}),
            "a.csv:2:1: field of 5 bytes, the limit is 4 (CsvOptions::max_field_bytes)");
  EXPECT_EQ(csv_error("a\n\"12345\n6\n", {.max_field_bytes = 4}),
            "a.csv:2:1: the quote that opens here is not closed within 4 bytes (CsvOptions::max_field_bytes)");
  EXPECT_EQ(csv_error("a\n\"123\"\"\"\n", {.max_field_bytes = 4}),
            "a.csv:2:1: the quote that opens here is not closed within 4 bytes (CsvOptions::max_field_bytes)");
  EXPECT_EQ(csv_error("1,2,3\n", {.max_columns = 2}),
            "a.csv:1:5: row has more than 2 fields (CsvOptions::max_columns)");
  EXPECT_EQ(parse_csv("a\n\"1234\"\n", "a.csv", {.max_field_bytes = 4}).num_rows(), 1);
}

TEST(CsvErrors, BadDelimiter) {
  const auto config_error = [](char delimiter) {
    return message_of<ConfigError>([&] { parse_csv("a\n1\n", "a.csv", {.delimiter = delimiter}); });
  };
  EXPECT_EQ(config_error('"'), "CsvOptions::delimiter '\"' cannot separate fields; use ',' ';' or a tab");
  EXPECT_EQ(config_error('\n'), "CsvOptions::delimiter '\\x0a' cannot separate fields; use ',' ';' or a tab");
  EXPECT_EQ(config_error('\0'), "CsvOptions::delimiter '\\x00' cannot separate fields; use ',' ';' or a tab");
  EXPECT_EQ(config_error('.'), "CsvOptions::delimiter '.' cannot separate fields; use ',' ';' or a tab");
}

TEST(CsvErrors, TooManyCategories) {
  const CsvTable table = parse_csv("n,id\n1,a\n2,b\n3,c\n", "a.csv");
  EXPECT_EQ(message_of<IoError>([&] { one_hot(table, "id", 2); }),
            "a.csv: column 'id' has more than 2 different texts, too many for one-hot; the first text is 'a' in line "
            "2, column 3");
  EXPECT_EQ(
      message_of<ConfigError>([&] { one_hot(table, "n"); }),
      "a.csv: column 'n' holds numbers, not text; read it with numeric(), or name it in CsvOptions::text_columns");
}

TEST(CsvErrors, NameTheFileThatWasRead) {
  const TempDir dir;
  const std::string path = dir.write("rows.csv.gz", test::gzip("a,b\n1\n"));
  EXPECT_EQ(message_of<IoError>([&] { read_csv(path); }), path + ":2:2: expected 2 fields as in line 1, found 1: '1'");
  EXPECT_EQ(message_of<IoError>([&] { read_csv(path, {.max_bytes = 5}); }),
            path + ": more than the limit of 5 bytes (max_bytes)");
}

}  // namespace
}  // namespace tandem
