#include <tandem/data/dataset.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "numbers.h"
#include "support/message.h"

namespace tandem {
namespace {

using data::CachedDataset;
using data::DataLoader;
using data::Example;
using test::count_to;
using test::epoch;
using test::Faulty;
using test::Indices;
using test::kWorkers;
using test::message_of;
using test::Numbers;

// Counts how often samples are loaded.
class Slow : public Numbers {
 public:
  explicit Slow(std::int64_t size) : Numbers(size, true) {}
  Example get(std::int64_t index) const override {
    ++loads;
    return Numbers::get(index);
  }
  mutable std::atomic<int> loads = 0;
};

std::vector<double> values(DataLoader& loader) {
  std::vector<double> all;
  for (const auto& [x, y] : loader) {
    const auto batch = x.to_vector<double>();
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

TEST(CachedDataset, LoadsEachSampleOnce) {
  const Slow slow(10);
  const CachedDataset cached(slow);
  EXPECT_EQ(cached.size(), 10);
  EXPECT_EQ(slow.loads, 0);
  DataLoader loader(cached, {.batch_size = 3});
  const std::vector<double> first = values(loader);
  EXPECT_EQ(values(loader), first);
  EXPECT_EQ(cached.get(4).y.item<std::int64_t>(), 4);
  EXPECT_EQ(slow.loads, 10);
}

TEST(CachedDataset, RandomSamplesAreTheSameForAnyOrderAndNumberOfWorkers) {
  const Slow slow(40);
  const CachedDataset reference(slow);
  const double fifth = reference.get(5).x.item();
  for (const int workers : kWorkers) {
    const CachedDataset cached(slow);
    DataLoader loader(cached, {.batch_size = 3, .shuffle = true, .num_workers = workers});
    epoch(loader);
    EXPECT_EQ(cached.get(5).x.item(), fifth);
  }
  manual_seed(1);
  const double next = rand({1}).item();
  manual_seed(1);
  CachedDataset(slow).get(0);
  EXPECT_EQ(rand({1}).item(), next) << "the caller's generator is left alone";
}

TEST(CachedDataset, IsSafeForManyThreads) {
  const Slow slow(50);
  const CachedDataset cached(slow);
  // Several workers request each sample at about the same time.
  Indices often;
  for (std::int64_t i = 0; i < 400; ++i) {
    often.push_back(i % 50);
  }
  struct Repeated : Numbers {
    Repeated(const CachedDataset& source, Indices order)
        : Numbers(static_cast<std::int64_t>(order.size())), cached(source), indices(std::move(order)) {}
    Example get(std::int64_t index) const override { return cached.get(indices[static_cast<std::size_t>(index)]); }
    const CachedDataset& cached;
    Indices indices;
  };
  DataLoader loader(Repeated(cached, often), {.batch_size = 1, .num_workers = 4, .prefetch_factor = 8});
  EXPECT_EQ(epoch(loader), often);
}

TEST(CachedDataset, WhatIsHandedOutMayBeWrittenTo) {
  const CachedDataset cached(Numbers(3));
  cached.get(2).x.fill_(100);
  EXPECT_EQ(cached.get(2).x.item(), 2);
  cached.get_batch(Indices{2}).x.fill_(100);
  EXPECT_EQ(cached.get(2).x.item(), 2);
}

TEST(CachedDataset, KeepsCopiesOfWhatTheDataSetMayChange) {
  Tensor memory = arange(4.0);
  const data::TensorDataset rows(memory, arange(4));
  const CachedDataset cached(rows);
  EXPECT_EQ(cached.get(1).x.item(), 1);
  memory.fill_(9);
  EXPECT_EQ(cached.get(1).x.item(), 1);
}

TEST(CachedDataset, AFailedSampleIsTriedAgain) {
  Faulty faulty(4, {2});
  DataLoader loader(CachedDataset(faulty), {.batch_size = 2});
  EXPECT_EQ(message_of<ValueError>([&] { epoch(loader); }), "the sample is broken\n  while loading sample 2");
  faulty.repair();
  EXPECT_EQ(epoch(loader), count_to(4));
}

TEST(CachedDataset, AnIndexThatIsNotThereIsAnErrorLikeThatOfOtherDataSets) {
  const CachedDataset cached(Numbers(7));
  EXPECT_EQ(message_of<ConfigError>([&] { cached.get(9); }), "CachedDataset: there is no sample 9: expected 0 to 6");
  EXPECT_EQ(message_of<ConfigError>([&] { cached.get(-1); }), "CachedDataset: there is no sample -1: expected 0 to 6");
  EXPECT_EQ(message_of<ConfigError>([&] { cached.get_batch(Indices{0, 7}); }),
            "CachedDataset: there is no sample 7: expected 0 to 6\n  while loading sample 7");
}

}  // namespace
}  // namespace tandem
