#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/fork.h>
#include <tandem/core/thread_pool.h>

#include "support/forked.h"
#include "support/message.h"
#include "support/thread_count.h"

// The state of the core in a child whose parent was forked while other threads were working.

namespace tandem::core {
namespace {

using test::is_true_in_a_child;
using test::ThreadCount;

// Threads that repeat `work` as long as this object lives.
class Busy {
 public:
  template <class Work>
  Busy(int count, Work work) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([work](std::stop_token stop) {
        while (!stop.stop_requested())
          work();
      });
    }
  }

 private:
  std::vector<std::jthread> threads_;
};

std::vector<int> chunk_visits(std::int64_t chunks) {
  std::vector<std::atomic<int>> counts(static_cast<std::size_t>(chunks));
  ThreadPool::instance().for_each_chunk(chunks, [&](std::int64_t chunk) { ++counts[static_cast<std::size_t>(chunk)]; });
  return {counts.begin(), counts.end()};
}

TEST(Fork, AMutexIsFreeInTheChildAndWhatItGuardsWhole) {
  ForkSafeMutex outer;
  ForkSafeMutex inner;
  std::array<int, 2> pair{};
  const Busy busy(3, [&] {
    const std::lock_guard first(outer);
    const std::lock_guard second(inner);
    ++pair[0];
    std::this_thread::yield();
    ++pair[1];
  });
  const Busy other(1, [&] { const std::lock_guard lock(inner); });
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(is_true_in_a_child([&] {
      const std::lock_guard first(outer);
      const std::lock_guard second(inner);
      return pair[0] == pair[1];
    }));
  }
}

TEST(Fork, MutexesComeAndGoMeanwhile) {
  ForkSafeMutex outer;
  const Busy busy(3, [&] {
    const std::lock_guard lock(outer);
    ForkSafeMutex passing;
    const std::lock_guard other(passing);
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(is_true_in_a_child([&] {
      const std::lock_guard lock(outer);
      ForkSafeMutex own;
      const std::lock_guard other(own);
      return true;
    }));
  }
}

// Helpers were about to sleep or to wake up at the fork; the child must not wait for their locks.
TEST(Fork, AChildOfAPoolComputes) {
  TANDEM_NEEDS_THREADS_IN_A_CHILD();
  const ThreadCount count(4);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(chunk_visits(16), std::vector<int>(16, 1));
    ASSERT_TRUE(is_true_in_a_child([] {
      const bool right = num_threads() == 1 && chunk_visits(16) == std::vector<int>(16, 1);
      set_num_threads(2);
      return right && chunk_visits(16) == std::vector<int>(16, 1);
    })) << "child "
        << i;
    ASSERT_EQ(num_threads(), 4);
  }
}

// Other threads were inside calls that will never end in the child.
TEST(Fork, AChildForgetsTheCallsOfThreadsItDoesNotHave) {
  TANDEM_NEEDS_THREADS_IN_A_CHILD();
  const ThreadCount count(4);
  const Busy busy(3, [] { chunk_visits(8); });
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(is_true_in_a_child([] {
      set_num_threads(2);
      return chunk_visits(16) == std::vector<int>(16, 1) && ThreadPool::instance().share() == 2;
    })) << "child "
        << i;
  }
}

}  // namespace
}  // namespace tandem::core
