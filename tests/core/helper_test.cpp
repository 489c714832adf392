#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/helper.h>
#include <tandem/core/thread_pool.h>
#include <tandem/core/thread_state.h>

#include "support/message.h"
#include "support/thread_count.h"

namespace tandem::core {
namespace {

using test::message_of;

TEST(Helper, RunsItsTaskOnAnotherThread) {
  std::thread::id ran_on;
  Helper helper([&] { ran_on = std::this_thread::get_id(); });
  helper.join();
  EXPECT_NE(ran_on, std::thread::id());
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST(Helper, DestructorWaitsForTheTask) {
  bool done = false;
  {
    const Helper helper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
    });
  }
  EXPECT_TRUE(done);
}

TEST(Helper, JoinRethrowsOnce) {
  Helper helper([] { throw AutogradError("in the helper"); });
  EXPECT_EQ(message_of<AutogradError>([&] { helper.join(); }), "in the helper");
  EXPECT_NO_THROW(helper.join()) << "joined already";
}

TEST(Helper, RethrowsWhatIsNoTandemError) {
  Helper helper([] { throw std::out_of_range("x"); });
  EXPECT_THROW(helper.join(), std::out_of_range);
}

TEST(Helper, DestructorSwallowsTheException) {
  EXPECT_NO_THROW({ const Helper helper([] { throw IoError("nobody asks"); }); });
  // The thread is used again: no error may be left on it.
  for (int i = 0; i < 8; ++i) {
    Helper next([] {});
    EXPECT_NO_THROW(next.join());
  }
}

TEST(Helper, ReusesThreads) {
  std::thread::id first;
  Helper([&] { first = std::this_thread::get_id(); }).join();
  int same = 0;
  for (int i = 0; i < 20; ++i) {
    std::thread::id next;
    Helper([&] { next = std::this_thread::get_id(); }).join();
    same += next == first;
  }
  EXPECT_EQ(same, 20);
}

// Tasks may wait for each other: each has a thread of its own, however few the pool has.
TEST(Helper, EachTaskHasItsOwnThread) {
  const test::ThreadCount one(1);
  constexpr int kTasks = 12;
  std::atomic<int> arrived{0};
  const auto meet = [&] {
    ++arrived;
    while (arrived < kTasks + 1)
      std::this_thread::yield();
  };
  std::vector<Helper> helpers;
  for (int i = 0; i < kTasks; ++i) {
    helpers.emplace_back(meet);
  }
  meet();
  for (Helper& helper : helpers)
    helper.join();
  EXPECT_EQ(arrived, kTasks + 1);
}

TEST(Helper, CarriesTheStateOfItsMaker) {
  ThreadState state = thread_state();
  state.device = Device("cpu:2");
  state.grad_enabled = false;
  const ModuleScope module{"fc1", "Linear", nullptr};
  state.scope = &module;
  ThreadState seen;
  {
    const ThreadStateScope scope(state);
    Helper([&] { seen = thread_state(); }).join();
  }
  EXPECT_EQ(seen.device, Device("cpu:2"));
  EXPECT_FALSE(seen.grad_enabled);
  EXPECT_EQ(seen.scope, &module);
  Helper([&] { seen = thread_state(); }).join();
  EXPECT_EQ(seen.device, Device()) << "and nothing stays behind on the thread";
  EXPECT_TRUE(seen.grad_enabled);
  EXPECT_EQ(seen.scope, nullptr);
}

TEST(Helper, WhatATaskChangesEndsWithIt) {
  Helper([] { thread_state().grad_enabled = false; }).join();
  bool enabled = false;
  Helper([&] { enabled = thread_state().grad_enabled; }).join();
  EXPECT_TRUE(enabled);
  EXPECT_TRUE(thread_state().grad_enabled);
}

TEST(Helper, LetsGoOfTheTaskBeforeJoinReturns) {
  auto owned = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = owned;
  Helper helper([kept = std::move(owned)] {});
  helper.join();
  EXPECT_TRUE(watch.expired());
}

TEST(Helper, MayBeMoved) {
  std::atomic<int> runs{0};
  Helper first([&] { ++runs; });
  Helper second(std::move(first));
  second.join();
  EXPECT_EQ(runs, 1);
  EXPECT_NO_THROW(first.join()) << "moved from: nothing to wait for";  // NOLINT(bugprone-use-after-move)
}

TEST(Helper, MayMakeHelpersAndUseThePool) {
  const test::ThreadCount threads(3);
  std::atomic<int> chunks{0};
  Helper outer([&] {
    Helper inner([&] { ThreadPool::instance().for_each_chunk(7, [&](std::int64_t) { ++chunks; }); });
    ThreadPool::instance().for_each_chunk(5, [&](std::int64_t) { ++chunks; });
    inner.join();
  });
  ThreadPool::instance().for_each_chunk(3, [&](std::int64_t) { ++chunks; });
  outer.join();
  EXPECT_EQ(chunks, 15);
}

TEST(Helper, ManyThreadsMakeHelpersAtOnce) {
  std::atomic<int> runs{0};
  {
    std::vector<std::jthread> makers;
    for (int maker = 0; maker < 4; ++maker) {
      makers.emplace_back([&] {
        for (int i = 0; i < 50; ++i)
          Helper([&] { ++runs; }).join();
      });
    }
  }
  EXPECT_EQ(runs, 200);
}

TEST(Helper, AnEmptyTaskIsAnErrorNotAWaitForever) { EXPECT_THROW(Helper(std::function<void()>()), ConfigError); }

}  // namespace
}  // namespace tandem::core
