#include <tandem/data/categories.h>

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/data/csv.h>

#include "files.h"

namespace tandem {
namespace {

using data::Categories;
using data::CsvOptions;
using data::CsvTable;
using data::Missing;
using data::OneHot;
using data::parse_csv;
using data::Unseen;
using test::message_of;
using test::parse_csv_text;
using testing::ElementsAre;

const CsvTable& sizes() {
  static const CsvTable table = parse_csv_text("size,n\nlarge,1\nsmall,2\nhuge,3\nsmall,4\n");
  return table;
}

TEST(Categories, KeepTheOrderThatIsStated) {
  const Categories order({"small", "medium", "large"}, Unseen::ignore);
  const OneHot column = order.encode(sizes(), "size");
  EXPECT_THAT(column.categories, ElementsAre("small", "medium", "large"));
  EXPECT_THAT(column.indices, ElementsAre(2, 0, -1, 0));
  EXPECT_THAT(data::to_tensor(column).to_vector<int>(), ElementsAre(0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0));
}

TEST(Categories, UnseenTextsAreAnErrorByDefault) {
  EXPECT_EQ(message_of<IoError>([] { Categories({"small", "large"}).encode(sizes(), "size"); }),
            "a.csv:4: column 'size': 'huge' is none of the categories 'small', 'large'; add it, or set Unseen::ignore "
            "or Unseen::other");
}

TEST(Categories, UnseenTextsCanBeACategoryOfTheirOwn) {
  const Categories kinds({"small", "large"}, Unseen::other);
  EXPECT_EQ(kinds.size(), 3);
  const OneHot column = kinds.encode(sizes(), "size");
  EXPECT_THAT(column.categories, ElementsAre("small", "large", "(other)"));
  EXPECT_THAT(column.indices, ElementsAre(1, 0, 2, 0));
}

TEST(Categories, AreFittedOnTheRowsGiven) {
  const std::vector<std::int64_t> train{1, 3, 0};
  const auto kinds = Categories::of(sizes(), "size", train);
  EXPECT_THAT(kinds.names(), ElementsAre("large", "small"));
  EXPECT_THROW(kinds.encode(sizes(), "size"), IoError);
  EXPECT_THAT(Categories::of(sizes(), "size").names(), ElementsAre("huge", "large", "small"));
  EXPECT_THAT(Categories::of(sizes(), "size").encode(sizes(), "size").indices, ElementsAre(1, 2, 0, 2));
}

TEST(Categories, AMissingTextIsOneLikeOthers) {
  const CsvTable table = parse_csv_text("kind,n\nb,1\n,2\n", {.missing = Missing::keep_nan});
  EXPECT_THAT(Categories::of(table, "kind").names(), ElementsAre("", "b"));
  EXPECT_THAT(Categories({"b"}, Unseen::ignore).encode(table, "kind").indices, ElementsAre(0, -1));
}

TEST(Categories, NumbersCanBeTakenAsText) {
  const CsvTable table = parse_csv_text("zip,n\n01234,1\n1234,2\n", {.text_columns = {"zip"}});
  EXPECT_FALSE(table.is_numeric("zip"));
  EXPECT_TRUE(table.is_numeric("n"));
  EXPECT_THAT(Categories::of(table, "zip").names(), ElementsAre("01234", "1234"));
  EXPECT_THAT(parse_csv_text("1,2\n3,x\n", {.header = data::Header::no, .text_columns = {"column_0"}}).text(0),
              ElementsAre("1", "3"));
  EXPECT_EQ(message_of<IoError>([&] { table.numeric("zip"); }),
            "a.csv:2:1: column 'zip' holds text where numbers are due: '01234'");
  EXPECT_EQ(message_of<ConfigError>([] { parse_csv_text("a,b\n1,2\n", {.text_columns = {"c"}}); }),
            "a.csv: CsvOptions::text_columns: there is no column 'c'");
}

TEST(Categories, WrongUseIsAnError) {
  EXPECT_EQ(message_of<ConfigError>([] { Categories({}); }), "Categories: expected at least one name");
  EXPECT_EQ(message_of<ConfigError>([] { Categories({"a", "b", "a"}); }), "Categories: the name 'a' is used twice");
  EXPECT_EQ(
      message_of<ConfigError>([] { Categories::of(sizes(), "n"); }),
      "a.csv: column 'n' holds numbers, not text; read it with numeric(), or name it in CsvOptions::text_columns");
  EXPECT_EQ(message_of<ConfigError>([] { Categories::of(sizes(), "size", std::vector<std::int64_t>{4}); }),
            "a.csv: there is no row 4; rows are 0 to 3");
  EXPECT_EQ(message_of<IoError>([] { Categories::of(sizes(), "size", {.max_categories = 2}); }),
            "a.csv: column 'size' has more than 2 different texts, too many for one-hot; the first text is 'large' in "
            "line 2, column 1");
}

TEST(Categories, TheNameOfTheOthersIsTakenWhereThereAreOthers) {
  EXPECT_EQ(message_of<ConfigError>([] { Categories({"a", "(other)"}, Unseen::other); }),
            "Categories: the name '(other)' is used twice: Unseen::other adds it for all other texts");
  EXPECT_EQ(Categories({"a", "(other)"}).size(), 2);
}

}  // namespace
}  // namespace tandem
