#include "samples.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Tests of regression --data FILE --target COLUMN with the user's tables, valid and damaged.

namespace example {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class RegressionData : public Samples {
 protected:
  Outcome train(const std::string& csv, const Arguments& more = {}) const {
    write("t.csv", csv);
    return regression(
        with({"--data", "t.csv", "--target", "price", "--epochs", "2", "--hidden", "8", "--batch-size", "4"}, more));
  }
  void expect_refused(const std::string& csv, const std::string& text) const {
    SCOPED_TRACE(csv);
    expect_error(train(csv, {"--quiet"}), text);
  }
};

// Writes a table with price = 3 size + 1 and another column, whose values `value` gives.
std::string table(const std::string& name, const std::string (*value)(int row), int rows = 40) {
  std::string csv = "price,size," + name + "\n";
  for (int row = 0; row < rows; ++row) {
    csv += fmt::format("{},{},{}\n", 3 * row + 1, row, value(row));
  }
  return csv;
}

TEST_F(RegressionData, UsersTableTrains) {
  const Outcome outcome = train(table("town", [](int row) -> const std::string { return row % 2 == 0 ? "Rome" : ""; }),
                                {"--json", "--epochs", "200", "--lr", "0.01"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("t.csv: 32 rows to train, 8 to test; predicting 'price'\n"
                                     "taken as categories: 'town' (2)\n"));
  const Record result = parse_record(lines_of(outcome.out).back());
  EXPECT_LT(result.number("test_rmse"), 10.0) << "the deviation of the prices is 35";
  EXPECT_LT(result.number("baseline_rmse"), 0.01) << "prices are a linear function";
  EXPECT_THAT(lines_of(outcome.out)[0], MatchesRegex("test RMSE: [0-9.]+  \\(linear least squares: [0-9.e-]+; .*"))
      << "small errors are not shown as 0";
}

TEST_F(RegressionData, ConstantColumnsDoNoHarm) {
  const Outcome outcome = train(table("same", [](int) -> const std::string { return "7"; }), {"--json", "--quiet"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GE(parse_record(lines_of(outcome.out).back()).number("test_rmse"), 0);
  EXPECT_EQ(train("size,price\n1,2\n2,2\n3,2\n4,2\n5,2\n6,2\n", {"--quiet"}).exit_code, 0) << "a constant target";
}

TEST_F(RegressionData, MissingNumbersAreFilledIn) {
  const Outcome outcome =
      train(table("rooms", [](int row) -> const std::string { return row % 3 == 0 ? "" : "4"; }), {"--quiet"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(RegressionData, ColumnWithoutAnyValueIsNamed) {
  expect_refused(table("rooms", [](int) -> const std::string { return ""; }),
                 "t.csv: column 'rooms' has no value in the training part; remove the column");
}

TEST_F(RegressionData, FileThatIsNotThereOrIsNone) {
  const Outcome outcome = regression({"--data", "no.csv", "--target", "price"});
  expect_error(outcome, "cannot open 'no.csv': No such file or directory (current directory: " + dir_.path() + ")");
  expect_error(regression({"--data", ".", "--target", "price"}), ".: this is a directory, expected a file");
  expect_refused("", "t.csv: the file is empty");
}

TEST_F(RegressionData, RaggedRowIsNamedWithItsLine) {
  expect_refused("price,size\n1,2\n3\n", "t.csv:3:2: expected 2 fields as in line 1, found 1: '3'");
  expect_refused("price,size\n1,2\n3,4,5\n", "t.csv:3:5: expected 2 fields as in line 1, found 3: '3,4,5'");
}

TEST_F(RegressionData, TextInTheTargetIsNamedWithItsPlace) {
  expect_refused("size,price\n1,2\n3,cheap\n5,6\n",
                 "t.csv:3:3: column 'price' holds text where numbers are due: 'cheap'");
}

TEST_F(RegressionData, MissingTargetValueIsNamedWithItsLine) {
  expect_refused("size,price\n1,2\n3,\n5,6\n", "t.csv:3: the target 'price' is missing; fill it in or remove the row");
}

TEST_F(RegressionData, MissingTargetColumnIsNamed) {
  expect_refused("size,prise\n1,2\n",
                 "t.csv: there is no column 'price' (did you mean 'prise'?); the columns are "
                 "'size', 'prise'");
  expect_refused("a,b\n1,2\n", "t.csv: there is no column 'price'; the columns are 'a', 'b'");
}

TEST_F(RegressionData, TooLittleToLearnFrom) {
  expect_refused("price,size\n", "t.csv: there is a header, but no rows follow");
  expect_refused("price\n1\n2\n3\n4\n5\n", "t.csv: there is no column but the target 'price' to predict it from");
  expect_refused("price,size\n1,2\n3,4\n", "t.csv: too few rows (2): a fifth is kept for testing; expected 5 or more");
  expect_error(train("price,size\n1,2\n3,4\n5,6\n7,8\n9,1\n", {"--batch-size", "5"}),
               "--batch-size 5 is larger than the training part (4 samples); choose at most that");
}

TEST_F(RegressionData, NumbersBeyondReachAreNamedWithTheirLine) {
  expect_refused("price,size\n1,2\n1e300,4\n",
                 "t.csv:3: column 'price': 1e+300 is too large, at most 1e+18 can be "
                 "computed with");
  expect_refused("price,size\n1,2\n1,-1e19\n",
                 "t.csv:3: column 'size': -1e+19 is too large, at most 1e+18 can be "
                 "computed with");
  expect_refused("price,size\n1,2\n1,inf\n",
                 "t.csv:3:3: 'inf' in column 'size' is infinite or does not fit into a double");
}

}  // namespace
}  // namespace example
