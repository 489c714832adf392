#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_pool.h>

#include "support/message.h"
#include "support/thread_count.h"

namespace tandem::core {
namespace {

using test::message_of;
using test::ThreadCount;

std::vector<int> lane_visits(std::int64_t lanes) {
  std::vector<std::atomic<int>> counts(static_cast<std::size_t>(lanes));
  ThreadPool::instance().for_each_lane(lanes, [&](std::int64_t lane) { ++counts[static_cast<std::size_t>(lane)]; });
  return {counts.begin(), counts.end()};
}

// Waits until the other lanes have arrived, or too much time has passed.
bool meet(std::atomic<int>& arrived, int expected) {
  ++arrived;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
       std::chrono::steady_clock::now() < end;) {
    if (arrived.load() >= expected) {
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

class Lanes : public ::testing::TestWithParam<int> {
 protected:
  ThreadCount threads_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Threads, Lanes, ::testing::Values(1, 2, 3, 8), ::testing::PrintToStringParamName());

TEST_P(Lanes, RunOnceEach) {
  for (const std::int64_t lanes : {1, 2, 3, 7, 20}) {
    EXPECT_EQ(lane_visits(lanes), std::vector<int>(static_cast<std::size_t>(lanes), 1));
  }
  ThreadPool::instance().for_each_lane(0, [](std::int64_t) { FAIL(); });
}

TEST_P(Lanes, ComputeWithThePool) {
  std::vector<std::int64_t> sums(3);
  ThreadPool::instance().for_each_lane(3, [&](std::int64_t lane) {
    std::atomic<std::int64_t> sum{0};
    for (int repeat = 0; repeat < 50; ++repeat) {
      ThreadPool::instance().for_each_chunk(10, [&](std::int64_t chunk) { sum += chunk; });
    }
    sums[static_cast<std::size_t>(lane)] = sum;
  });
  EXPECT_EQ(sums, (std::vector<std::int64_t>(3, 2250)));
}

TEST_P(Lanes, WithinALaneRunOneByOne) {
  std::atomic<int> ran{0};
  ThreadPool::instance().for_each_lane(2, [&](std::int64_t) {
    const auto me = std::this_thread::get_id();
    ThreadPool::instance().for_each_lane(3, [&](std::int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), me);
      ++ran;
    });
  });
  EXPECT_EQ(ran, 6);
}

TEST_P(Lanes, WithinAChunkRunOneByOne) {
  std::atomic<int> ran{0};
  ThreadPool::instance().for_each_chunk(4, [&](std::int64_t) {
    const auto me = std::this_thread::get_id();
    ThreadPool::instance().for_each_lane(3, [&](std::int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), me);
      ++ran;
    });
  });
  EXPECT_EQ(ran, 12);
}

TEST_P(Lanes, RethrowWhatTheLowestThrew) {
  EXPECT_EQ(message_of<ValueError>([] {
              ThreadPool::instance().for_each_lane(4, [](std::int64_t lane) {
                if (lane == 1 || lane == 3) {
                  throw ValueError("lane " + std::to_string(lane));
                }
              });
            }),
            "lane 1");
  EXPECT_EQ(lane_visits(4), std::vector<int>(4, 1));
}

TEST_P(Lanes, CarryTheCallersState) {
  const NoGradGuard no_grad;
  std::atomic<int> disabled{0};
  ThreadPool::instance().for_each_lane(4, [&](std::int64_t) { disabled += is_grad_enabled() ? 0 : 1; });
  EXPECT_EQ(disabled, 4);
}

TEST(LanesWithThreads, RunAtTheSameTime) {
  const ThreadCount threads(3);
  std::atomic<int> arrived{0};
  ThreadPool::instance().for_each_lane(3, [&](std::int64_t) { EXPECT_TRUE(meet(arrived, 3)); });
}

TEST(LanesWithThreads, SplitTheirOpsOverThreadsThatAreLeft) {
  const ThreadCount threads(4);
  std::vector<std::atomic<int>> arrived(2);
  ThreadPool::instance().for_each_lane(2, [&](std::int64_t lane) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // both lanes run by now and are counted
    ThreadPool::instance().for_each_chunk(
        2, [&](std::int64_t) { EXPECT_TRUE(meet(arrived[static_cast<std::size_t>(lane)], 2)); });
  });
}

TEST(LanesWithThreads, LeaveAllThreadsToTheNextOp) {
  const ThreadCount threads(2);
  ThreadPool::instance().for_each_lane(
      2, [&](std::int64_t) { ThreadPool::instance().for_each_chunk(2, [](std::int64_t) {}); });
  EXPECT_EQ(ThreadPool::instance().share(), 2);
  std::atomic<int> arrived{0};
  ThreadPool::instance().for_each_chunk(2, [&](std::int64_t) { EXPECT_TRUE(meet(arrived, 2)); });
}

TEST(LanesWithThreads, ServeSeveralCallers) {
  const ThreadCount threads(3);
  std::atomic<int> ran{0};
  std::vector<std::jthread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 200; ++repeat) {
        ThreadPool::instance().for_each_lane(
            2, [&](std::int64_t) { ThreadPool::instance().for_each_chunk(3, [&](std::int64_t) { ++ran; }); });
      }
    });
  }
  callers.clear();
  EXPECT_EQ(ran, 4 * 200 * 2 * 3);
}

TEST(LanesWithThreads, AreNotResizedMeanwhile) {
  const ThreadCount threads(2);
  std::atomic<int> refused{0};
  ThreadPool::instance().for_each_lane(2, [&](std::int64_t) {
    try {
      set_num_threads(3);
    } catch (const ConfigError&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace tandem::core
