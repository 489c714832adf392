#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "support/message.h"
#include "support/thread_count.h"

namespace tandem::parallel {
namespace {

using test::cpus;
using test::message_of;
using test::Mlp;
using test::seeded;

using Inputs = std::vector<std::tuple<int>>;

class ParallelApply : public ::testing::TestWithParam<int> {
 protected:
  test::ThreadCount threads_{GetParam()};
  Mlp model_ = seeded<Mlp>();
  Replicas replicas_ = replicate(model_, cpus(4));
};
INSTANTIATE_TEST_SUITE_P(Threads, ParallelApply, ::testing::Values(1, 2, 4), ::testing::PrintToStringParamName());

TEST_P(ParallelApply, ReturnsWhatEachReplicaGaveInOrder) {
  const auto fn = [](int i) { return std::to_string(i) + "@" + std::to_string(replica().index); };
  EXPECT_EQ(parallel_apply(fn, Inputs{{5}, {6}, {7}}, replicas_), (std::vector<std::string>{"5@0", "6@1", "7@2"}));
}

TEST_P(ParallelApply, TellsAReplicaWhereItIs) {
  const auto fn = [](int) { return std::tuple(replica().device, replica().count, zeros({1}).device()); };
  const auto results = parallel_apply(fn, Inputs{{0}, {0}, {0}, {0}}, replicas_);
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(results[k], std::tuple(cpus(4)[k], 4, cpus(4)[k]));
  }
  EXPECT_EQ(replica().index, 0);
  EXPECT_EQ(replica().count, 1);
}

TEST_P(ParallelApply, CarriesGradMode) {
  const auto fn = [](int) { return is_grad_enabled(); };
  EXPECT_EQ(parallel_apply(fn, Inputs{{0}, {0}}, replicas_), (std::vector<bool>{true, true}));
  const NoGradGuard no_grad;
  EXPECT_EQ(parallel_apply(fn, Inputs{{0}, {0}}, replicas_), (std::vector<bool>{false, false}));
}

TEST_P(ParallelApply, WaitsForAllAndRethrowsTheLowest) {
  std::atomic<int> ran{0};
  const auto fn = [&](int i) {
    ++ran;
    if (i % 2 == 1) {
      throw ValueError("replica's own: " + std::to_string(i));
    }
    return i;
  };
  EXPECT_EQ(message_of<ValueError>([&] { parallel_apply(fn, Inputs{{0}, {1}, {2}, {3}}, replicas_); }),
            "replica's own: 1\n  in replica 1 of 4, on cpu:1");
  EXPECT_EQ(ran, 4);
  ASSERT_TRUE(last_failure().has_value());
  EXPECT_EQ(last_failure()->index, 1);
  EXPECT_EQ(last_failure()->device, Device("cpu:1"));
  EXPECT_EQ(parallel_apply([](int i) { return i; }, Inputs{{8}}, replicas_), std::vector<int>{8});
  EXPECT_FALSE(last_failure().has_value());
}

TEST_P(ParallelApply, LeavesOtherExceptionsAsTheyAre) {
  const auto fn = [&](int i) {
    if (i > 0) {
      throw std::out_of_range("mine");
    }
    return i;
  };
  try {
    parallel_apply(fn, Inputs{{0}, {1}}, replicas_);
    FAIL();
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "mine");
  }
  EXPECT_EQ(last_failure()->index, 1);
}

TEST_P(ParallelApply, DrawsTheSameNumbersInEveryRun) {
  const auto fn = [](int) { return randn({3}).to_vector<float>(); };
  manual_seed(3);
  const auto first = parallel_apply(fn, Inputs{{0}, {0}, {0}}, replicas_);
  const float after = randn({1}).item<float>();
  manual_seed(3);
  EXPECT_EQ(parallel_apply(fn, Inputs{{0}, {0}, {0}}, replicas_), first);
  EXPECT_EQ(randn({1}).item<float>(), after);
  EXPECT_NE(first[0], first[1]) << "each replica draws its own";
  manual_seed(3);
  EXPECT_EQ(randn({3}).to_vector<float>(), first[0]) << "the first draws what the caller would";
  EXPECT_NE(parallel_apply(fn, Inputs{{0}, {0}}, replicas_)[1], first[1]) << "and goes on";
}

TEST_P(ParallelApply, OfNoInputsGivesNothing) {
  EXPECT_TRUE(parallel_apply([](int i) { return i; }, Inputs(), replicas_).empty());
}

TEST(ParallelApplyThreads, CallersDrawDifferentNumbers) {
  Mlp model = seeded<Mlp>();
  std::vector<std::vector<float>> drawn(2);
  std::atomic<int> inside{0};
  const auto call = [&](std::size_t caller) {
    Replicas replicas(model, cpus(1));
    const auto fn = [&](int) {
      ++inside;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (inside.load() < 2 && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
      }
      return randn({3}).to_vector<float>();
    };
    drawn[caller] = parallel_apply(fn, Inputs{{0}}, replicas)[0];
  };
  std::thread other(call, 1);
  call(0);
  other.join();
  EXPECT_NE(drawn[0], drawn[1]);
}

TEST(ParallelApplyErrors, MoreInputsThanReplicas) {
  Mlp model = seeded<Mlp>();
  Replicas replicas = replicate(model, cpus(2));
  EXPECT_EQ(message_of<ConfigError>([&] { parallel_apply([](int i) { return i; }, Inputs{{0}, {1}, {2}}, replicas); }),
            "parallel_apply: 3 inputs for 2 replicas");
}

TEST(ParallelApplyThreads, RunAtTheSameTime) {
  const test::ThreadCount threads(2);
  Mlp model = seeded<Mlp>();
  Replicas replicas = replicate(model, cpus(2));
  std::atomic<int> arrived{0};
  const auto fn = [&](int) {
    ++arrived;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived.load() < 2 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return arrived.load();
  };
  EXPECT_EQ(parallel_apply(fn, Inputs{{0}, {0}}, replicas), (std::vector<int>{2, 2}));
}

}  // namespace
}  // namespace tandem::parallel
