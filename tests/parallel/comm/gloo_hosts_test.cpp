#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/tandem.h>

#include "gloo_ranks.h"
#include "support/count_down.h"
#include "whole_numbers.h"

// Several hosts with several ranks: addresses of the loopback network stand for hosts. Each host's ranks reduce in
// shared memory, and one rank of each host talks to the others.

namespace tandem::parallel {
namespace {

using namespace std::chrono_literals;
using test::expect_no_errors;
using test::on_hosts;
using ::testing::HasSubstr;

/// The host of each rank.
using Hosts = std::vector<int>;

const std::vector<Hosts> kLayouts = {{0, 0, 1, 1}, {0, 1, 1, 1}, {0, 1, 2, 0}, {1, 0, 1, 0, 1}};

// Longer tensors do not travel in mails.
constexpr std::int64_t kMailPayload = 64 << 10;  // bytes

/// The ranks of each host, hosts in the order of their lowest rank.
std::vector<std::vector<int>> ranks_by_host(const Hosts& hosts) {
  std::vector<std::vector<int>> ranks;
  Hosts seen;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const auto at = std::find(seen.begin(), seen.end(), hosts[r]) - seen.begin();
    if (at == std::ssize(seen)) {
      seen.push_back(hosts[r]);
      ranks.emplace_back();
    }
    ranks[static_cast<std::size_t>(at)].push_back(static_cast<int>(r));
  }
  return ranks;
}

/// Combines the ranks' values as documented: in rank order within a host, then in the order of hosts.
Tensor by_hosts(const Hosts& hosts, const std::function<Tensor(int)>& values) {
  std::optional<Tensor> all;
  for (const std::vector<int>& ranks : ranks_by_host(hosts)) {
    Tensor host = values(ranks.front());
    for (std::size_t k = 1; k < ranks.size(); ++k) {
      host = host + values(ranks[k]);
    }
    all = all ? *all + host : host;
  }
  return *all;
}

/// Values whose sum depends on the order of summation.
Tensor rough(int rank, std::int64_t numel, DType dtype) {
  return (arange(numel) * (0.001 * (rank + 1)) + 1.0 / (3 + rank)).to(dtype);
}

std::vector<double> numbers_of(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

TEST(GlooHosts, EveryTypeAndOpGivesTheResultOfOneProcess) {
  for (const Hosts& hosts : kLayouts) {
    const int ranks = static_cast<int>(hosts.size());
    expect_no_errors(on_hosts(hosts, [&](ProcessGroup& group) {
      EXPECT_FALSE(group.queue()->backend().shares_memory());
      for (const DType dtype :
           {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean}) {
        const std::int64_t border = kMailPayload / static_cast<std::int64_t>(item_size(dtype));
        for (const std::int64_t numel : {std::int64_t{0}, std::int64_t{1}, border / 4 + 1, border, border + 1}) {
          for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
            if (op == ReduceOp::avg && !is_floating_point(dtype)) {
              continue;
            }
            const Tensor x = test::whole_numbers(group.rank(), 0, numel, dtype);
            group.all_reduce(x, op);
            EXPECT_EQ(numbers_of(x), numbers_of(test::reduced(ranks, 0, numel, dtype, op)))
                << name(dtype) << " " << to_string(op) << " " << numel << " of " << ranks;
          }
        }
      }
    }));
  }
}

TEST(GlooHosts, SumInTheOrderOfRanksWithinAHostAndThenOfHostsToTheSameBitsEachTime) {
  for (const Hosts& hosts : kLayouts) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::int64_t numel : {1000, 20'000, (5 << 18) + 1}) {  // up to 5 MiB
        const Tensor sum = by_hosts(hosts, [&](int rank) { return rough(rank, numel, dtype).to(DType::f32); });
        const auto expected = numbers_of(sum.to(dtype));  // 16-bit types are rounded once
        const auto average = numbers_of((sum / static_cast<double>(hosts.size())).to(dtype));
        expect_no_errors(on_hosts(hosts, [&](ProcessGroup& group) {
          Tensor x = rough(group.rank(), numel, dtype);
          PlannedCollective plan = group.plan_all_reduce(x.raw());
          plan.run();
          EXPECT_TRUE(numbers_of(x) == expected) << dtype << " " << numel;
          for (int repetition = 0; repetition < 2; ++repetition) {
            x.copy_(rough(group.rank(), numel, dtype));
            group.all_reduce(x, ReduceOp::avg);
            EXPECT_TRUE(numbers_of(x) == average) << dtype << " " << numel;
          }
        }));
      }
    }
  }
}

// In an order in which every piece's place in shared memory is used by every step.
TEST(GlooHosts, CallsOfAnyKindAndLengthFollowEachOther) {
  expect_no_errors(on_hosts({0, 1, 1, 0}, [](ProcessGroup& group) {
    const Tensor planned = ones({300'000});
    PlannedCollective plan = group.plan_all_reduce(planned.raw(), ReduceOp::avg);
    for (const std::int64_t numel : {1, 300'000, 1, 262'144, 262'145, 20'000, 1'500'001, 3, 30'000, 800'000, 800'000}) {
      const Tensor x = arange(numel) + 1.0 * group.rank();  // sums are exact
      const Tensor expected = arange(numel) * 4.0 + 6.0;
      group.send(full({3}, 1.0 * group.rank()), group.rank() ^ 1);  // kept while ranks reduce
      group.all_reduce(x);
      EXPECT_EQ(x.to_vector<float>(), expected.to_vector<float>()) << numel;
      plan.start();
      plan.wait();
      const Tensor message = zeros({3});
      group.recv(message, group.rank() ^ 1);
      EXPECT_EQ(message[2].item(), group.rank() ^ 1);
      const Tensor from_root = full({numel}, 1.0 * group.rank());
      group.broadcast(from_root, 2);
      EXPECT_EQ(from_root[numel - 1].item(), 2);
    }
    EXPECT_EQ(planned[299'999].item(), 1);
  }));
}

TEST(GlooHosts, SubGroupsKnowTheirHosts) {
  const Hosts hosts = {0, 0, 1, 1};
  expect_no_errors(on_hosts(hosts, [&](ProcessGroup& group) {
    for (const std::vector<int>& members : {std::vector{1, 2, 3}, std::vector{0, 1}, std::vector{0, 2}}) {
      const auto some = group.new_group(members);
      if (some == nullptr) {
        continue;
      }
      EXPECT_EQ(some->queue()->backend().shares_memory(), members == std::vector({0, 1}));
      Hosts their_hosts;
      for (const int member : members) {
        their_hosts.push_back(hosts[static_cast<std::size_t>(member)]);
      }
      const auto part = [](int rank) { return rough(rank, 200'000, DType::f32); };
      const Tensor x = part(some->rank());
      some->all_reduce(x);
      EXPECT_TRUE(numbers_of(x) == numbers_of(by_hosts(their_hosts, part)));
    }
    group.barrier();
  }));
}

TEST(GlooHosts, OneRankWithoutSharedMemoryTurnsItOffForAll) {
  const auto part = [](int rank) { return rough(rank, 200'000, DType::f32); };
  const auto in_rank_order = numbers_of(part(0) + part(1) + part(2) + part(3));
  ASSERT_NE(in_rank_order, numbers_of(by_hosts({0, 0, 1, 1}, part)));
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 0, 0, 0}}) {
    for (const int odd : {0, 3}) {
      const auto off = [&](GlooOptions& options) { options.shared_memory = options.rank != odd; };
      expect_no_errors(on_hosts(
          hosts,
          [&](ProcessGroup& group) {
            EXPECT_FALSE(group.queue()->backend().shares_memory());
            const Tensor x = part(group.rank());
            group.all_reduce(x);
            EXPECT_TRUE(numbers_of(x) == in_rank_order);
          },
          20s, off));
    }
  }
}

TEST(GlooHosts, CallsThatDifferAreNamedAndMoveNothing) {
  for (const bool planned : {false, true}) {
    for (const int odd : {0, 1, 2, 3}) {
      const auto errors = on_hosts({0, 0, 1, 1}, [&](ProcessGroup& group) {
        const Tensor x = ones({200'000});
        const Tensor other = ones({200'001});
        PlannedCollective plan = group.plan_all_reduce(x.raw());
        PlannedCollective second = group.plan_all_reduce(other.raw());
        try {
          if (planned) {
            (group.rank() == odd ? second : plan).run();
          } else {
            group.all_reduce(group.rank() == odd ? other : x);
          }
        } catch (const CommError&) {
          EXPECT_EQ(x.sum().item(), 200'000);
          EXPECT_EQ(other.sum().item(), 200'001);
          throw;
        }
      });
      for (const auto& error : errors) {
        ASSERT_TRUE(error);
        EXPECT_EQ(error->details().fault, CommFault::mismatch) << error->what();
        EXPECT_EQ(error->details().rank, odd) << error->what();
        EXPECT_THAT(error->what(), HasSubstr("[200001]"));
      }
    }
  }
}

TEST(GlooHosts, WhoLeavesOrFailsOrIsLateIsNamedOnEveryHost) {
  const Hosts hosts = {0, 0, 1, 1};
  for (const int odd : {0, 1, 2, 3}) {
    const auto wait_in_a_plan = [&](ProcessGroup& group, const auto& act, std::chrono::milliseconds timeout = 20s) {
      const Tensor x = ones({500'000});
      PlannedCollective plan = group.plan_all_reduce(x.raw());
      plan.run();
      group.set_timeout(timeout);
      group.rank() == odd ? act(group) : plan.run();
    };
    const auto left = on_hosts(hosts, [&](ProcessGroup& group) { wait_in_a_plan(group, [](ProcessGroup&) {}); });
    const auto failed = on_hosts(hosts, [&](ProcessGroup& group) {
      wait_in_a_plan(group, [](ProcessGroup& own) { own.abort("the user pressed stop"); });
    });
    std::latch missed(3);
    const auto late = on_hosts(hosts, [&](ProcessGroup& group) {
      const test::CountDown at_the_end(missed, group.rank() == odd ? 0 : 1);
      wait_in_a_plan(group, [&](ProcessGroup&) { missed.wait(); }, 300ms);
    });
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      if (static_cast<int>(rank) == odd) {
        continue;
      }
      ASSERT_TRUE(left[rank] && failed[rank] && late[rank]);
      EXPECT_EQ(left[rank]->details().rank, odd) << left[rank]->what();
      EXPECT_THAT(left[rank]->what(), HasSubstr("it destroyed its process group"));
      EXPECT_THAT(failed[rank]->what(), HasSubstr("the user pressed stop"));
      EXPECT_EQ(failed[rank]->details().rank, odd) << failed[rank]->what();
      EXPECT_EQ(late[rank]->details().fault, CommFault::timeout) << late[rank]->what();
      EXPECT_EQ(late[rank]->details().rank, odd) << late[rank]->what();
    }
  }
}

}  // namespace
}  // namespace tandem::parallel
