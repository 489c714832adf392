#include <atomic>
#include <chrono>
#include <cstddef>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/shared_memory/shared_memory.h>
#include <tandem/tandem.h>

#include "gloo_ranks.h"
#include "support/count_down.h"
#include "support/message.h"

// Ranks of one host, which reduce in shared memory.

namespace tandem::parallel {
namespace {

using namespace std::chrono_literals;
using test::expect_no_errors;
using test::in_group;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

bool shares(const ProcessGroup& group) { return group.queue()->backend().shares_memory(); }

TEST(GlooMemory, IsSharedByGroupsAndSubGroupsOfOneHost) {
  expect_no_errors(in_group(3, [](ProcessGroup& group) {
    EXPECT_TRUE(shares(group));
    if (const auto some = group.new_group({0, 2})) {
      EXPECT_TRUE(shares(*some));
    }
  }));
  const auto store = std::make_shared<MemoryStore>();
  test::on_threads(2, [&](int rank) {
    const ProcessGroup group(gloo_backend({.store = store, .rank = rank, .size = 2, .shared_memory = false}));
    EXPECT_FALSE(shares(group));
  });
}

// Calls of one piece and of several, in an order in which every piece's place is used by both.
TEST(GlooMemory, CallsOfAnyLengthFollowEachOther) {
  expect_no_errors(in_group(3, [](ProcessGroup& group) {
    for (const std::int64_t numel : {1, 300'000, 1, 262'144, 262'145, 2, 1'500'001, 3, 63, 64, 65, 800'000, 800'000}) {
      const Tensor x = arange(numel) + 1.0 * group.rank();  // sums are exact
      const Tensor expected = arange(numel) * 3.0 + 3.0;
      group.all_reduce(x);
      EXPECT_EQ(x.to_vector<float>(), expected.to_vector<float>()) << numel;
    }
    const Tensor none = zeros({0});
    group.all_reduce(none);
  }));
}

TEST(GlooMemory, MessagesToARankThatWaitsAreKept) {
  expect_no_errors(in_group(2, [](ProcessGroup& group) {
    const Tensor x = ones({400'000});
    PlannedCollective plan = group.plan_all_reduce(x.raw());
    if (group.rank() == 1) {
      for (int tag = 0; tag < 12; ++tag) {  // more than may be in flight to a rank that does not read
        group.send(full({3}, 1.0 * tag), 0, tag);
      }
    }
    plan.run();
    if (group.rank() == 0) {
      for (int tag = 11; tag >= 0; --tag) {
        const Tensor message = zeros({3});
        group.recv(message, 1, tag);
        EXPECT_EQ(message[2].item(), tag);
      }
    }
  }));
}

TEST(GlooMemory, WhoLeavesOrFailsIsNoticedByWhoWaits) {
  const auto wait_in_a_plan = [](ProcessGroup& group, const auto& odd, std::chrono::milliseconds timeout = 20s) {
    const Tensor x = ones({500'000});
    PlannedCollective plan = group.plan_all_reduce(x.raw());
    plan.run();
    group.set_timeout(timeout);
    group.rank() == 0 ? odd(group) : plan.run();
  };
  const auto left = in_group(3, [&](ProcessGroup& group) { wait_in_a_plan(group, [](ProcessGroup&) {}); });
  const auto failed = in_group(3, [&](ProcessGroup& group) {
    wait_in_a_plan(group, [](ProcessGroup& own) { own.abort("the user pressed stop"); });
  });
  std::latch missed(2);
  const auto late = in_group(3, [&](ProcessGroup& group) {
    const test::CountDown at_the_end(missed, group.rank() == 0 ? 0 : 1);
    wait_in_a_plan(group, [&](ProcessGroup&) { missed.wait(); }, 200ms);
  });
  for (const std::size_t rank : {1U, 2U}) {  // without notice each error would be a timeout
    ASSERT_TRUE(left[rank] && failed[rank] && late[rank]);
    EXPECT_THAT(left[rank]->what(), HasSubstr("rank 0 is lost: it destroyed its process group"));
    EXPECT_EQ(left[rank]->details().rank, 0);
    EXPECT_THAT(failed[rank]->what(), HasSubstr("aborted by rank 0: the user pressed stop"));
    EXPECT_EQ(late[rank]->details().fault, CommFault::timeout) << late[rank]->what();
    EXPECT_EQ(late[rank]->details().rank, 0) << late[rank]->what();
  }
}

// A rank that checks on a late rank may find that rank's next call, because the late rank has caught up meanwhile.
TEST(GlooMemory, RanksThatAreShortOfCpuAreNotBlamed) {
  std::atomic<bool> over = false;
  std::vector<std::thread> busy;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    busy.emplace_back([&] {
      while (!over) {
      }
    });
  }
  const auto end = Clock::now() + 2s;
  expect_no_errors(in_group(2, [&](ProcessGroup& group) {
    const Tensor x = ones({700'001});
    Tensor goes_on = ones({1});
    PlannedCollective plan = group.plan_all_reduce(x.raw(), ReduceOp::avg);
    while (goes_on.item() != 0) {
      plan.run();
      group.broadcast(ones({1400}), 0);
      group.new_group({0, 1})->all_reduce(ones({1000}));  // and leaves
      goes_on.fill_(Clock::now() < end ? 1 : 0);
      group.broadcast(goes_on, 0);
    }
    EXPECT_EQ(x[700'000].item(), 1);
  }));
  over = true;
  for (std::thread& thread : busy) {
    thread.join();
  }
}

TEST(SharedMemory, IsNoFileBeyondTheLimitOfFiles) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1 << 16, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THAT(test::message_of<IoError>([] { SharedMemory(0, 2, 1 << 20); }), HasSubstr("(ulimit -f)"));
  expect_no_errors(in_group(2, [](ProcessGroup& group) {
    EXPECT_FALSE(shares(group));
    group.all_reduce(ones({100'000}));
  }));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

TEST(SharedMemory, IsNotOpenedByWhoMeansAnother) {
  SharedMemory own(0, 2, 1 << 16);
  SharedMemory other(1, 2, 1 << 16);
  const SharedMemory::Address address = other.address();
  SharedMemory::Address forged = address;
  forged.cookie[5] ^= 1;
  SharedMemory::Address smaller = address;
  smaller.bytes -= 4096;
  SharedMemory::Address no_memory = address;
  no_memory.descriptor = 0;  // stdin
  for (const SharedMemory::Address& wrong : {forged, smaller, no_memory, SharedMemory::Address{}}) {
    EXPECT_FALSE(own.open(1, wrong));
  }
  EXPECT_TRUE(own.open(1, address));
  other.part(1)[100] = std::byte{7};
  EXPECT_EQ(own.part(1)[100], std::byte{7});
  other.seal();
  EXPECT_FALSE(own.open(1, address));
  EXPECT_EQ(own.part(1)[100], std::byte{7});
}

}  // namespace
}  // namespace tandem::parallel
