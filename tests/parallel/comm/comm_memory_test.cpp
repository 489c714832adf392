#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <thread>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/ranks.h"
#include "support/count_news.h"

namespace tandem::parallel {
namespace {

using test::news;

TEST(CommMemory, PlansAllocateNothing) {
  test::ignored_bytes = test::tested_backend() == "local" ? 0 : 1000;
  test::as_ranks(2, [](ProcessGroup& group) {
    const Tensor memory = ones({3000});
    PlannedCollective plan = group.plan_all_reduce(memory.raw(), ReduceOp::avg);
    const Work started = group.all_reduce(memory, ReduceOp::avg, true);  // starts the group's thread
    while (!started.done()) {
      std::this_thread::yield();
    }
    plan.run();  // afterwards both threads have run a kernel
    group.barrier();
    const std::uint64_t before = news.load();
    for (int i = 0; i < 100; ++i) {
      plan.start();
      plan.wait();
      plan.run();
    }
    const std::uint64_t after = news.load();
    plan.run();  // no rank continues before both have counted
    EXPECT_EQ(after, before);
  });
}

}  // namespace
}  // namespace tandem::parallel
