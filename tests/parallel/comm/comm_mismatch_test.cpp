#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/ranks.h"

namespace tandem::parallel {
namespace {

using test::as_ranks;
using test::comm_errors;
using test::message_of;
using ::testing::HasSubstr;

// A call that one rank might make by mistake, and its name in the error.
struct WrongCall {
  std::string text;
  std::function<void(ProcessGroup&, PlannedCollective&)> make;
};

Tensor four(DType dtype = DType::f32) { return ones({4}, {.dtype = dtype}); }

std::vector<Tensor> fours(const ProcessGroup& group, bool wanted = true) {
  std::vector<Tensor> list;
  for (int r = 0; wanted && r < group.size(); ++r) {
    list.push_back(four());
  }
  return list;
}

std::vector<WrongCall> wrong_calls() {
  using G = ProcessGroup;
  using P = PlannedCollective;
  return {
      {"broadcast f32 [4] from 0 (#1)", [](G& g, P&) { g.broadcast(four(), 0); }},
      {"broadcast f32 [4] from 1 (#1)", [](G& g, P&) { g.broadcast(four(), 1); }},
      {"broadcast i64 [4] from 0 (#1)", [](G& g, P&) { g.broadcast(four(DType::i64), 0); }},
      {"all_reduce f32 [4] sum (#1)", [](G& g, P&) { g.all_reduce(four()); }},
      {"all_reduce f64 [4] sum (#1)", [](G& g, P&) { g.all_reduce(four(DType::f64)); }},
      {"all_reduce bf16 [4] sum (#1)", [](G& g, P&) { g.all_reduce(four(DType::bf16)); }},
      {"all_reduce f32 [5] sum (#1)", [](G& g, P&) { g.all_reduce(ones({5})); }},
      {"all_reduce f32 [2, 2] sum (#1)", [](G& g, P&) { g.all_reduce(ones({2, 2})); }},
      {"all_reduce f32 [0] sum (#1)", [](G& g, P&) { g.all_reduce(ones({0})); }},
      {"all_reduce f32 [4] avg (#1)", [](G& g, P&) { g.all_reduce(four(), ReduceOp::avg); }},
      {"all_reduce f32 [4] max (#1)", [](G& g, P&) { g.all_reduce(four(), ReduceOp::max, true).wait(); }},
      {"reduce f32 [4] sum to 0 (#1)", [](G& g, P&) { g.reduce(four(), 0); }},
      {"reduce f32 [4] sum to 1 (#1)", [](G& g, P&) { g.reduce(four(), 1); }},
      {"reduce f32 [4] min to 1 (#1)", [](G& g, P&) { g.reduce(four(), 1, ReduceOp::min); }},
      {"all_gather f32 [4] (#1)", [](G& g, P&) { g.all_gather(fours(g), four()); }},
      {"all_gather f32 [1, 4] (#1)", [](G& g, P&) { g.all_gather_into_tensor(ones({g.size(), 4}), ones({1, 4})); }},
      {"reduce_scatter f32 [4] sum (#1)", [](G& g, P&) { g.reduce_scatter(four(), fours(g)); }},
      {"reduce_scatter f32 [4] product (#1)", [](G& g, P&) { g.reduce_scatter(four(), fours(g), ReduceOp::product); }},
      {"gather f32 [4] to 0 (#1)", [](G& g, P&) { g.gather(four(), fours(g, g.rank() == 0)); }},
      {"gather f32 [4] to 1 (#1)", [](G& g, P&) { g.gather(four(), fours(g, g.rank() == 1), 1); }},
      {"scatter f32 [4] from 0 (#1)", [](G& g, P&) { g.scatter(four(), fours(g, g.rank() == 0)); }},
      {"scatter f32 [4] from 1 (#1)", [](G& g, P&) { g.scatter(four(), fours(g, g.rank() == 1), 1); }},
      {"all_to_all f32 [4] (#1)", [](G& g, P&) { g.all_to_all(fours(g), fours(g)); }},
      {"all_to_all f32 [12] (#1)", [](G& g, P&) { g.all_to_all_single(ones({12}), ones({12})); }},
      {"barrier (#1)", [](G& g, P&) { g.barrier(); }},
      {"new_group of 1 ranks: 0 (#1)", [](G& g, P&) { g.new_group({0}); }},
      {"new_group of 1 ranks: 1 (#1)", [](G& g, P&) { g.new_group({1}); }},
      {"new_group of 2 ranks: 0, 1 (#1)", [](G& g, P&) { g.new_group({1, 0}); }},
      {"planned all_reduce f32 [4] sum of plan #0 (#1)", [](G&, P& plan) { plan.run(); }},
      {"planned all_reduce f32 [3] sum (#1)", [](G& g, P&) { g.plan_all_reduce(ones({3}).raw()); }},
      {"planned reduce_scatter f32 [2] sum (#1)", [](G& g, P&) { g.plan_reduce_scatter(ones({2 * g.size()}).raw()); }},
      {"planned all_gather f32 [2] (#1)", [](G& g, P&) { g.plan_all_gather(ones({2 * g.size()}).raw()); }},
      {"planned broadcast f32 [4] from 1 (#1)", [](G& g, P&) { g.plan_broadcast(four().raw(), 1); }},
      {"recv f32 [4] from ", [](G& g, P&) { g.recv(four(), (g.rank() + 1) % g.size(), 3); }},
  };
}

class Mismatch : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Mismatch, ::testing::Values(2, 3, 4), ::testing::PrintToStringParamName());

TEST_P(Mismatch, OfAnyTwoCallsIsToldToEveryRank) {
  const int ranks = GetParam();
  const std::vector<WrongCall> calls = wrong_calls();
  ASSERT_GE(calls.size(), 30U);
  // Connecting processes takes time, so with processes each call meets only some of the others.
  const std::size_t step = test::tested_backend() == "local" ? 1 : 11;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (std::size_t k = i % step; k < calls.size(); k += step) {
      const int odd = static_cast<int>(i + k) % ranks;
      if (i == k) {
        continue;
      }
      SCOPED_TRACE(calls[i].text + " and " + calls[k].text);
      const std::vector<CommError> errors = comm_errors(ranks, [&](ProcessGroup& group) {
        const Tensor memory = four();
        PlannedCollective plan = group.plan_all_reduce(memory.raw());
        calls[group.rank() == odd ? i : k].make(group, plan);
      });
      for (const CommError& error : errors) {
        ASSERT_EQ(error.details().fault, CommFault::mismatch) << error.what();
        ASSERT_STREQ(error.what(), errors.front().what());
        ASSERT_THAT(error.what(), HasSubstr("rank " + std::to_string(odd) + ": "));
        ASSERT_THAT(error.what(), HasSubstr(calls[i].text));
        ASSERT_THAT(error.what(), HasSubstr(calls[k].text));
      }
    }
  }
}

TEST(MismatchText, HasBothCallsSideBySideAndWhatToDo) {
  const auto errors = comm_errors(3, [](ProcessGroup& group) {
    group.barrier();
    group.rank() == 1 ? group.broadcast(four(), 0) : group.all_reduce(four());
  });
  EXPECT_STREQ(
      errors[2].what(),
      "process group: its ranks made different calls, and none was carried out: ranks 0, 2: all_reduce f32 [4] "
      "sum (#1); rank 1: broadcast f32 [4] from 0 (#1). All ranks of a group must make the same calls in the "
      "same order [TDM-E616]");
  EXPECT_EQ(errors[2].details().rank, 1);
  EXPECT_EQ(errors[2].details().sequence, 1);
  EXPECT_STREQ(errors[2].details().op, "all_reduce");
  EXPECT_EQ(errors[2].details().bytes, 16);
}

TEST(MismatchText, OfARecvNamesBothSides) {
  const auto errors = comm_errors(2, [](ProcessGroup& group) {
    group.rank() == 0 ? group.send(four(), 1, 5) : group.recv(ones({2, 2}), 0, 5);
    group.barrier();
  });
  for (const CommError& error : errors) {
    EXPECT_EQ(error.details().fault, CommFault::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("rank 0: send f32 [4] to 1, tag 5; rank 1: recv f32 [2, 2] from 0, tag 5"));
  }
}

TEST(MismatchText, OfTwoListsOfRanksShowsThem) {
  const auto errors = comm_errors(4, [](ProcessGroup& group) {
    group.new_group(group.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{0, 2});
  });
  EXPECT_THAT(errors[0].what(),
              HasSubstr("ranks 0, 1: new_group of 2 ranks: 0, 1 (#0); ranks 2, 3: new_group of 2 ranks: 0, 2 (#0)"));
  EXPECT_EQ(errors[0].details().rank, -1);  // no call has a majority
}

TEST(Mismatch, OfPlansStartedInAnotherOrderIsNoticed) {
  const auto errors = comm_errors(2, [](ProcessGroup& group) {
    const Tensor a = four();
    const Tensor b = four();
    PlannedCollective first = group.plan_all_reduce(a.raw());
    PlannedCollective second = group.plan_all_reduce(b.raw());
    (group.rank() == 0 ? first : second).start();
    (group.rank() == 0 ? second : first).start();
    first.wait();
    second.wait();
  });
  for (const CommError& error : errors) {
    EXPECT_EQ(error.details().fault, CommFault::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("rank 0: planned all_reduce f32 [4] sum of plan #0 (#2); rank 1: planned "
                                        "all_reduce f32 [4] sum of plan #1 (#2)"));
  }
}

TEST(Mismatch, LeavesTheTensorsAsTheyWere) {
  as_ranks(2, [](ProcessGroup& group) {
    const Tensor tensor = full({4}, 1 + group.rank());
    message_of<CommError>([&] { group.all_reduce(tensor, group.rank() == 0 ? ReduceOp::sum : ReduceOp::max); });
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(4, static_cast<float>(1 + group.rank())));
  });
}

}  // namespace
}  // namespace tandem::parallel
