#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/tensor/cpu_allocator.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/storage.h>

#include "support/message.h"

// The sanitizers end the program at a huge request unless told that the caller handles a null pointer.
#if defined(__SANITIZE_ADDRESS__)
extern "C" TANDEM_API const char* __asan_default_options() { return "allocator_may_return_null=1"; }
#endif
#if defined(__SANITIZE_THREAD__)
extern "C" TANDEM_API const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
#endif

namespace tandem {
namespace {

using detail::cpu_allocate;
using detail::cpu_free;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCached = false;
#else
constexpr bool kCached = true;
#endif

std::uint64_t system_allocations() { return cpu_memory_stats().system_allocations; }

bool aligned(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 64 == 0; }

TEST(CpuAllocate, GivesAlignedMemoryOfAnySize) {
  for (std::size_t bytes = 0; bytes < 5000; bytes += 37) {
    void* memory = cpu_allocate(bytes);
    EXPECT_TRUE(aligned(memory)) << bytes;
    std::memset(memory, 0x5a, bytes);
    cpu_free(memory, bytes);
  }
  for (int log2 = 6; log2 <= 26; ++log2) {
    for (const std::size_t off : {std::size_t{0}, std::size_t{1}, ~std::size_t{0}}) {
      const std::size_t bytes = (std::size_t{1} << log2) + off;
      auto* memory = static_cast<char*>(cpu_allocate(bytes));
      EXPECT_TRUE(aligned(memory)) << bytes;
      memory[0] = memory[bytes - 1] = 1;
      cpu_free(memory, bytes);
    }
  }
}

TEST(CpuAllocate, LiveBlocksNeverOverlap) {
  struct Block {
    unsigned char* memory;
    std::size_t bytes;
    unsigned char mark;
  };
  std::mt19937_64 rng(1);
  std::vector<Block> live;
  const auto check_and_free = [](const Block& block) {
    ASSERT_EQ(std::count(block.memory, block.memory + block.bytes, block.mark),
              static_cast<std::ptrdiff_t>(block.bytes));
    cpu_free(block.memory, block.bytes);
  };
  for (int round = 0; round < 5000; ++round) {
    if (live.size() > 40 || (!live.empty() && rng() % 2 == 0)) {
      std::swap(live[rng() % live.size()], live.back());
      check_and_free(live.back());
      live.pop_back();
    } else {
      const std::size_t bytes = rng() % (rng() % 4 == 0 ? 400'000 : 3000);
      const auto mark = static_cast<unsigned char>(rng());
      auto* memory = static_cast<unsigned char*>(cpu_allocate(bytes));
      std::memset(memory, mark, bytes);
      live.push_back({memory, bytes, mark});
    }
  }
  for (const Block& block : live)
    check_and_free(block);
}

TEST(CpuAllocate, GivesAFreedBlockToTheNextOfItsClass) {
  if (!kCached) GTEST_SKIP() << "no cache under the address sanitizer";
  // Both sizes fall into one class: multiples of 64 bytes up to 1024, then four classes per doubling.
  for (const auto& [first, second] : std::vector<std::pair<std::size_t, std::size_t>>{
           {1, 64}, {65, 128}, {961, 1024}, {1025, 1280}, {1281, 1536}, {1793, 2048}, {(1 << 20) + 1, 5 << 18}}) {
    void* memory = cpu_allocate(first);
    cpu_free(memory, first);
    void* again = cpu_allocate(second);
    EXPECT_EQ(again, memory) << first << " and " << second;
    cpu_free(again, second);
    void* next_class = cpu_allocate(second + 1);
    EXPECT_NE(next_class, memory);
    cpu_free(next_class, second + 1);
  }
}

TEST(CpuAllocate, WastesAtMostAQuarter) {
  if (!kCached) GTEST_SKIP() << "no cache under the address sanitizer";
  for (const std::size_t bytes : {1025u, 5000u, 100'001u, 3'000'001u}) {
    empty_cpu_cache();
    const std::size_t before = cpu_memory_stats().system_bytes;
    void* memory = cpu_allocate(bytes);
    const std::size_t held = cpu_memory_stats().system_bytes - before;
    EXPECT_GE(held, bytes);
    EXPECT_LE(held, bytes + bytes / 4) << bytes;
    cpu_free(memory, bytes);
  }
}

TEST(CpuAllocate, WarmTrainingAsksTheSystemForNothing) {
  if (!kCached) GTEST_SKIP() << "no cache under the address sanitizer";
  Tensor w = rand({30, 20}).requires_grad_();
  const Tensor x = rand({300, 20});
  const auto step = [&] {
    linear_relu(x, w).sum().backward();
    w.zero_grad();
  };
  for (int i = 0; i < 3; ++i)
    step();
  const std::uint64_t before = system_allocations();
  for (int i = 0; i < 100; ++i)
    step();
  EXPECT_EQ(system_allocations(), before);
}

TEST(CpuAllocate, ABlockMayBeFreedOnAnotherThread) {
  constexpr int kBlocks = 2000;
  const std::size_t held = cpu_memory_stats().system_bytes;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (int i = 0; i < kBlocks; ++i) {
      const auto bytes = static_cast<std::size_t>(1 + i * 13 % 3000);
      void* memory = cpu_allocate(bytes);
      std::memset(memory, i, bytes);
      blocks.emplace_back(memory, bytes);
    }
    std::jthread([&] {
      for (const auto& [memory, bytes] : blocks)
        cpu_free(memory, bytes);
    }).join();
  }
  // The threads' memory was returned, so memory does not pile up.
  EXPECT_LT(cpu_memory_stats().system_bytes - held, std::size_t{2} * kBlocks * 3100);
}

// One thread allocates and the other frees, for a long time: the pool between them stays bounded.
TEST(CpuAllocate, AProducerAndAConsumerReuseTheSameMemory) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Tensor> queue;
  bool done = false;
  const std::size_t before = cpu_memory_stats().system_bytes;
  std::jthread consumer([&] {
    for (;;) {
      std::vector<Tensor> taken;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return done || !queue.empty(); });
        if (queue.empty()) return;
        taken.swap(queue);
      }
      changed.notify_all();
    }
  });
  for (int i = 0; i < 3000; ++i) {
    Tensor made = full({500 + i % 3}, i);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.size() < 8; });
    queue.push_back(std::move(made));
    changed.notify_all();
  }
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_all();
  consumer.join();
  EXPECT_LT(cpu_memory_stats().system_bytes, before + (std::size_t{8} << 20));
}

TEST(CpuAllocate, ManyThreadsAtOnce) {
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 rng(static_cast<std::uint64_t>(t));
        std::vector<std::pair<Tensor, float>> live;
        for (int i = 0; i < 1500; ++i) {
          const auto size = static_cast<std::int64_t>(rng() % 200'000 >> (rng() % 12));
          const auto value = static_cast<float>(rng() % 1000);
          live.emplace_back(full({size + 1}, value), value);
          if (live.size() > 10) {
            std::swap(live[rng() % live.size()], live.back());
            const auto& [tensor, expected] = live.back();
            const auto span = tensor.span<float>();
            wrong += span.front() != expected || span.back() != expected;
            live.pop_back();
          }
          if (i % 300 == 0) empty_cpu_cache();
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

// thread_local tensors are destroyed after the thread's cache.
TEST(CpuAllocate, TensorsMayOutliveTheCacheOfTheirThread) {
  std::jthread([] {
    thread_local Tensor early;  // made before the cache, destroyed after it
    early = Tensor();
    thread_local std::vector<Tensor> late;
    for (int i = 0; i < 100; ++i)
      late.push_back(zeros({i}));
    early = zeros({50});
  }).join();
  SUCCEED();
}

// Twenty sizes, one after the other: no block fits a later request.
TEST(CpuAllocate, SizesThatGrowDoNotPileUp) {
  empty_cpu_cache();
  const std::size_t before = cpu_memory_stats().system_bytes;
  std::size_t largest = 0;
  for (std::size_t mib = 100; mib <= 2000; mib += 100) {
    largest = mib << 20;
    cpu_free(cpu_allocate(largest), largest);  // untouched memory occupies no pages
    EXPECT_LE(cpu_memory_stats().system_bytes - before, 2 * 5 * std::max(largest, std::size_t{256} << 20) / 4);
  }
  // A size that is requested repeatedly stays cached.
  const std::uint64_t requests = cpu_memory_stats().system_allocations;
  for (int i = 0; i < 10; ++i) {
    cpu_free(cpu_allocate(largest), largest);
  }
  if (cpu_memory_stats().system_allocations > requests) {
    EXPECT_EQ(cpu_memory_stats().system_allocations, requests + 10) << "under a sanitizer nothing is kept";
  }
  empty_cpu_cache();
}

TEST(OutOfMemoryError, SaysWhatWasAskedAndASmallerRequestWorks) {
  const std::string text = test::message_of<OutOfMemory>([] { empty({std::int64_t{1} << 43}); });
  EXPECT_THAT(text, StartsWith("out of host memory: asked for 35184372088896 bytes; "));
  EXPECT_THAT(text, HasSubstr("Use a smaller batch or model, or free tensors first"));
  try {
    empty({std::int64_t{1} << 43});
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), EndsWith(" [TDM-E114]"));
  }
  EXPECT_EQ(full({1000}, 3).sum().item(), 3000);
}

TEST(OutOfMemoryError, ComesForMoreThanAnyMachineHas) {
  EXPECT_EQ(test::message_of<OutOfMemory>([] { cpu_allocate((std::size_t{1} << 46) + 1); }),
            "out of host memory: asked for 70368744177665 bytes, more than any machine has");
  EXPECT_THROW(cpu_allocate(~std::size_t{0}), OutOfMemory);
  EXPECT_EQ(test::message_of<OutOfMemory>([] { empty({std::int64_t{1} << 62}); }),
            "a tensor [4611686018427387904] of f32 has more bytes than any machine");
}

TEST(OutOfMemoryError, GivesCachedMemoryBackFirst) {
  if (!kCached) GTEST_SKIP() << "no cache under the address sanitizer";
  cpu_free(cpu_allocate(5'000'000), 5'000'000);
  cpu_free(cpu_allocate(500), 500);
  const std::size_t before = cpu_memory_stats().system_bytes;
  EXPECT_THROW(empty({std::int64_t{1} << 43}), OutOfMemory);
  EXPECT_LE(cpu_memory_stats().system_bytes, before - 5'000'000);
}

TEST(EmptyCpuCache, GivesBackWhatIsFreeAndNothingElse) {
  const Tensor kept = full({100'000}, 7);
  {
    zeros({1'000'000});
  }
  {
    zeros({10});
  }
  empty_cpu_cache();
  const std::size_t bare = cpu_memory_stats().system_bytes;
  EXPECT_GE(bare, 400'000u);
  {
    zeros({1'000'000});
  }
  EXPECT_EQ(cpu_memory_stats().system_bytes - bare >= 4'000'000, kCached);
  empty_cpu_cache();
  EXPECT_LE(cpu_memory_stats().system_bytes, bare);
  EXPECT_EQ(kept.sum().item(), 700'000);
}

TEST(Storage, SegmentsShareMemoryButNotVersions) {
  const auto parent = detail::Storage::allocate(1024, "cpu:1");
  const auto first = detail::Storage::segment(parent, 0, 256);
  const auto second = detail::Storage::segment(parent, 256, 256);
  EXPECT_EQ(second->data(), parent->data() + 256);
  EXPECT_EQ(second->device(), Device("cpu:1"));
  EXPECT_EQ(second->parent(), parent.get());
  first->bump_version();
  EXPECT_EQ(first->version(), 1u);
  EXPECT_EQ(second->version(), 0u);
  EXPECT_EQ(parent->version(), 0u);
}

TEST(Storage, ASegmentKeepsItsParent) {
  auto parent = detail::Storage::allocate(1024, Device());
  const auto segment = detail::Storage::segment(parent, 512, 256);
  std::memset(parent->data(), 0x11, 1024);
  parent.reset();
  EXPECT_EQ(static_cast<int>(segment->data()[255]), 0x11);
  EXPECT_TRUE(segment->parent()->is_unique());
}

TEST(Storage, OfNothingIsStillAligned) {
  const auto empty = detail::Storage::allocate(0, Device());
  EXPECT_EQ(empty->bytes(), 0u);
  EXPECT_TRUE(aligned(empty->data()));
  EXPECT_THROW(detail::Storage::allocate(16, "cpu:99"), DeviceError);
}

}  // namespace
}  // namespace tandem
