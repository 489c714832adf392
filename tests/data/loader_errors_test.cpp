#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/data/dataset.h>

#include "numbers.h"
#include "support/message.h"

// Loaders whose data sets throw, whose options are wrong, or whose batches are never read.

namespace tandem {
namespace {

using data::DataLoader;
using data::DataLoaderOptions;
using data::Dataset;
using data::Example;
using test::count_to;
using test::epoch;
using test::Faulty;
using test::Indices;
using test::kWorkers;
using test::message_of;
using test::Numbers;

TEST(DataLoaderErrors, ErrorsArriveAtTheirBatchWithTheSamplesIndex) {
  for (const int workers : kWorkers) {
    Faulty dataset(20, {13});
    DataLoader loader(dataset, {.batch_size = 4, .num_workers = workers});
    Indices seen;
    EXPECT_EQ(message_of<ValueError>([&] {
                for (const auto& [x, y] : loader)
                  seen.push_back(y.to_vector<std::int64_t>()[0]);
              }),
              "the sample is broken\n  while loading sample 13");
    EXPECT_EQ(seen, (Indices{0, 4, 8})) << "what comes before is delivered first";
    dataset.repair();
    EXPECT_EQ(epoch(loader), count_to(20)) << "and the loader goes on";
  }
}

TEST(DataLoaderErrors, AFirstBatchThatFailsThrowsFromBegin) {
  for (const int workers : kWorkers) {
    DataLoader loader(Faulty(20, {0}), {.batch_size = 4, .num_workers = workers});
    EXPECT_THROW(loader.begin(), ValueError);
  }
}

TEST(DataLoaderErrors, AnIteratorMaySkipABatchThatFailed) {
  for (const int workers : kWorkers) {
    DataLoader loader(Faulty(12, {5, 6, 9}), {.batch_size = 3, .num_workers = workers});
    Indices seen;
    int failures = 0;
    auto it = loader.begin();
    while (it != std::default_sentinel) {
      seen.push_back((*it).y.to_vector<std::int64_t>()[0]);
      for (bool again = true; again;) {
        try {
          ++it;
          again = false;
        } catch (const ValueError&) {
          ++failures;
        }
      }
    }
    EXPECT_EQ(seen, (Indices{0}));
    EXPECT_EQ(failures, 3);
  }
}

// The text of the tandem::Error that an epoch throws; `original` receives the nested exception.
std::string nested_error(DataLoader& loader, std::exception_ptr& original) {
  try {
    epoch(loader);
  } catch (const Error& error) {
    try {
      std::rethrow_if_nested(error);
    } catch (...) {
      original = std::current_exception();
    }
    return error.what();
  }
  return "nothing was thrown";
}

TEST(DataLoaderErrors, OtherExceptionsArriveInsideATandemErrorWithTheSamplesIndex) {
  struct Rude : Numbers {
    using Numbers::Numbers;
    Example get(std::int64_t index) const override {
      if (index == 3) throw std::out_of_range("not one of tandem's");
      if (index == 5) throw 42;
      return Numbers::get(index);
    }
  };
  for (const int workers : kWorkers) {
    std::exception_ptr original;
    DataLoader loader(Rude(5), {.batch_size = 1, .num_workers = workers});
    EXPECT_EQ(nested_error(loader, original), "not one of tandem's\n  while loading sample 3");
    EXPECT_THROW(std::rethrow_exception(original), std::out_of_range);

    DataLoader number(data::Subset(Rude(6), {0, 5}), {.num_workers = workers});
    EXPECT_EQ(nested_error(number, original), "an exception that is no std::exception\n  while loading sample 5");
    EXPECT_THROW(std::rethrow_exception(original), int);
  }
}

TEST(DataLoaderErrors, ADataSetThatLoadsBatchesItsOwnWayIsNamedByTheBatch) {
  struct Batches : Numbers {
    using Numbers::Numbers;
    Example get_batch(std::span<const std::int64_t>) const override { throw std::runtime_error("no connection"); }
  };
  for (const int workers : kWorkers) {
    std::exception_ptr original;
    DataLoader loader(Batches(20), {.batch_size = 3, .num_workers = workers});
    EXPECT_EQ(nested_error(loader, original), "no connection\n  while loading samples 0, 1, 2");
    DataLoader large(Batches(20), {.batch_size = 12, .num_workers = workers});
    EXPECT_EQ(nested_error(large, original),
              "no connection\n  while loading samples 0, 1, 2, 3, 4, 5, 6, 7, ... (12 in all)");
    EXPECT_THROW(std::rethrow_exception(original), std::runtime_error);
  }
}

TEST(DataLoaderErrors, ACollateFunctionThatThrowsIsNamed) {
  for (const int workers : kWorkers) {
    DataLoader loader(Numbers(4), {.batch_size = 2,
                                   .num_workers = workers,
                                   .collate_fn = [](std::span<const Example>) -> Example { throw ValueError("odd"); }});
    EXPECT_EQ(message_of<ValueError>([&] { epoch(loader); }), "odd\n  while collating samples 0, 1");
    DataLoader broken(Faulty(4, {1}),
                      {.batch_size = 2, .num_workers = workers, .collate_fn = [](std::span<const Example> samples) {
                         return data::default_collate(samples);
                       }});
    EXPECT_EQ(message_of<ValueError>([&] { epoch(broken); }), "the sample is broken\n  while loading sample 1");
  }
}

TEST(DataLoaderErrors, SamplersMustFitTheDataSet) {
  struct Fixed : data::Sampler {
    Fixed(std::int64_t size, Indices indices) : size_(size), indices_(std::move(indices)) {}
    std::int64_t size() const override { return size_; }
    Indices indices() const override { return indices_; }
    std::int64_t size_;
    Indices indices_;
  };
  const Numbers dataset(4);
  const auto text = [&](std::int64_t size, const Indices& indices) {
    return message_of<ConfigError>([&] {
      DataLoader loader(dataset, {.sampler = std::make_shared<Fixed>(size, indices)});
      loader.begin();
    });
  };
  EXPECT_EQ(text(2, {0, 4}), "DataLoader: the sampler gave index 4, but the data set has 4 samples");
  EXPECT_EQ(text(1, {-1}), "DataLoader: the sampler gave index -1, but the data set has 4 samples");
  EXPECT_EQ(text(3, {0}), "DataLoader: the sampler gave 1 indices, expected 3 as its size() says");
  EXPECT_EQ(text(-1, {}), "DataLoader: the sampler's size() is -1");
  EXPECT_EQ(message_of<ConfigError>([&] {
              DataLoader(dataset, {.shuffle = true, .sampler = std::make_shared<data::RandomSampler>(dataset)});
            }),
            "DataLoader: sampler option is mutually exclusive with shuffle");
  EXPECT_EQ(message_of<ConfigError>(
                [&] { DataLoader(dataset, {.sampler = std::make_shared<data::RandomSampler>(Numbers(3))}); }),
            "DataLoader: the sampler was made for a data set of 3 samples, and this one has 4; give both the same");
  EXPECT_EQ(message_of<ConfigError>([&] {
              DataLoader(dataset,
                         {.batch_size = 3, .sampler = std::make_shared<Fixed>(2, Indices{0, 1}), .drop_last = true});
            }),
            "DataLoader: batch_size 3 is larger than the sampler's epoch (2 samples), so with drop_last there is no "
            "batch at all");
}

TEST(DataLoaderErrors, SamplesThatDoNotStackAreNamed) {
  struct Ragged : Dataset {
    std::int64_t size() const override { return 4; }
    Example get(std::int64_t index) const override { return {zeros({index == 2 ? 3 : 2}), zeros({})}; }
  };
  for (const int workers : kWorkers) {
    DataLoader loader(Ragged(), {.batch_size = 4, .num_workers = workers});
    EXPECT_EQ(message_of<ShapeError>([&] { loader.begin(); }),
              "DataLoader: the samples of a batch must be of one kind, got f32 [2] (sample 0) and f32 [3] (sample 2)");
  }
}

TEST(DataLoaderErrors, GoingBeyondTheEndIsAnError) {
  DataLoader loader(Numbers(2), {.batch_size = 2});
  auto it = loader.begin();
  ++it;
  ASSERT_TRUE(it == std::default_sentinel);
  EXPECT_FALSE((*it).x.defined());
  EXPECT_EQ(message_of<ConfigError>([&] { ++it; }),
            "DataLoader: the iterator is at its end; begin() starts the next epoch");
}

TEST(DataLoaderErrors, WrongOptionsAreErrors) {
  const Numbers dataset(4);
  const auto text = [&](const DataLoaderOptions& options) {
    return message_of<ConfigError>([&] { DataLoader loader(dataset, options); });
  };
  EXPECT_EQ(message_of<ConfigError>([] { DataLoader(Numbers(0), {}); }), "DataLoader: the data set is empty");
  EXPECT_EQ(text({.batch_size = 0}), "DataLoader: batch_size must be at least 1, got 0");
  EXPECT_EQ(text({.batch_size = 10, .drop_last = true}),
            "DataLoader: batch_size 10 is larger than the data set (4 samples), so with drop_last there is no batch at "
            "all");
  EXPECT_EQ(text({.num_workers = -1}),
            "DataLoader: needs 0 <= num_workers <= 256 and prefetch_factor >= 1, got -1 and 2");
  EXPECT_EQ(text({.prefetch_factor = 0}),
            "DataLoader: needs 0 <= num_workers <= 256 and prefetch_factor >= 1, got 0 and 0");
  EXPECT_THROW(DataLoader(std::shared_ptr<const Dataset>(), {}), ConfigError);
  EXPECT_THROW(DataLoader(dataset, {.device = "cpu:999"}), DeviceError);
}

TEST(DataLoader, ABatchLargerThanTheDataIsOneBatch) {
  for (const int workers : kWorkers) {
    DataLoader loader(Numbers(4), {.batch_size = INT64_MAX, .num_workers = workers});
    EXPECT_EQ(loader.size(), 1);
    EXPECT_EQ(epoch(loader), count_to(4));
  }
}

TEST(DataLoader, MayBeLeftAtAnyPoint) {
  Generator generator(17);
  const GeneratorScope scope(generator);
  const auto draw = [](std::int64_t low, std::int64_t high) { return randint(low, high, {}).item<std::int64_t>(); };
  for (int round = 0; round < 1000; ++round) {
    const std::int64_t samples = draw(1, 30);
    const DataLoaderOptions options{.batch_size = draw(1, 8),
                                    .shuffle = draw(0, 2) == 1,
                                    .num_workers = static_cast<int>(draw(0, 5)),
                                    .prefetch_factor = static_cast<int>(draw(1, 4)),
                                    .seed = 1};
    std::set<std::int64_t> bad;
    if (draw(0, 4) == 0) bad.insert(draw(0, samples));
    DataLoader loader(Faulty(samples, bad), options);
    const std::int64_t stop_after = draw(0, loader.size() + 2);
    std::int64_t batches = 0;
    try {
      for (const auto& [x, y] : loader) {
        EXPECT_EQ(x.numel(), y.numel());
        if (++batches >= stop_after) break;
      }
    } catch (const ValueError&) {
      EXPECT_FALSE(bad.empty());
    }
    EXPECT_LE(batches, loader.size());
  }
}

DataLoader loader_of_a_local_data_set() {
  const data::TensorDataset local(arange(4).reshape({4, 1}), arange(4));
  return DataLoader(local, {.batch_size = 2});
}

TEST(LoaderLifetime, TensorDataSetsAndSubsetsAreKept) {
  DataLoader loader = loader_of_a_local_data_set();
  int rows = 0;
  for (const auto& [x, y] : loader) {
    rows += static_cast<int>(x.size(0));
  }
  EXPECT_EQ(rows, 4);
}

struct Constant : data::Dataset {
  std::int64_t size() const override { return 4; }
  data::Example get(std::int64_t) const override { return {ones({1}), {}}; }
};

TEST(LoaderLifetime, ABorrowedDataSetThatIsGoneIsAnError) {
  auto set = std::make_unique<Constant>();
  DataLoader loader(*set, {.batch_size = 3});
  for (const auto& [x, y] : loader) {
    EXPECT_FALSE(y.defined()) << "no answers are fine";
  }
  set.reset();
  EXPECT_EQ(
      message_of<ConfigError>([&] { loader.begin(); }),
      "the data set that was handed in is gone; keep it as long as what uses it, or hand it over with std::move or "
      "as a shared pointer");
}

// A data set in which some samples lack a part.
class Partial : public Numbers {
 public:
  Partial(std::int64_t size, std::set<std::int64_t> without_x, std::set<std::int64_t> without_y)
      : Numbers(size), without_x_(std::move(without_x)), without_y_(std::move(without_y)) {}
  Example get(std::int64_t index) const override {
    Example sample = Numbers::get(index);
    return {without_x_.contains(index) ? Tensor() : sample.x, without_y_.contains(index) ? Tensor() : sample.y};
  }

 private:
  std::set<std::int64_t> without_x_, without_y_;
};

TEST(DataLoaderErrors, ASampleThatLacksAPartIsNamed) {
  for (const int workers : {0, 2}) {
    for (const std::int64_t size : {1, 3, 8}) {
      DataLoader loader(Partial(8, {5}, {}), {.batch_size = size, .num_workers = workers});
      EXPECT_EQ(message_of<ConfigError>([&] { epoch(loader); }), "DataLoader: sample 5 has no x");
    }
    DataLoader answers(Partial(8, {}, {5}), {.batch_size = 8, .num_workers = workers});
    EXPECT_EQ(message_of<ConfigError>([&] { epoch(answers); }),
              "DataLoader: sample 5 has no y, and sample 0 has one; all samples of a batch need one, or none");
    DataLoader first(Partial(8, {}, {0}), {.batch_size = 8, .num_workers = workers});
    EXPECT_EQ(message_of<ConfigError>([&] { epoch(first); }),
              "DataLoader: sample 0 has no y, and sample 1 has one; all samples of a batch need one, or none");
    DataLoader cached(data::CachedDataset(Partial(8, {5}, {})), {.batch_size = 4, .num_workers = workers});
    EXPECT_EQ(message_of<ConfigError>([&] { epoch(cached); }), "DataLoader: sample 5 has no x");
  }
}

}  // namespace
}  // namespace tandem
