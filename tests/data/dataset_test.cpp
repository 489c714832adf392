#include <tandem/data/dataset.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/data/loader.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

namespace tandem {
namespace {

using data::Example;
using data::random_split;
using data::TensorDataset;
using test::message_of;

using Indices = std::vector<std::int64_t>;
using Values = std::vector<double>;

TensorDataset numbers(std::int64_t rows) {
  return {arange(0, static_cast<double>(2 * rows), 1).reshape({rows, 2}), arange(rows)};
}

TEST(TensorDataset, HasRows) {
  const TensorDataset dataset = numbers(4);
  EXPECT_EQ(dataset.size(), 4);
  const auto [x, y] = dataset.get(2);
  EXPECT_EQ(x.to_vector<double>(), (Values{4, 5}));
  EXPECT_EQ(y.item<std::int64_t>(), 2);
  EXPECT_EQ(y.dim(), 0);
}

TEST(TensorDataset, GetsABatchAtOnceJustAsOneByOne) {
  const TensorDataset dataset = numbers(5);
  const Indices rows{3, 0, 3, 4};
  const Example fast = dataset.get_batch(rows);
  const Example slow = dataset.Dataset::get_batch(rows);
  EXPECT_EQ(fast.x.shape(), (Shape{4, 2}));
  EXPECT_EQ(fast.x.to_vector<double>(), slow.x.to_vector<double>());
  EXPECT_EQ(fast.y.to_vector<std::int64_t>(), rows);
  EXPECT_EQ(slow.y.to_vector<std::int64_t>(), rows);
  EXPECT_EQ(fast.x.dtype(), DType::f32);
  EXPECT_EQ(fast.y.dtype(), DType::i64);
}

TEST(TensorDataset, HandsOutCopiesWithoutHistory) {
  const Tensor x = zeros({3, 2}, {.requires_grad = true});
  const TensorDataset dataset(x, arange(3));
  const Indices rows{1};
  EXPECT_FALSE(dataset.get_batch(rows).x.requires_grad());
  Tensor batch = dataset.get_batch(rows).x;
  batch.fill_(7);
  EXPECT_EQ(x.to_vector<double>(), Values(6, 0.0));
}

TEST(TensorDataset, PartsMayBeOnDifferentDevices) {
  const TensorDataset dataset(numbers(4).x().to("cpu:1"), numbers(4).y());
  for (const Example& batch :
       {dataset.get_batch(Indices{1, 2}), dataset.subset(tensor({1, 2})).get_batch(Indices{0, 1})}) {
    EXPECT_EQ(batch.x.device(), Device("cpu:1"));
    EXPECT_EQ(batch.y.device(), dataset.y().device());
    EXPECT_EQ(batch.x.to_vector<double>(), (Values{2, 3, 4, 5}));
    EXPECT_EQ(batch.y.to_vector<std::int64_t>(), (Indices{1, 2}));
  }
}

TEST(TensorDataset, NeedNotBeDense) {
  const TensorDataset dataset(arange(8.0).reshape({2, 4}).t(), arange(8).slice(0, 0, 8, 2));
  const Example batch = dataset.get_batch(Indices{3, 0});
  EXPECT_EQ(batch.x.to_vector<double>(), (Values{3, 7, 0, 4}));
  EXPECT_EQ(batch.y.to_vector<std::int64_t>(), (Indices{6, 0}));
}

TEST(TensorDataset, SubsetIsACopyOfRows) {
  const TensorDataset part = numbers(5).subset(tensor({4, 1}));
  EXPECT_EQ(part.size(), 2);
  EXPECT_EQ(part.x().to_vector<double>(), (Values{8, 9, 2, 3}));
  EXPECT_EQ(part.y().to_vector<std::int64_t>(), (Indices{4, 1}));
}

TEST(TensorDataset, WrongRowsAreErrors) {
  EXPECT_EQ(message_of<ShapeError>([] { TensorDataset(zeros({3, 2}), arange(4)); }),
            "TensorDataset: x [3, 2] and y [4] must have the same number of rows");
  EXPECT_THROW(TensorDataset(zeros({}), zeros({})), ShapeError);
  EXPECT_THROW(TensorDataset(Tensor(), arange(4)), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([] { numbers(3).get_batch(Indices{0, 3}); }),
            "TensorDataset: there is no sample 3: expected 0 to 2");
  EXPECT_THROW(numbers(3).subset(tensor({-1})).x().to_vector<double>(), ValueError);
}

// ---- random_split ----

TEST(RandomSplit, PartsAreDisjointAndTogetherAll) {
  for (const std::int64_t size : {3, 10, 137}) {
    for (const double fraction : {0.2, 0.5, 0.7}) {
      const auto split = random_split(size, fraction, 3);
      Indices all = split.train.to_vector<std::int64_t>();
      const Indices test = split.test.to_vector<std::int64_t>();
      EXPECT_EQ(static_cast<std::int64_t>(test.size()), std::llround(static_cast<double>(size) * fraction));
      all.insert(all.end(), test.begin(), test.end());
      Indices expected(static_cast<std::size_t>(size));
      std::iota(expected.begin(), expected.end(), 0);
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all, expected);
      EXPECT_EQ(split.train.dtype(), DType::i64);
    }
  }
}

TEST(RandomSplit, DependsOnTheSeedAlone) {
  manual_seed(1);
  const Indices first = random_split(100, 0.3, 3).test.to_vector<std::int64_t>();
  const double after = rand({1}).item();
  manual_seed(1);
  EXPECT_EQ(rand({1}).item(), after) << "the caller's generator is left alone";
  EXPECT_EQ(random_split(100, 0.3, 3).test.to_vector<std::int64_t>(), first);
  EXPECT_NE(random_split(100, 0.3, 4).test.to_vector<std::int64_t>(), first);
}

TEST(RandomSplit, AnEmptyPartIsAnError) {
  EXPECT_EQ(
      message_of<ConfigError>([] { random_split(3, 0.1, 0); }),
      "random_split: test_fraction 0.1 leaves no rows of 3 for the test; it is a share of the rows, between 0 and 1");
  EXPECT_THROW(random_split(3, 0.9, 0), ConfigError);
  EXPECT_THROW(random_split(0, 0.5, 0), ConfigError);
  EXPECT_THROW(random_split(10, 0, 0), ConfigError);
  EXPECT_THROW(random_split(10, 1, 0), ConfigError);
  EXPECT_THROW(random_split(10, -1, 0), ConfigError);
  EXPECT_THROW(random_split(10, std::nan(""), 0), ConfigError);
}

TEST(TensorDataset, WithoutAnswers) {
  const data::TensorDataset rows(arange(6).reshape({3, 2}));
  EXPECT_EQ(rows.size(), 3);
  EXPECT_FALSE(rows.get(1).y.defined());
  data::DataLoader loader(rows, {.batch_size = 2, .device = "cpu:1"});
  for (const auto& [x, y] : loader) {
    EXPECT_EQ(x.device(), Device("cpu:1"));
    EXPECT_FALSE(y.defined());
  }
  EXPECT_FALSE(rows.subset(tensor({2, 0})).get(0).y.defined());
  EXPECT_THROW(rows.get(3), ConfigError);
  EXPECT_THROW(rows.get(-1), ConfigError);
}

}  // namespace
}  // namespace tandem
