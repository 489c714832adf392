#include <tandem/data/dataset.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "numbers.h"
#include "support/message.h"

namespace tandem {
namespace {

using data::DataLoader;
using data::Dataset;
using data::random_split;
using data::Subset;
using test::count_to;
using test::epoch;
using test::Faulty;
using test::Indices;
using test::message_of;
using test::Numbers;

std::vector<std::int64_t> sizes(const std::vector<Subset>& parts) {
  std::vector<std::int64_t> result;
  for (const Subset& part : parts) {
    result.push_back(part.size());
  }
  return result;
}

TEST(Subset, HasTheSamplesInItsOwnOrder) {
  const Numbers numbers(10);
  const Subset subset(numbers, {7, 2, 2});
  EXPECT_EQ(subset.size(), 3);
  EXPECT_EQ(subset.get(0).y.item<std::int64_t>(), 7);
  DataLoader loader(subset, {.batch_size = 2});
  EXPECT_EQ(epoch(loader), (Indices{7, 2, 2}));
  EXPECT_EQ(&subset.dataset(), &numbers);
  EXPECT_EQ(subset.indices(), (Indices{7, 2, 2}));
}

TEST(Subset, KeepsATemporaryAndWhatIsShared) {
  const Subset of_temporary(Numbers(5), {4});
  EXPECT_EQ(of_temporary.get(0).y.item<std::int64_t>(), 4);
  auto shared = std::make_shared<Numbers>(5);
  const Subset of_shared(shared, {3});
  shared.reset();
  EXPECT_EQ(of_shared.get(0).y.item<std::int64_t>(), 3);
  const Subset nested(Subset(Numbers(5), {4, 3, 2}), {1});
  EXPECT_EQ(nested.get(0).y.item<std::int64_t>(), 3);
}

TEST(Subset, ErrorsCountAsTheDataSetBehindDoes) {
  const Subset subset(Faulty(10, {7}), {1, 7});
  EXPECT_EQ(message_of<ValueError>([&] { subset.get_batch(Indices{0, 1}); }),
            "the sample is broken\n  while loading sample 7");
  EXPECT_EQ(message_of<ValueError>([&] { subset.load(1); }),
            "the sample is broken\n  while loading sample 7 of the data set behind the Subset\n  while loading sample "
            "1");
  EXPECT_EQ(message_of<ConfigError>([] { Subset(Numbers(3), {0, 3}); }),
            "Subset: index 3 is outside the data set, which has 3 samples");
  EXPECT_EQ(message_of<ConfigError>([] { Subset(std::shared_ptr<const Dataset>(), {}); }),
            "the data set is a null pointer");
}

TEST(RandomSplitOfADataSet, PartsAreDisjointAndTogetherAll) {
  const Numbers numbers(10);
  const std::vector<Subset> parts = random_split(numbers, {5, 0, 3, 2}, 1);
  EXPECT_EQ(sizes(parts), (Indices{5, 0, 3, 2}));
  Indices all;
  for (const Subset& part : parts) {
    all.insert(all.end(), part.indices().begin(), part.indices().end());
  }
  EXPECT_NE(all, count_to(10));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, count_to(10));
}

TEST(RandomSplitOfADataSet, FractionsAreThoseOfPyTorch) {
  EXPECT_EQ(sizes(random_split(Numbers(10), {0.3, 0.3, 0.4}, 1)), (Indices{3, 3, 4}));
  EXPECT_EQ(sizes(random_split(Numbers(11), {0.3, 0.3, 0.4}, 1)), (Indices{4, 3, 4}));
  EXPECT_EQ(sizes(random_split(Numbers(3), {0.25, 0.25, 0.25, 0.25}, 1)), (Indices{1, 1, 1, 0}));
  EXPECT_EQ(sizes(random_split(Numbers(7), {1.0})), (Indices{7}));
}

TEST(RandomSplitOfADataSet, DependsOnTheSeedOrTheCurrentGenerator) {
  const Numbers numbers(50);
  const auto first = [&](std::optional<std::uint64_t> seed) {
    return random_split(numbers, {25, 25}, seed)[0].indices();
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
  manual_seed(4);
  const Indices drawn = first({});
  EXPECT_NE(first({}), drawn);
  manual_seed(4);
  EXPECT_EQ(first({}), drawn);
}

TEST(RandomSplitOfADataSet, LengthsMustAddUp) {
  const Numbers numbers(10);
  EXPECT_EQ(message_of<ConfigError>([&] { random_split(numbers, {5, 4}); }),
            "random_split: lengths [5, 4] do not add up to the 10 samples of the data set");
  EXPECT_THROW(random_split(numbers, {5, 6}), ConfigError);
  EXPECT_THROW(random_split(numbers, {11, -1}), ConfigError);
  EXPECT_THROW(random_split(numbers, {INT64_MAX, INT64_MAX, std::int64_t{12}}), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([&] { random_split(numbers, {0.5, 0.4}); }),
            "random_split: fractions [0.5, 0.4] must be from 0 to 1 and add up to 1");
  EXPECT_THROW(random_split(numbers, {1.5, -0.5}), ConfigError);
  EXPECT_THROW(random_split(numbers, {std::nan("")}), ConfigError);
}

TEST(Subset, AnIndexThatIsNotThereIsAnErrorLikeThatOfOtherDataSets) {
  const Subset subset(Numbers(10), {1, 7});
  EXPECT_EQ(message_of<ConfigError>([&] { subset.get(2); }), "Subset: there is no sample 2: expected 0 to 1");
  EXPECT_EQ(message_of<ConfigError>([&] { subset.get_batch(Indices{0, -1}); }),
            "Subset: there is no sample -1: expected 0 to 1");
  EXPECT_EQ(message_of<ConfigError>([&] { Subset(Numbers(3), {}).get(0); }),
            "Subset: there is no sample 0: the data set is empty");
}

}  // namespace
}  // namespace tandem
