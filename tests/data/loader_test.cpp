#include <tandem/data/loader.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/grad_mode.h>

#include "numbers.h"
#include "support/message.h"

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
using test::Numbers;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;

TEST(DataLoader, GivesBatchesInOrder) {
  for (const int workers : kWorkers) {
    DataLoader loader(Numbers(7), {.batch_size = 3, .num_workers = workers});
    EXPECT_EQ(loader.size(), 3);
    std::vector<Indices> batches;
    for (auto [x, y] : loader) {
      EXPECT_EQ(x.shape(), (Shape{y.numel(), 1}));
      EXPECT_EQ(x.to_vector<std::int64_t>(), y.to_vector<std::int64_t>());
      batches.push_back(y.to_vector<std::int64_t>());
    }
    EXPECT_THAT(batches, ElementsAre(Indices{0, 1, 2}, Indices{3, 4, 5}, Indices{6}));
  }
}

TEST(DataLoader, DropLastLeavesOutWhatIsNotFull) {
  for (const int workers : kWorkers) {
    DataLoader loader(Numbers(7), {.batch_size = 3, .num_workers = workers, .drop_last = true});
    EXPECT_EQ(loader.size(), 2);
    EXPECT_EQ(epoch(loader), count_to(6));
    DataLoader fits(Numbers(6), {.batch_size = 3, .num_workers = workers, .drop_last = true});
    EXPECT_EQ(epoch(fits), count_to(6));
  }
}

TEST(DataLoader, ContinuesAfterAnyBatch) {
  for (const int workers : kWorkers) {
    const DataLoaderOptions options{.batch_size = 3, .shuffle = true, .num_workers = workers};
    DataLoader loader(Numbers(10), options);
    std::vector<Indices> batches;
    std::vector<StateDict> places{loader.state_dict()};
    for (int pass = 0; pass < 3; ++pass) {
      for (auto [x, y] : loader) {
        batches.push_back(y.to_vector<std::int64_t>());
        places.push_back(loader.state_dict());
      }
    }
    ASSERT_EQ(batches.size(), 12U);
    for (std::size_t done = 0; done < places.size(); ++done) {
      DataLoader resumed(Numbers(10), options);
      resumed.load_state_dict(places[done]);
      EXPECT_EQ(resumed.state_dict().at("batch").item<std::int64_t>(), places[done].at("batch").item<std::int64_t>());
      std::vector<Indices> rest;
      while (resumed.epoch() < 3) {
        for (auto [x, y] : resumed) {
          rest.push_back(y.to_vector<std::int64_t>());
        }
      }
      EXPECT_EQ(rest, std::vector<Indices>(batches.begin() + static_cast<std::ptrdiff_t>(done), batches.end())) << done;
    }
  }
}

TEST(DataLoader, ALoopThatIsLeftEarlyStaysAtItsPlace) {
  DataLoader loader(Numbers(10), {.batch_size = 3});
  for (auto [x, y] : loader) {
    break;
  }
  DataLoader resumed(Numbers(10), {.batch_size = 3});
  resumed.load_state_dict(loader.state_dict());
  EXPECT_EQ(epoch(resumed), (Indices{3, 4, 5, 6, 7, 8, 9}));
  // The loader itself goes on with the next epoch, and set_epoch() starts with the first batch.
  EXPECT_EQ(epoch(loader), count_to(10));
  resumed.load_state_dict(loader.state_dict());
  resumed.set_epoch(2);
  EXPECT_EQ(epoch(resumed), count_to(10));
}

TEST(DataLoader, EndEpochLeavesOutTheRestUnlessAnIteratorIsThere) {
  DataLoader loader(Numbers(10), {.batch_size = 3});
  const auto place = [&] {
    const StateDict state = loader.state_dict();
    return Indices{state.at("epoch").item<std::int64_t>(), state.at("batch").item<std::int64_t>()};
  };
  loader.end_epoch();
  EXPECT_EQ(place(), (Indices{0, 0}));
  {
    auto iterator = loader.begin();
    ++iterator;
    loader.end_epoch();
    EXPECT_EQ(place(), (Indices{0, 2}));
  }
  loader.end_epoch();
  EXPECT_EQ(place(), (Indices{1, 0}));
  EXPECT_EQ(epoch(loader), count_to(10));
  EXPECT_EQ(place(), (Indices{2, 0}));
}

TEST(DataLoader, RefusesThePlaceOfAnotherLoader) {
  DataLoader loader(Numbers(10), {.batch_size = 3});
  const StateDict place = loader.state_dict();
  const auto refusal_by = [&](const DataLoaderOptions& options, std::int64_t samples) {
    DataLoader other(Numbers(samples), options);
    return test::message_of<ConfigError>([&] { other.load_state_dict(place); });
  };
  EXPECT_EQ(refusal_by({.batch_size = 3}, 11),
            "DataLoader: the state is of a loader with samples 10, and this one has 11");
  EXPECT_EQ(refusal_by({.batch_size = 3, .shuffle = true}, 10),
            "DataLoader: the state is of a loader with shuffle 0, and this one has 1");
  StateDict beyond = place.clone();
  beyond.set("batch", tensor(5));
  EXPECT_EQ(test::message_of<ConfigError>([&] { loader.load_state_dict(beyond); }),
            "DataLoader: the state is at batch 5 of epoch 0, after 0 other samples, and there are 4 batches of 3 for "
            "each of 1 ranks");
}

TEST(DataLoader, AnotherBatchSizeGivesTheSamplesThatAreLeft) {
  const DataLoaderOptions options{.batch_size = 3, .shuffle = true};
  DataLoader loader(Numbers(10), options);
  std::vector<StateDict> places{loader.state_dict()};
  const Indices order = [&] {
    Indices all;
    for (auto [x, y] : loader) {
      const Indices batch = y.to_vector<std::int64_t>();
      all.insert(all.end(), batch.begin(), batch.end());
      places.push_back(loader.state_dict());
    }
    return all;
  }();
  for (std::size_t done = 0; done < places.size(); ++done) {
    DataLoader resumed(Numbers(10), {.batch_size = 4, .shuffle = true});
    resumed.load_state_dict(places[done]);
    const auto used = static_cast<std::ptrdiff_t>(std::min<std::size_t>(3 * done, 10));
    const auto it = resumed.begin();
    if (it == std::default_sentinel) {  // the epoch was over
      EXPECT_EQ(used, 10);
      continue;
    }
    Indices rest = (*it).y.to_vector<std::int64_t>();
    DataLoader again(Numbers(10), {.batch_size = 4, .shuffle = true});  // in the middle of what was left
    again.load_state_dict(resumed.state_dict());
    const Indices second = epoch(again);
    rest.insert(rest.end(), second.begin(), second.end());
    EXPECT_EQ(rest, Indices(order.begin() + used, order.end())) << done;
  }
}

TEST(DataLoader, HasNoBatchesWhereItsSamplerHasNoSamples) {
  struct Nothing : data::Sampler {
    std::int64_t size() const override { return 0; }
    Indices indices() const override { return {}; }
  };
  for (const int workers : kWorkers) {
    DataLoader loader(Numbers(4), {.sampler = std::make_shared<Nothing>(), .num_workers = workers});
    EXPECT_EQ(loader.size(), 0);
    EXPECT_TRUE(loader.begin() == std::default_sentinel);
  }
}

TEST(DataLoader, ShowsEverySampleOncePerEpoch) {
  for (const int workers : kWorkers) {
    for (const std::int64_t batch_size : {1, 2, 16, 100, 1000}) {
      DataLoader loader(Numbers(100), {.batch_size = batch_size, .shuffle = true, .num_workers = workers});
      EXPECT_THAT(epoch(loader), UnorderedElementsAreArray(count_to(100)));
    }
  }
}

TEST(DataLoader, OrderDependsOnSeedAndEpochAloneNotOnWorkers) {
  const auto epochs = [](int workers, int prefetch, std::uint64_t seed) {
    DataLoader loader(
        Numbers(50),
        {.batch_size = 7, .shuffle = true, .num_workers = workers, .prefetch_factor = prefetch, .seed = seed});
    std::vector<Indices> all;
    for (int e = 0; e < 3; ++e)
      all.push_back(epoch(loader));
    return all;
  };
  const auto expected = epochs(0, 2, 4);
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_NE(expected[1], expected[2]);
  EXPECT_NE(expected[0], count_to(50));
  for (const int workers : kWorkers) {
    EXPECT_EQ(epochs(workers, 1, 4), expected);
    EXPECT_EQ(epochs(workers, 9, 4), expected);
  }
  EXPECT_NE(epochs(0, 2, 5), expected);
}

TEST(DataLoader, SetEpochResumes) {
  DataLoader loader(Numbers(50), {.batch_size = 7, .shuffle = true, .seed = 4});
  std::vector<Indices> all;
  for (int e = 0; e < 4; ++e)
    all.push_back(epoch(loader));
  EXPECT_EQ(loader.epoch(), 4);
  DataLoader resumed(Numbers(50), {.batch_size = 7, .shuffle = true, .seed = 4});
  resumed.set_epoch(2);
  EXPECT_EQ(epoch(resumed), all[2]);
  EXPECT_EQ(epoch(resumed), all[3]);
  resumed.set_epoch(0);
  EXPECT_EQ(epoch(resumed), all[0]);
}

TEST(DataLoader, AnEpochThatWasLeftEarlyCounts) {
  DataLoader whole(Numbers(50), {.batch_size = 7, .shuffle = true, .seed = 4});
  epoch(whole);
  const Indices second = epoch(whole);
  DataLoader left(Numbers(50), {.batch_size = 7, .shuffle = true, .num_workers = 2, .seed = 4});
  for (const auto& batch : left) {
    static_cast<void>(batch);
    break;
  }
  EXPECT_EQ(epoch(left), second);
}

TEST(DataLoader, WithoutASeedItDrawsOneFromTheGenerator) {
  const auto make = [] { return DataLoader(Numbers(50), {.batch_size = 50, .shuffle = true}); };
  manual_seed(8);
  DataLoader a = make();
  DataLoader b = make();
  manual_seed(8);
  DataLoader again = make();
  const Indices first = epoch(a);
  EXPECT_NE(epoch(b), first);
  EXPECT_EQ(epoch(again), first);
}

TEST(DataLoader, RandomTransformsAreTheSameForAnyNumberOfWorkers) {
  const auto values = [](int workers) {
    DataLoader loader(Numbers(40, true), {.batch_size = 6, .shuffle = true, .num_workers = workers, .seed = 4});
    std::vector<double> all;
    for (int e = 0; e < 2; ++e) {
      for (const auto& [x, y] : loader) {
        for (const double v : x.to_vector<double>())
          all.push_back(v);
      }
    }
    return all;
  };
  const auto expected = values(0);
  EXPECT_EQ(std::set<double>(expected.begin(), expected.end()).size(), 80u) << "each draw is another one";
  for (const int workers : kWorkers) {
    EXPECT_EQ(values(workers), expected);
  }
}

TEST(DataLoader, LeavesTheCallersGeneratorAlone) {
  for (const int workers : kWorkers) {
    manual_seed(3);
    DataLoader loader(Numbers(10, true), {.batch_size = 2, .shuffle = true, .num_workers = workers, .seed = 1});
    epoch(loader);
    const auto after = rand({4}).to_vector<double>();
    manual_seed(3);
    EXPECT_EQ(rand({4}).to_vector<double>(), after);
  }
}

TEST(DataLoader, LoadsUnderTheCallersState) {
  struct Curious : Dataset {
    std::int64_t size() const override { return 3; }
    Example get(std::int64_t) const override {
      return {zeros({1}), full({}, is_grad_enabled() ? 1 : 0, {.dtype = DType::i64})};
    }
  };
  for (const int workers : kWorkers) {
    const core::DeviceScope device("cpu:2");
    const NoGradGuard no_grad;
    DataLoader loader(Curious(), {.batch_size = 3, .num_workers = workers});
    for (const auto& [x, y] : loader) {
      EXPECT_EQ(x.device(), Device("cpu:2"));
      EXPECT_EQ(y.to_vector<std::int64_t>(), (Indices{0, 0, 0}));
    }
  }
}

// Scopes and observers are on the caller's stack, which may be gone while workers still load.
TEST(DataLoader, WorkersDoNotKnowTheCallersScopesAndObservers) {
  struct Curious : Dataset {
    std::int64_t size() const override { return 8; }
    Example get(std::int64_t) const override {
      const core::ThreadState& state = core::thread_state();
      EXPECT_EQ(state.scope, nullptr);
      EXPECT_EQ(state.frame, nullptr);
      EXPECT_EQ(state.observer, nullptr);
      return {zeros({1}), zeros({1})};
    }
  };
  std::optional<DataLoader::Iterator> under_way;
  DataLoader loader(Curious(), {.num_workers = 2});
  {
    const core::ModuleScope scope{.path = "gone", .type = "Gone", .parent = nullptr};
    core::ThreadState inner = core::thread_state();
    inner.scope = &scope;
    const core::ThreadStateScope entered(inner);
    under_way.emplace(loader.begin());
  }
  for (; *under_way != loader.end(); ++*under_way) {
  }
}

TEST(DataLoader, PutsBatchesOnADevice) {
  for (const int workers : kWorkers) {
    DataLoader loader(Numbers(5), {.batch_size = 2, .num_workers = workers, .device = "cpu:1"});
    for (const auto& [x, y] : loader) {
      EXPECT_EQ(x.device(), Device("cpu:1"));
      EXPECT_EQ(y.device(), Device("cpu:1"));
    }
    EXPECT_EQ(epoch(loader), count_to(5));
  }
}

// ---- lifetimes ----

TEST(DataLoader, BorrowsALvalueAndKeepsATemporary) {
  Faulty borrowed(4, {2});
  DataLoader loader(borrowed, {.batch_size = 4});
  borrowed.repair();
  EXPECT_EQ(epoch(loader), count_to(4)) << "the repair is seen: nothing was copied";
  const Numbers constant(3);
  DataLoader of_constant(constant, {.batch_size = 1});
  EXPECT_EQ(epoch(of_constant), count_to(3));
  const Dataset& base = constant;
  DataLoader of_base(base, {.batch_size = 1});
  EXPECT_EQ(epoch(of_base), count_to(3));
  DataLoader shared(std::make_shared<const Numbers>(3), {.batch_size = 1});
  EXPECT_EQ(epoch(shared), count_to(3));
}

TEST(DataLoader, AnIteratorMayOutliveItsLoader) {
  for (const int workers : kWorkers) {
    std::optional<DataLoader> loader(std::in_place, Numbers(6),
                                     DataLoaderOptions{.batch_size = 2, .num_workers = workers});
    auto it = loader->begin();
    loader.reset();
    Indices seen;
    for (; it != std::default_sentinel; ++it) {
      for (const std::int64_t y : (*it).y.to_vector<std::int64_t>())
        seen.push_back(y);
    }
    EXPECT_EQ(seen, count_to(6));
  }
}

TEST(DataLoader, SeveralIteratorsAtOnce) {
  for (const int workers : kWorkers) {
    DataLoader loader(Numbers(6), {.batch_size = 2, .num_workers = workers});
    auto a = loader.begin();
    auto b = loader.begin();
    ++a;
    EXPECT_EQ((*a).y.to_vector<std::int64_t>(), (Indices{2, 3}));
    EXPECT_EQ((*b).y.to_vector<std::int64_t>(), (Indices{0, 1}));
    b = std::move(a);
    b++;
    EXPECT_EQ((*b).y.to_vector<std::int64_t>(), (Indices{4, 5}));
    ++b;
    EXPECT_TRUE(b == std::default_sentinel);
  }
}

TEST(DataLoader, BatchesOutliveEverything) {
  std::vector<Example> kept;
  {
    DataLoader loader(Numbers(4), {.batch_size = 2, .num_workers = 2});
    for (const Example& example : loader)
      kept.push_back(example);
  }
  EXPECT_EQ(kept[1].y.to_vector<std::int64_t>(), (Indices{2, 3}));
}

}  // namespace
}  // namespace tandem
