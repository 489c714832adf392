#include <tandem/data/csv.h>

#include <clocale>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files.h"

namespace tandem {
namespace {

using data::CsvOptions;
using data::CsvTable;
using data::Header;
using data::Missing;
using data::one_hot;
using data::OneHot;
using data::parse_csv;
using data::read_csv;
using test::parse_csv_text;
using test::TempDir;
using testing::ElementsAre;
using testing::IsNan;

TEST(Csv, ReadsNamedColumnsOfNumbersAndText) {
  const CsvTable table = parse_csv_text("size,price,kind\n1,2.5,small\n-3,1e3,big\n");
  EXPECT_EQ(table.num_rows(), 2);
  EXPECT_EQ(table.num_columns(), 3);
  EXPECT_THAT(table.column_names(), ElementsAre("size", "price", "kind"));
  EXPECT_TRUE(table.is_numeric("size"));
  EXPECT_FALSE(table.is_numeric("kind"));
  EXPECT_THAT(table.numeric("size"), ElementsAre(1, -3));
  EXPECT_THAT(table.numeric(1), ElementsAre(2.5, 1000));
  EXPECT_THAT(table.text("kind"), ElementsAre("small", "big"));
  EXPECT_EQ(table.line_of_row(1), 3);
  EXPECT_EQ(table.num_dropped_rows(), 0);
  EXPECT_EQ(table.source(), "a.csv");
}

TEST(Csv, DetectsTheHeader) {
  EXPECT_EQ(parse_csv_text("a,b\n1,2\n").num_rows(), 1);
  EXPECT_EQ(parse_csv_text("1,2\n3,4\n").num_rows(), 2);
  EXPECT_THAT(parse_csv_text("1,2\n3,4\n").column_names(), ElementsAre("column_0", "column_1"));
  EXPECT_THAT(parse_csv_text("a,,c\n1,2,3\n").column_names(), ElementsAre("a", "column_1", "c"));
}

TEST(Csv, HeaderCanBeForced) {
  EXPECT_THAT(parse_csv_text("1990,1991\n3,4\n", {.header = Header::yes}).column_names(), ElementsAre("1990", "1991"));
  const CsvTable iris = parse_csv_text("5.1,setosa\n7.0,versicolor\n", {.header = Header::no});
  EXPECT_THAT(iris.numeric(0), ElementsAre(5.1, 7.0));
  EXPECT_THAT(iris.text("column_1"), ElementsAre("setosa", "versicolor"));
}

TEST(Csv, QuotedFieldsHoldDelimitersLineEndsAndQuotes) {
  const CsvTable table =
      parse_csv_text("name,\"n\"\n\"a,b\",\"1\"\n\"two\nlines\", \"2\" \n\"say \"\"hi\"\"\"\"\",\" 3 \"\n");
  EXPECT_THAT(table.text("name"), ElementsAre("a,b", "two\nlines", "say \"hi\"\""));
  EXPECT_THAT(table.numeric("n"), ElementsAre(1, 2, 3));
  EXPECT_EQ(table.line_of_row(1), 3);
  EXPECT_EQ(table.line_of_row(2), 5);
}

TEST(Csv, AcceptsEveryLineEnd) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    std::string text;
    for (const char* line : {"a,b", "1,\"x", "y\"", "2,z"}) {
      text.append(line).append(end);
    }
    const CsvTable table = parse_csv_text(text);
    EXPECT_THAT(table.numeric("a"), ElementsAre(1, 2));
    EXPECT_THAT(table.text("b"), ElementsAre("x" + end + "y", "z"));
    EXPECT_EQ(table.line_of_row(1), 4);
  }
}

TEST(Csv, LastLineMayLackItsEndAndBlankLinesMayFollow) {
  EXPECT_THAT(parse_csv_text("a\n1\n2").numeric("a"), ElementsAre(1, 2));
  EXPECT_THAT(parse_csv_text("a\n1\n2\n\n \r\n\t\n").numeric("a"), ElementsAre(1, 2));
}

TEST(Csv, IgnoresAByteOrderMark) {
  EXPECT_THAT(parse_csv_text("\xef\xbb\xbf"
                             "a\n1\n")
                  .column_names(),
              ElementsAre("a"));
}

TEST(Csv, RemovesBlanksAroundUnquotedFields) {
  const CsvTable table = parse_csv_text(" a ,\tb\n 1 , x y \n2,\" z \"\n");
  EXPECT_THAT(table.column_names(), ElementsAre("a", "b"));
  EXPECT_THAT(table.numeric("a"), ElementsAre(1, 2));
  EXPECT_THAT(table.text("b"), ElementsAre("x y", " z "));
}

TEST(Csv, TakesOtherDelimiters) {
  EXPECT_THAT(parse_csv_text("a;b\n1,5;x\n", {.delimiter = ';'}).text("a"), ElementsAre("1,5"));
  const CsvTable tabs = parse_csv_text("a\tb\tc\n\t2\t\n", {.delimiter = '\t', .missing = Missing::keep_nan});
  EXPECT_THAT(tabs.numeric("a"), ElementsAre(IsNan()));
  EXPECT_THAT(tabs.numeric("b"), ElementsAre(2));
  EXPECT_THAT(tabs.numeric("c"), ElementsAre(IsNan()));
}

TEST(Csv, ReadsEveryFormOfDecimalNumbers) {
  EXPECT_THAT(
      parse_csv_text("0\n-0.5\n+2\n.5\n5.\n1e3\n1E-2\n1.7976931348623157e308\n4.9e-324\n0e-999\n9007199254740993\n")
          .numeric(0),
      ElementsAre(0, -0.5, 2, 0.5, 5, 1000, 0.01, 1.7976931348623157e308, 4.9e-324, 0, 9007199254740992));
}

TEST(Csv, OtherThingsAreText) {
  for (const char* text : {"0x10", "1e", "--1", "+-1", "+", ".", "1 2", "1_000", "1,5", "infin", "NAN", "12a", "e5"}) {
    const CsvTable table = parse_csv_text("a\n1\n\"" + std::string(text) + "\"\n");
    EXPECT_FALSE(table.is_numeric("a")) << text;
    EXPECT_THAT(table.text("a"), ElementsAre("1", text));
  }
}

TEST(Csv, NumbersDoNotDependOnTheLocale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"}) {
    std::setlocale(LC_ALL, name);
  }
  EXPECT_THAT(parse_csv_text("a\n1.5\n").numeric("a"), ElementsAre(1.5));
  std::setlocale(LC_ALL, before.c_str());
}

TEST(Csv, AColumnThatTurnsToTextLateKeepsItsFirstRowsAsWritten) {
  const CsvTable table = parse_csv_text("a,b\n1.50,1\n007,2\nx,3\n4,y\n");
  EXPECT_THAT(table.text("a"), ElementsAre("1.50", "007", "x", "4"));
  EXPECT_THAT(table.text("b"), ElementsAre("1", "2", "3", "y"));
  EXPECT_EQ(table.column(0).first_text.line, 4);
  EXPECT_EQ(table.column(1).first_text.line, 5);
}

TEST(Csv, InfinityIsAWordInAColumnOfText) {
  EXPECT_THAT(parse_csv_text("a\ninf\nx\n").text("a"), ElementsAre("inf", "x"));
  EXPECT_THAT(parse_csv_text("a\nx\n1e999\n").text("a"), ElementsAre("x", "1e999"));
}

TEST(CsvMissing, KeepNanMarksNumbersAndEmptiesText) {
  const CsvTable table = parse_csv_text("a,b\n1,x\n,NA\n?,\"\"\n4,y\n", {.missing = Missing::keep_nan});
  EXPECT_THAT(table.numeric("a"), ElementsAre(1, IsNan(), IsNan(), 4));
  EXPECT_THAT(table.text("b"), ElementsAre("x", "", "", "y"));
}

TEST(CsvMissing, KeepNanWorksWhenTheFirstRowsMissTheValue) {
  const CsvTable table = parse_csv_text("a,b,c\n,,\n,x,\n1,y,\n", {.missing = Missing::keep_nan});
  EXPECT_THAT(table.numeric("a"), ElementsAre(IsNan(), IsNan(), 1));
  EXPECT_THAT(table.text("b"), ElementsAre("", "x", "y"));
  EXPECT_THAT(table.numeric("c"), ElementsAre(IsNan(), IsNan(), IsNan()));
}

TEST(CsvMissing, DropRowLeavesOutTheWholeRow) {
  const CsvTable table = parse_csv_text("a,b\n,x\n1,y\n2,\n3,z\n", {.missing = Missing::drop_row});
  EXPECT_THAT(table.numeric("a"), ElementsAre(1, 3));
  EXPECT_THAT(table.text("b"), ElementsAre("y", "z"));
  EXPECT_EQ(table.num_dropped_rows(), 2);
  EXPECT_EQ(table.line_of_row(0), 3);
  EXPECT_EQ(table.line_of_row(1), 5);
}

TEST(CsvMissing, DroppedRowsDoNotDecideTheTypeOfAColumn) {
  EXPECT_TRUE(parse_csv_text("a,b\n1,2\nx,\n3,4\n", {.missing = Missing::drop_row}).is_numeric("a"));
}

TEST(CsvMissing, NamesAreAnOption) {
  const CsvTable table =
      parse_csv_text("a,b\n-999,NA\n1,x\n", {.missing = Missing::keep_nan, .missing_names = {"-999"}});
  EXPECT_THAT(table.numeric("a"), ElementsAre(IsNan(), 1));
  EXPECT_THAT(table.text("b"), ElementsAre("NA", "x"));
}

TEST(CsvMissing, BlankLineInAOneColumnFileIsAMissingValue) {
  EXPECT_THAT(parse_csv_text("a\n1\n\n2\n", {.missing = Missing::keep_nan}).numeric("a"), ElementsAre(1, IsNan(), 2));
}

TEST(Csv, ReadsFilesPlainOrPacked) {
  const TempDir dir;
  EXPECT_THAT(read_csv(dir.write("a.csv", "a\n1\n")).numeric("a"), ElementsAre(1));
  EXPECT_THAT(read_csv(dir.write("b.csv", test::gzip("a\n1\n"))).numeric("a"), ElementsAre(1));
}

TEST(Csv, ATableCanBeMoved) {
  CsvTable table = parse_csv_text("a\n1\n");
  const CsvTable moved = std::move(table);
  EXPECT_THAT(moved.numeric("a"), ElementsAre(1));
}

TEST(CsvOneHot, CategoriesAreSorted) {
  const OneHot kinds = one_hot(parse_csv_text("kind\npear\napple\npear\nfig\n"), "kind");
  EXPECT_THAT(kinds.categories, ElementsAre("apple", "fig", "pear"));
  EXPECT_THAT(kinds.indices, ElementsAre(2, 0, 2, 1));
}

TEST(CsvOneHot, AMissingTextIsACategoryOfItsOwn) {
  const OneHot kinds = one_hot(parse_csv_text("kind,n\nb,1\n,2\n", {.missing = Missing::keep_nan}), "kind");
  EXPECT_THAT(kinds.categories, ElementsAre("", "b"));
  EXPECT_THAT(kinds.indices, ElementsAre(1, 0));
}

TEST(Csv, NumbersTooSmallForADoubleAreZero) {
  const CsvTable table = parse_csv_text("a\n1e-400\n-1e-5000\n2\n", {});
  EXPECT_EQ(table.numeric("a")[0], 0);
  EXPECT_EQ(table.numeric("a")[1], 0);
  EXPECT_EQ(table.numeric("a")[2], 2);
}

TEST(Csv, WhatOtherProgramsWriteForAMissingNumberIsMissing) {
  const CsvTable table = parse_csv_text("a,b\n1,2\n#N/A,3\nNone,4\nn/a,5\n<NA>,6\n", {.missing = Missing::keep_nan});
  EXPECT_TRUE(table.is_numeric("a"));
  EXPECT_TRUE(std::isnan(table.numeric("a")[1]) && std::isnan(table.numeric("a")[4]));
}

}  // namespace
}  // namespace tandem
