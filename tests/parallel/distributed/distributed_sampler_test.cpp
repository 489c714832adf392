#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/ranks.h"
#include "support/warnings.h"

namespace tandem::test {
namespace {

using parallel::DistributedSampler;
using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

struct Samples : data::Dataset {
  explicit Samples(std::int64_t size) : count(size) {}
  std::int64_t size() const override { return count; }
  data::Example get(std::int64_t index) const override {
    const Tensor value = full({1}, static_cast<double>(index));
    return {value, value};
  }
  std::int64_t count;
};

Indices in_order(std::int64_t size, int ranks, int rank, bool drop_last = false, bool exact = false) {
  const Warnings not_shown;
  return DistributedSampler(
             Samples(size),
             {.num_replicas = ranks, .rank = rank, .shuffle = false, .drop_last = drop_last, .exact = exact})
      .indices();
}

// The expected values come from torch.utils.data.DistributedSampler with equal arguments.
TEST(DistributedSampler, HasPyTorchsIndices) {
  EXPECT_EQ(in_order(10, 2, 0), (Indices{0, 2, 4, 6, 8}));
  EXPECT_EQ(in_order(10, 2, 1), (Indices{1, 3, 5, 7, 9}));
  EXPECT_EQ(in_order(10, 4, 0), (Indices{0, 4, 8}));
  EXPECT_EQ(in_order(10, 4, 1), (Indices{1, 5, 9}));
  EXPECT_EQ(in_order(10, 4, 2), (Indices{2, 6, 0}));
  EXPECT_EQ(in_order(10, 4, 3), (Indices{3, 7, 1}));
  EXPECT_EQ(in_order(10, 4, 3, true), (Indices{3, 7}));
  EXPECT_EQ(in_order(2, 5, 4), (Indices{0}));  // repeats the head several times
  EXPECT_EQ(in_order(1, 3, 2), (Indices{0}));
}

TEST(DistributedSampler, GoesOnWhenEachEpochHasALoaderOfItsOwn) {
  const Warnings not_shown;
  const Samples samples(20);
  const auto sampler = std::make_shared<DistributedSampler>(
      samples, parallel::DistributedSamplerOptions{.num_replicas = 2, .rank = 0, .seed = 3});
  std::vector<std::vector<float>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    data::DataLoader loader(samples, {.batch_size = 10, .sampler = sampler});
    for (const auto& [x, y] : loader) {
      epochs.push_back(x.to_vector<float>());
    }
    EXPECT_EQ(loader.epoch(), epoch + 1);
  }
  ASSERT_EQ(epochs.size(), 3U);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const Indices indices = sampler->indices_of(epoch);
    EXPECT_EQ(epochs[static_cast<std::size_t>(epoch)], std::vector<float>(indices.begin(), indices.end()));
  }
}

// With shuffle the order follows from seed + epoch, and the arithmetic stays equal.
TEST(DistributedSampler, CutsUpTheOrderOfSeedAndEpoch) {
  const Warnings not_shown;
  for (const bool drop_last : {false, true}) {
    for (int rank = 0; rank < 3; ++rank) {
      DistributedSampler sampler(Samples(11), {.num_replicas = 3, .rank = rank, .seed = 40, .drop_last = drop_last});
      sampler.set_epoch(2);
      manual_seed(42);
      const auto order = randperm(11).to_vector<std::int64_t>();
      Indices expected;
      for (std::size_t i = 0; i < (drop_last ? 9 : 12); ++i) {
        if (i % 3 == static_cast<std::size_t>(rank)) {
          expected.push_back(order[i % 11]);
        }
      }
      EXPECT_EQ(sampler.indices(), expected);
    }
  }
}

TEST(DistributedSampler, SharesTheDataAmongASubGroup) {
  Warnings warnings;
  as_ranks(3, [](parallel::ProcessGroup& group) {
    const auto pair = group.new_group({0, 2});
    if (pair != nullptr) {
      const DistributedSampler sampler(Samples(4), {.shuffle = false, .process_group = pair.get()});
      EXPECT_EQ(sampler.indices(), group.rank() == 0 ? (Indices{0, 2}) : (Indices{1, 3}));
    }
  });
  EXPECT_TRUE(warnings.texts().empty());
}

TEST(DistributedSampler, HasEverySampleOnceWhereExact) {
  Indices all;
  for (int rank = 0; rank < 4; ++rank) {
    const Indices mine = in_order(10, 4, rank, false, true);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (Indices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(DistributedSampler, SharesOneOrderAmongAllRanksAndChangesItByItself) {
  const Warnings not_shown;
  const Samples samples(12);
  Indices epochs[2];
  const DistributedSampler first(samples, {.num_replicas = 2, .rank = 0});
  const DistributedSampler second(samples, {.num_replicas = 2, .rank = 1});
  for (Indices& epoch : epochs) {
    epoch = first.indices();
    const Indices other = second.indices();
    Indices all = epoch;
    all.insert(all.end(), other.begin(), other.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, (Indices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  DistributedSampler resumed(samples, {.num_replicas = 2, .rank = 0});
  resumed.set_epoch(1);
  EXPECT_EQ(resumed.indices(), epochs[1]);
}

// The loader's seed and epoch decide on random numbers of the samples, too.
TEST(DistributedSampler, ResumesByTheEpochOfTheLoaderOrItsOwn) {
  const Warnings not_shown;
  struct Noisy final : data::Dataset {
    std::int64_t size() const override { return 8; }
    data::Example get(std::int64_t index) const override { return {full({1}, static_cast<double>(index)), rand({1})}; }
  };
  const Noisy samples;
  const auto pass = [](data::DataLoader& loader) {
    std::vector<float> values;
    for (const auto& [x, y] : loader) {
      for (const Tensor& each : {x, y}) {
        const auto more = each.to_vector<float>();
        values.insert(values.end(), more.begin(), more.end());
      }
    }
    return values;
  };
  const auto sampler = [&] {
    return std::make_shared<DistributedSampler>(samples,
                                                parallel::DistributedSamplerOptions{.num_replicas = 2, .rank = 0});
  };
  data::DataLoader whole(samples, {.batch_size = 2, .sampler = sampler(), .seed = 7});
  std::vector<std::vector<float>> epochs;
  for (int epoch = 0; epoch < 4; ++epoch) {
    epochs.push_back(pass(whole));
  }
  EXPECT_NE(epochs[0], epochs[2]);

  data::DataLoader by_loader(samples, {.batch_size = 2, .sampler = sampler(), .seed = 7});
  by_loader.set_epoch(2);
  EXPECT_EQ(pass(by_loader), epochs[2]);
  EXPECT_EQ(pass(by_loader), epochs[3]);

  const auto own = sampler();
  data::DataLoader by_sampler(samples, {.batch_size = 2, .sampler = own, .seed = 7});
  own->set_epoch(2);
  EXPECT_EQ(pass(by_sampler), epochs[2]);
  EXPECT_EQ(by_sampler.epoch(), 3);
  EXPECT_EQ(pass(by_sampler), epochs[3]);
  own->set_epoch(1);
  EXPECT_EQ(pass(by_sampler), epochs[1]);
}

TEST(DistributedSampler, SharesTheRestOfAnEpochAmongAnotherNumberOfRanks) {
  const data::TensorDataset numbers(arange(0, 23));
  const auto loader_of = [&](int rank, int ranks, std::int64_t batch_size) {
    return data::DataLoader(
        numbers,
        {.batch_size = batch_size,
         .sampler = std::make_shared<DistributedSampler>(
             numbers, parallel::DistributedSamplerOptions{.num_replicas = ranks, .rank = rank, .exact = true})});
  };
  const auto take = [](data::DataLoader& loader, std::int64_t batches, std::vector<std::int64_t>& used) {
    for (const auto& [x, y] : loader) {
      const auto batch = x.to(DType::i64).to_vector<std::int64_t>();
      used.insert(used.end(), batch.begin(), batch.end());
      if (--batches == 0) break;
    }
  };
  for (const int before : {1, 2, 3, 4}) {
    for (const int after : {1, 2, 3, 5}) {
      std::vector<std::int64_t> used;
      std::optional<StateDict> place;
      for (int rank = 0; rank < before; ++rank) {
        data::DataLoader loader = loader_of(rank, before, 2);
        take(loader, 2, used);
        place = rank == 0 ? loader.state_dict() : place;
      }
      // Again another number after one more step, and the way back.
      for (const auto& [ranks, steps] : {std::pair(after, 1), std::pair(before, 100)}) {
        std::optional<StateDict> next;
        for (int rank = 0; rank < ranks; ++rank) {
          data::DataLoader loader = loader_of(rank, ranks, 1);
          loader.load_state_dict(*place);
          take(loader, steps, used);
          next = rank == 0 ? loader.state_dict() : next;
        }
        place = next;
      }
      std::sort(used.begin(), used.end());
      EXPECT_EQ(used, arange(0, 23).to(DType::i64).to_vector<std::int64_t>()) << before << " ranks, then " << after;
    }
  }
}

TEST(DistributedSampler, KnowsTheRankAndItsLoaderDropsNothing) {
  as_ranks(3, [](parallel::ProcessGroup& group) {
    const Samples samples(9);
    data::DataLoader loader(samples, {.batch_size = 2, .sampler = std::make_shared<DistributedSampler>(samples)});
    Tensor sum = zeros({1});
    for (auto [x, y] : loader) {
      sum += x.sum();
    }
    group.all_reduce(sum);
    EXPECT_EQ(sum.item<float>(), 36.0F);
  });
}

// The data may have been split after the sampler was made: no rank would then see the rest.
TEST(DistributedSampler, BelongsToALoaderOfTheSameDataSet) {
  as_ranks(2, [](parallel::ProcessGroup&) {
    const Samples samples(9);
    const auto sampler = std::make_shared<DistributedSampler>(Samples(8));
    EXPECT_EQ(message_of<ConfigError>([&] { data::DataLoader(samples, {.sampler = sampler}); }),
              "DataLoader: the sampler was made for a data set of 8 samples, and this one has 9; give both the same");
  });
}

// All ranks have a loader or none has: a part that is too short for one batch makes an epoch without batches.
TEST(DistributedSampler, IsTooSmallForDropLastOnAllRanksOrOnNone) {
  for (const int rank : {0, 1, 3}) {
    const Samples samples(5);
    const auto sampler = std::make_shared<DistributedSampler>(
        samples, parallel::DistributedSamplerOptions{.num_replicas = 4, .rank = rank, .exact = true});
    data::DataLoader loader(samples, {.batch_size = 2, .sampler = sampler, .drop_last = true});
    EXPECT_EQ(loader.size(), rank == 0 ? 1 : 0);
    int batches = 0;
    for ([[maybe_unused]] const auto& batch : loader) {
      ++batches;
    }
    EXPECT_EQ(batches, rank == 0 ? 1 : 0);
    EXPECT_THAT(message_of<ConfigError>(
                    [&] { data::DataLoader(samples, {.batch_size = 3, .sampler = sampler, .drop_last = true}); }),
                HasSubstr("batch_size 3 is larger than the sampler's epoch (2 samples)"));
  }
}

// The other ranks would wait for those that threw.
TEST(DistributedSampler, LeavesRanksWithoutSamplesWhereExactAndTheyAreFew) {
  as_ranks(3, [](parallel::ProcessGroup& group) {
    const Samples samples(2);
    const auto sampler =
        std::make_shared<DistributedSampler>(samples, parallel::DistributedSamplerOptions{.exact = true});
    EXPECT_EQ(sampler->size(), group.rank() < 2 ? 1 : 0);
    for (const int workers : {0, 2}) {
      data::DataLoader loader(samples, {.sampler = sampler, .num_workers = workers});
      EXPECT_EQ(loader.size(), sampler->size());
      nn::Linear layer(1, 1, {.bias = false});
      parallel::DistributedDataParallel ddp(layer);
      parallel::Join join(ddp);
      for (auto [x, y] : loader) {
        ddp(x).sum().backward();
      }
      join.finish([] {});
      EXPECT_EQ(layer.weight.grad().to("cpu:0").item<float>(), 0.5F) << "the mean of samples 0 and 1";
    }
  });
}

TEST(DistributedSampler, RefusesWhatCannotBeMeant) {
  const Warnings not_shown;
  const Samples samples(3);
  EXPECT_EQ(message_of<ConfigError>([&] { DistributedSampler(samples, {.num_replicas = 2, .rank = -1}); }),
            "Invalid rank -1, rank should be in the interval [0, 1]");
  EXPECT_EQ(message_of<ConfigError>([&] { DistributedSampler(samples, {.num_replicas = 0, .rank = 0}); }),
            "DistributedSampler: num_replicas is 0; expected at least 1");
  EXPECT_EQ(message_of<ConfigError>([&] { DistributedSampler(samples, {.num_replicas = 2, .rank = 2}); }),
            "Invalid rank 2, rank should be in the interval [0, 1]");
  EXPECT_EQ(message_of<ConfigError>([&] { DistributedSampler{samples}; }),
            "DistributedSampler: there is no default group to say who we are; make a ProcessGroupGuard first, or give "
            "num_replicas and rank");
  EXPECT_EQ(
      message_of<ConfigError>([&] { DistributedSampler(samples, {.num_replicas = 4, .rank = 0, .drop_last = true}); }),
      "DistributedSampler: 3 samples are too few for each of 4 ranks to have one; leave out drop_last, and "
      "samples are repeated");
  EXPECT_THROW(DistributedSampler(samples, {.num_replicas = 1, .rank = 0, .drop_last = true, .exact = true}),
               ConfigError);
  EXPECT_THROW(DistributedSampler(Samples(0), {.num_replicas = 1, .rank = 0}), ConfigError);
}

TEST(DistributedSampler, WarnsOfAnotherNumberOfRanks) {
  Warnings warnings;
  as_ranks(1, [](parallel::ProcessGroup&) { DistributedSampler(Samples(4), {.num_replicas = 2, .rank = 0}); });
  as_ranks(2, [](parallel::ProcessGroup& group) {
    if (group.rank() == 0) {
      DistributedSampler(Samples(4), {.num_replicas = 1, .rank = 0});
    }
  });
  EXPECT_EQ(
      warnings.texts(),
      (std::vector<std::string>{
          "DistributedSampler: it shares the data among 2 ranks, and the default group has 1: samples are left out "
          "[TDM-W602]",
          "DistributedSampler: it shares the data among 1 ranks, and the default group has 2: samples are used more "
          "than once [TDM-W602]"}));
}

// Models a program of one process, with DataParallel, that names a rank by hand: it would train on part of the data
// only.
TEST(DistributedSampler, WarnsOfAPartWithoutAGroup) {
  Warnings warnings;
  for (int epoch = 0; epoch < 3; ++epoch) {
    DistributedSampler(Samples(4), {.num_replicas = 17, .rank = 6});
    DistributedSampler(Samples(4), {.num_replicas = 1, .rank = 0});
  }
  EXPECT_EQ(warnings.texts(),
            (std::vector<std::string>{
                // once
                "DistributedSampler: part 6 of 17 of the data, and there is no process group: a program that trains "
                "alone never sees the rest. DataParallel takes whole batches: leave the sampler out. Ranks make a "
                "ProcessGroupGuard first [TDM-W601]"}));
}

}  // namespace
}  // namespace tandem::test
