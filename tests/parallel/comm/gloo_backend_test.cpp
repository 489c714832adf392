#include <chrono>
#include <cstddef>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/comm/alarm.h>
#include <tandem/tandem.h>

#include "gloo_ranks.h"
#include "support/clock.h"
#include "support/count_down.h"

// How ranks over Gloo learn of failures, and behaviour that only long data shows.

namespace tandem::parallel {
namespace {

using namespace std::chrono_literals;
using test::in_group;
using test::seconds_since;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Much longer than an error takes to arrive, much shorter than a deadline.
constexpr double kSoon = 15;

// The late rank is rank 0, so it is the first missing one, whenever the other rank comes.
TEST(GlooFaults, ATimeoutIsToldToEveryRank) {
  std::latch missed(2);
  const auto errors = in_group(3, [&](ProcessGroup& group) {
    const test::CountDown at_the_end(missed, group.rank() == 0 ? 0 : 1);
    group.barrier();
    if (group.rank() == 0) {
      missed.wait();
    } else {
      group.set_timeout(200ms);
    }
    group.all_reduce(ones({4}));
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->details().fault, CommFault::timeout) << error->what();
    EXPECT_EQ(error->details().rank, 0) << error->what();
    EXPECT_STREQ(error->details().op, "all_reduce");
  }
}

TEST(GlooFaults, LeavingIsNoticedAtOnce) {
  const auto begin = Clock::now();
  const auto errors = in_group(3, [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() != 2) {
      group.all_reduce(ones({100000}));
    }
  });
  EXPECT_FALSE(errors[2]);
  for (int rank : {0, 1}) {
    EXPECT_EQ(errors[static_cast<std::size_t>(rank)]->details().rank, 2);
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)]->what(),
                HasSubstr("rank 2 is lost: it destroyed its process group"));
  }
  EXPECT_LT(seconds_since(begin), kSoon);
}

TEST(GlooFaults, AbortWakesAllRanksAndSaysWhy) {
  const auto begin = Clock::now();
  const auto errors = in_group(3, [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) {
      std::this_thread::sleep_for(100ms);
      group.abort("the user pressed stop");
      group.barrier();
    }
    group.all_reduce(ones({500000}));
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->details().fault, CommFault::aborted);
    EXPECT_THAT(error->what(), HasSubstr("aborted by rank 1: the user pressed stop"));
  }
  EXPECT_LT(seconds_since(begin), kSoon);
}

TEST(GlooFaults, TheAlarmEndsCallsOfAllGroups) {
  const auto alarm = std::make_shared<Alarm>();
  std::thread ringer([&] {
    std::this_thread::sleep_for(300ms);
    alarm->ring(CommError("rank 7 (pid 4711) was killed by signal 9", {.fault = CommFault::peer_lost, .rank = 7}));
  });
  const auto errors = in_group(
      2,
      [](ProcessGroup& group) {
        const auto both = group.new_group({0, 1});
        if (group.rank() == 0) {
          both->barrier();
        } else {
          group.barrier();
        }
      },
      20s, alarm);
  ringer.join();
  for (const auto& error : errors) {
    EXPECT_STREQ(error->what(), "rank 7 (pid 4711) was killed by signal 9");
  }
}

TEST(GlooMessages, AreTakenBySenderAndTagOfAnySize) {
  const auto errors = in_group(2, [](ProcessGroup& group) {
    constexpr std::int64_t kLong = 3'000'000;
    const int other = 1 - group.rank();
    for (const std::int64_t numel : {std::int64_t{0}, std::int64_t{10}, kLong}) {
      for (int tag = 0; tag < 20; ++tag) {  // both ranks send first
        group.send(full({numel}, tag + 100.0 * group.rank()), other, tag);
      }
      for (int tag = 19; tag >= 0; --tag) {
        const Tensor tensor = zeros({numel});
        group.recv(tensor, other, tag);
        EXPECT_EQ(tensor.sum().item(), static_cast<double>(numel) * (tag + 100.0 * other)) << numel << " " << tag;
      }
      group.barrier();
    }
    const Tensor mine = full({kLong}, 1.0 * group.rank());
    Work sent = group.isend(mine, other, 1);
    const Tensor theirs = zeros({kLong});
    group.irecv(theirs, other, 1).wait();
    sent.wait();
    EXPECT_EQ(theirs[kLong - 1].item(), other);
  });
  for (const auto& error : errors) {
    EXPECT_FALSE(error) << error->what();
  }
}

// A long message stays with its sender until it is received.
TEST(GlooMessages, ArriveAlthoughTheSenderIsDone) {
  const auto errors = in_group(2, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      group.send(full({1'000'000}, 3.0), 1);
      group.send(full({3}, 4.0), 1, 1);
    } else {
      std::this_thread::sleep_for(200ms);
      const Tensor tensor = zeros({1'000'000});
      group.recv(tensor, 0);
      EXPECT_EQ(tensor[999'999].item(), 3);
      const Tensor small = zeros({3});
      group.recv(small, 0, 1);
      EXPECT_EQ(small[2].item(), 4);
    }
  });
  for (const auto& error : errors) {
    EXPECT_FALSE(error) << error->what();
  }
}

// f16 and bf16: the result equals a sum of all ranks' values in f32, rounded once, even if the slices are long.
TEST(GlooReduce, RoundsOnceAndGivesEveryRankTheSameBits) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    constexpr std::int64_t kNumel = 1'000'003;
    std::vector<std::vector<double>> results(3);
    const auto part = [&](int rank) { return (arange(kNumel) * (0.001 * (rank + 1)) + 1.0 / 3.0).to(dtype); };
    const auto errors = in_group(3, [&](ProcessGroup& group) {
      const Tensor tensor = part(group.rank());
      group.all_reduce(tensor, ReduceOp::avg);
      results[static_cast<std::size_t>(group.rank())] = tensor.to(DType::f64).to_vector<double>();
    });
    const auto f32 = [&](int rank) { return part(rank).to(DType::f32); };
    const Tensor expected = ((f32(0) + f32(1) + f32(2)) / 3.0).to(dtype);
    EXPECT_EQ(results[0], expected.to(DType::f64).to_vector<double>());
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

}  // namespace
}  // namespace tandem::parallel
