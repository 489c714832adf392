#include <tandem/data/sampler.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "numbers.h"
#include "support/message.h"

namespace tandem {
namespace {

using data::DataLoader;
using data::Example;
using data::RandomSampler;
using data::Sampler;
using data::SequentialSampler;
using data::WeightedRandomSampler;
using test::count_to;
using test::epoch;
using test::Indices;
using test::kWorkers;
using test::message_of;
using test::Numbers;

Indices draw(const Sampler& sampler, std::uint64_t seed = 1) {
  Generator generator(seed);
  const GeneratorScope scope(generator);
  return sampler.indices();
}

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

// The number of draws of each of `size` indices.
std::vector<double> counts(const Indices& indices, std::int64_t size) {
  std::vector<double> result(static_cast<std::size_t>(size));
  for (const std::int64_t index : indices) {
    ++result.at(static_cast<std::size_t>(index));
  }
  return result;
}

TEST(SequentialSampler, CountsUp) {
  EXPECT_EQ(draw(SequentialSampler(Numbers(4))), count_to(4));
  EXPECT_EQ(SequentialSampler(Numbers(4)).size(), 4);
}

TEST(RandomSampler, IsAPermutationByDefault) {
  const RandomSampler sampler(Numbers(50));
  EXPECT_EQ(sampler.size(), 50);
  EXPECT_EQ(sorted(draw(sampler)), count_to(50));
  EXPECT_NE(draw(sampler, 1), draw(sampler, 2));
  EXPECT_EQ(draw(sampler, 1), draw(sampler, 1));
}

TEST(RandomSampler, WithoutReplacementGoesRoundAsOftenAsNeeded) {
  const Indices few = draw(RandomSampler(Numbers(10), {.num_samples = 4}));
  EXPECT_EQ(few.size(), 4U);
  EXPECT_EQ(std::ranges::max(counts(few, 10)), 1);

  const Indices many = draw(RandomSampler(Numbers(10), {.num_samples = 25}));
  ASSERT_EQ(many.size(), 25U);
  EXPECT_EQ(sorted({many.begin(), many.begin() + 10}), count_to(10));
  EXPECT_EQ(sorted({many.begin() + 10, many.begin() + 20}), count_to(10));
  EXPECT_EQ(std::ranges::max(counts({many.begin() + 20, many.end()}, 10)), 1);
}

TEST(RandomSampler, WithReplacementDrawsAllEquallyOften) {
  const Indices many = draw(RandomSampler(Numbers(10), {.replacement = true, .num_samples = 100'000}));
  for (const double count : counts(many, 10)) {
    EXPECT_NEAR(count, 10'000, 500);  // five standard deviations
  }
  EXPECT_EQ(draw(RandomSampler(Numbers(10), {.replacement = true})).size(), 10U);
}

TEST(WeightedRandomSampler, DrawsInProportionToTheWeights) {
  const std::vector<double> weights{0, 1, 0, 2, 5, 0};
  const std::vector<double> seen = counts(draw(WeightedRandomSampler(weights, 80'000)), 6);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_NEAR(seen[i], weights[i] * 10'000, weights[i] == 0 ? 0 : 750) << i;
  }
}

TEST(WeightedRandomSampler, WithoutReplacementTheFirstDrawIsInProportionToo) {
  const std::vector<double> weights{0, 1, 0, 2, 5};
  const WeightedRandomSampler sampler(weights, 3, false);
  std::vector<double> first(5);
  for (std::uint64_t seed = 0; seed < 8000; ++seed) {
    const Indices drawn = draw(sampler, seed);
    EXPECT_EQ(sorted(drawn), (Indices{1, 3, 4}));
    ++first[static_cast<std::size_t>(drawn[0])];
  }
  EXPECT_NEAR(first[1], 1000, 150);
  EXPECT_NEAR(first[3], 2000, 200);
  EXPECT_NEAR(first[4], 5000, 220);
}

TEST(WeightedRandomSampler, CopesWithExtremeWeights) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(draw(WeightedRandomSampler({0, tiny, 0}, 3)), (Indices{1, 1, 1}));
  EXPECT_EQ(draw(WeightedRandomSampler({tiny, 1e300, 0}, 2)), (Indices{1, 1}));
  EXPECT_EQ(sorted(draw(WeightedRandomSampler({tiny, 1e300, 0}, 2, false))), (Indices{0, 1}));
  EXPECT_EQ(draw(WeightedRandomSampler({3}, 2)), (Indices{0, 0}));
}

TEST(Samplers, WrongArgumentsAreErrors) {
  const auto text = [](const std::vector<double>& weights, std::int64_t num_samples, bool replacement = true) {
    return message_of<ConfigError>([&] { WeightedRandomSampler(weights, num_samples, replacement); });
  };
  EXPECT_EQ(text({1, -1}, 1), "WeightedRandomSampler: weight -1 of sample 1; expected a finite number from 0 on");
  EXPECT_EQ(text({NAN}, 1), "WeightedRandomSampler: weight nan of sample 0; expected a finite number from 0 on");
  EXPECT_EQ(text({INFINITY}, 1), "WeightedRandomSampler: weight inf of sample 0; expected a finite number from 0 on");
  EXPECT_EQ(text({0, 0}, 1), "WeightedRandomSampler: none of the 2 weights is above 0");
  EXPECT_EQ(text({}, 1), "WeightedRandomSampler: none of the 0 weights is above 0");
  EXPECT_EQ(text({1e308, 1e308}, 1), "WeightedRandomSampler: the sum of the weights is not finite; scale them down");
  EXPECT_EQ(text({1, 0, 1}, 3, false),
            "WeightedRandomSampler: 3 samples without replacement, but only 2 of the 3 weights are above 0");
  EXPECT_EQ(text({1}, 0),
            "WeightedRandomSampler: num_samples should be a positive integer value, but got num_samples=0");
  EXPECT_EQ(message_of<ConfigError>([] { RandomSampler(Numbers(2), {.num_samples = -1}); }),
            "RandomSampler: num_samples should be a positive integer value, but got num_samples=-1");
  EXPECT_EQ(message_of<ConfigError>([] { RandomSampler(Numbers(0)); }), "RandomSampler: the data set is empty");
}

// ---- in a loader ----

TEST(DataLoaderSampler, ARandomSamplerIsWhatShuffleDoes) {
  const Numbers dataset(30);
  DataLoader shuffled(dataset, {.batch_size = 4, .shuffle = true, .seed = 7});
  DataLoader sampled(dataset, {.batch_size = 4, .sampler = std::make_shared<RandomSampler>(dataset), .seed = 7});
  DataLoader in_order(dataset, {.sampler = std::make_shared<SequentialSampler>(dataset)});
  EXPECT_EQ(epoch(shuffled), epoch(sampled));
  EXPECT_EQ(epoch(shuffled), epoch(sampled));
  EXPECT_EQ(epoch(in_order), count_to(30));
}

TEST(DataLoaderSampler, TheOrderIsAFunctionOfSeedAndEpochForAnyNumberOfWorkers) {
  const Numbers dataset(20);
  const auto sampler = std::make_shared<WeightedRandomSampler>(std::vector<double>(20, 0.3), 37);
  DataLoader reference(dataset, {.batch_size = 5, .sampler = sampler, .seed = 3});
  const Indices first = epoch(reference);
  const Indices second = epoch(reference);
  EXPECT_EQ(first.size(), 37U);
  EXPECT_NE(first, second);
  for (const int workers : kWorkers) {
    manual_seed(static_cast<std::uint64_t>(workers));
    DataLoader loader(dataset, {.batch_size = 5, .sampler = sampler, .num_workers = workers, .seed = 3});
    EXPECT_EQ(loader.size(), 8);
    EXPECT_EQ(epoch(loader), first);
    EXPECT_EQ(epoch(loader), second);
    loader.set_epoch(0);
    EXPECT_EQ(epoch(loader), first);
  }
}

TEST(DataLoaderSampler, DropLastCountsTheSamplersSamples) {
  const Numbers dataset(4);
  const auto sampler = std::make_shared<RandomSampler>(dataset, data::RandomSamplerOptions{.num_samples = 11});
  DataLoader loader(dataset, {.batch_size = 3, .sampler = sampler, .drop_last = true});
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(epoch(loader).size(), 9U);
}

// ---- collate_fn ----

TEST(DataLoaderCollate, MakesTheBatch) {
  // Sequences of different lengths, padded with -1.
  struct Ragged : data::Dataset {
    std::int64_t size() const override { return 4; }
    Example get(std::int64_t index) const override { return {arange(index + 1), full({}, index)}; }
  };
  const auto pad = [](std::span<const Example> samples) {
    std::int64_t longest = 0;
    for (const Example& sample : samples) {
      longest = std::max(longest, sample.x.size(0));
    }
    std::vector<Example> padded;
    for (const Example& sample : samples) {
      const Tensor x = full({longest}, -1);
      x.narrow(0, 0, sample.x.size(0)).copy_(sample.x);
      padded.push_back({x, sample.y});
    }
    return data::default_collate(padded);
  };
  for (const int workers : kWorkers) {
    DataLoader loader(Ragged(), {.batch_size = 2, .num_workers = workers, .collate_fn = pad});
    std::vector<Indices> batches;
    for (const auto& [x, y] : loader) {
      batches.push_back(x.to_vector<std::int64_t>());
    }
    EXPECT_EQ(batches, (std::vector<Indices>{{0, -1, 0, 1}, {0, 1, 2, -1, 0, 1, 2, 3}}));
  }
}

TEST(DataLoaderCollate, MayLeaveTargetsOut) {
  DataLoader loader(Numbers(2), {.batch_size = 2,
                                 .collate_fn = [](std::span<const Example> s) { return Example{s[0].x, {}}; },
                                 .device = "cpu:1"});
  for (const auto& [x, y] : loader) {
    EXPECT_EQ(x.device(), Device("cpu:1"));
    EXPECT_FALSE(y.defined());
  }
}

TEST(DefaultCollate, NamesSamplesByTheirPlaces) {
  const std::vector<Example> samples{{zeros({2}), zeros({})}, {zeros({3}), zeros({})}};
  EXPECT_EQ(message_of<ShapeError>([&] { data::default_collate(samples); }),
            "DataLoader: the samples of a batch must be of one kind, got f32 [2] (sample 0) and f32 [3] (sample 1)");
  EXPECT_EQ(message_of<ConfigError>([] { data::default_collate({}); }),
            "default_collate: there are no samples to make a batch of");
}

}  // namespace
}  // namespace tandem
