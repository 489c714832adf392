#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/data/csv.h>
#include <tandem/data/idx.h>

#include "files.h"

namespace tandem {
namespace {

using data::CsvTable;
using data::Missing;
using data::one_hot;
using data::read_csv;
using data::read_idx;
using testing::ElementsAre;

std::string bundled(const std::string& name) { return std::string(TANDEM_SOURCE_DIR) + "/examples/data/" + name; }

// Too large for the repository; used if the files were placed next to it.
std::string mnist(const std::string& name) { return std::string(TANDEM_SOURCE_DIR) + "/../shared/data/" + name; }

TEST(BundledFiles, HousingHasItsRowsAndColumns) {
  const CsvTable table = read_csv(bundled("housing.csv.gz"), {.missing = Missing::keep_nan});
  EXPECT_EQ(table.num_rows(), 20640);
  EXPECT_EQ(table.num_columns(), 10);
  EXPECT_EQ(table.column_names().back(), "ocean_proximity");
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(table.is_numeric(i));
  }
  int missing = 0;
  for (const double value : table.numeric("total_bedrooms")) {
    missing += std::isnan(value) ? 1 : 0;
  }
  EXPECT_EQ(missing, 207);
  EXPECT_EQ(table.numeric("median_house_value")[0], 452600);
  EXPECT_THAT(one_hot(table, "ocean_proximity").categories,
              ElementsAre("<1H OCEAN", "INLAND", "ISLAND", "NEAR BAY", "NEAR OCEAN"));
}

TEST(BundledFiles, HousingRowsThatMissAValueCanBeDropped) {
  const CsvTable table = read_csv(bundled("housing.csv.gz"), {.missing = Missing::drop_row});
  EXPECT_EQ(table.num_rows(), 20640 - 207);
  EXPECT_EQ(table.num_dropped_rows(), 207);
}

TEST(BundledFiles, HousingSaysWhereItsFirstMissingValueIs) {
  const std::string path = bundled("housing.csv.gz");
  EXPECT_EQ(test::message_of<IoError>([&] { read_csv(path); }),
            path +
                ":292:27: column 'total_bedrooms' has no value here (found ''); set CsvOptions::missing to drop_row "
                "or keep_nan");
}

TEST(BundledFiles, DigitsAreNumbersWithoutAHeader) {
  for (const auto& [name, rows] : {std::pair{"optdigits.tra.gz", 3823}, std::pair{"optdigits.tes.gz", 1797}}) {
    const CsvTable table = read_csv(bundled(name));
    EXPECT_EQ(table.num_rows(), rows);
    ASSERT_EQ(table.num_columns(), 65);
    for (std::size_t i = 0; i < 65; ++i) {
      const auto values = table.numeric(i);
      EXPECT_GE(*std::min_element(values.begin(), values.end()), 0);
      EXPECT_LE(*std::max_element(values.begin(), values.end()), i < 64 ? 16 : 9);
    }
  }
}

TEST(MnistFiles, TestImagesAndLabels) {
  const std::string images_path = mnist("t10k-images-idx3-ubyte.gz");
  if (!std::filesystem::exists(images_path)) {
    GTEST_SKIP() << "no " << images_path;
  }
  const data::IdxArray images = read_idx(images_path);
  EXPECT_EQ(images.dtype, DType::u8);
  EXPECT_THAT(images.sizes, ElementsAre(10000, 28, 28));
  EXPECT_EQ(images.bytes.size(), 7840000U);
  const data::IdxArray labels = read_idx(mnist("t10k-labels-idx1-ubyte.gz"));
  EXPECT_THAT(labels.sizes, ElementsAre(10000));
  EXPECT_EQ(std::vector<std::uint8_t>(labels.bytes.begin(), labels.bytes.begin() + 5),
            (std::vector<std::uint8_t>{7, 2, 1, 0, 4}));
}

}  // namespace
}  // namespace tandem
