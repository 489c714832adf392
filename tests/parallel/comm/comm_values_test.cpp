#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/ranks.h"
#include "whole_numbers.h"

// Every collective for every dtype, several sizes and several numbers of ranks, compared with loops over the ranks'
// values.

namespace tandem::parallel {
namespace {

using test::as_ranks;
using test::as_ranks_of;
using test::Carrier;
using test::reduced;
using test::whole_numbers;

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16,
                             DType::i64, DType::i32, DType::u8,   DType::boolean};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::product};

bool is_defined(DType dtype, ReduceOp op) { return op != ReduceOp::avg || is_floating_point(dtype); }

void expect_same(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.dtype(), expected.dtype());
  EXPECT_EQ(got.to(DType::f64).to_vector<double>(), expected.to(DType::f64).to_vector<double>()) << what;
}

// Runs before anything looks for GPUs; real GPUs ignore the variable.
[[gnu::constructor(101)]] void want_four_emulated_gpus() { setenv("EMULATED_GPU_COUNT", "4", 0); }

class Collectives : public ::testing::TestWithParam<std::tuple<Carrier, int, std::int64_t>> {
 protected:
  void SetUp() override {
    if (const std::string why = test::why_not(carrier_, ranks_); !why.empty()) {
      GTEST_SKIP() << why;
    }
    if (carrier_ == Carrier::local && ranks_ == 4) {
      TANDEM_SKIP_ON_GPU("three ranks that share a GPU are enough");
    }
  }

  const Carrier carrier_ = std::get<0>(GetParam());
  const int ranks_ = std::get<1>(GetParam());
  const std::int64_t count_ = std::get<2>(GetParam());

  // Calls body(group, dtype) on each rank for each dtype.
  template <class Body>
  void for_each_dtype(const Body& body) const {
    as_ranks_of(carrier_, ranks_, [&](ProcessGroup& group) {
      for (const DType dtype : kDTypes) {
        body(group, dtype);
      }
    });
  }
  template <class Body>
  void for_each_op(const Body& body) const {
    for_each_dtype([&](ProcessGroup& group, DType dtype) {
      for (const ReduceOp op : kOps) {
        if (is_defined(dtype, op)) {
          body(group, dtype, op);
        }
      }
    });
  }
  // Returns whole_numbers(rank, p * count, count) for each p.
  std::vector<Tensor> parts(int rank, DType dtype) const {
    std::vector<Tensor> list;
    for (int p = 0; p < ranks_; ++p) {
      list.push_back(whole_numbers(rank, p * count_, count_, dtype));
    }
    return list;
  }
  std::vector<Tensor> empty_parts(DType dtype) const {
    std::vector<Tensor> list;
    for (int p = 0; p < ranks_; ++p) {
      list.push_back(empty({count_}, {.dtype = dtype}));
    }
    return list;
  }
};
std::string name_of(const ::testing::TestParamInfo<Collectives::ParamType>& test) {
  return test::to_string(std::get<0>(test.param)) + std::to_string(std::get<1>(test.param)) + "Ranks" +
         std::to_string(std::get<2>(test.param)) + "Elements";
}
INSTANTIATE_TEST_SUITE_P(RanksAndSizes, Collectives,
                         ::testing::Combine(::testing::Values(Carrier::local), ::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(0, 1, 7, 1000, 70001)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Others, Collectives,
                         ::testing::Combine(::testing::Values(Carrier::local_of_gpus, Carrier::staged),
                                            ::testing::Values(2, 3), ::testing::Values(0, 7, 1000)),
                         name_of);
// NCCL computes averages as sums of values times 1/ranks.
INSTANTIATE_TEST_SUITE_P(Nccl, Collectives,
                         ::testing::Combine(::testing::Values(Carrier::nccl), ::testing::Values(1, 2, 4),
                                            ::testing::Values(0, 7, 1000)),
                         name_of);

TEST_P(Collectives, AllReduceGivesEveryRankTheReduction) {
  for_each_op([&](ProcessGroup& group, DType dtype, ReduceOp op) {
    const Tensor tensor = whole_numbers(group.rank(), 0, count_, dtype);
    group.all_reduce(tensor, op);
    expect_same(tensor, reduced(ranks_, 0, count_, dtype, op), to_string(op));
  });
}

TEST_P(Collectives, ReduceGivesItToOneRankAndLeavesTheOthersAlone) {
  for_each_op([&](ProcessGroup& group, DType dtype, ReduceOp op) {
    const int dst = ranks_ - 1;
    const Tensor tensor = whole_numbers(group.rank(), 0, count_, dtype);
    group.reduce(tensor, dst, op);
    expect_same(
        tensor,
        group.rank() == dst ? reduced(ranks_, 0, count_, dtype, op) : whole_numbers(group.rank(), 0, count_, dtype),
        to_string(op));
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsPart) {
  for_each_op([&](ProcessGroup& group, DType dtype, ReduceOp op) {
    const Tensor expected = reduced(ranks_, group.rank() * count_, count_, dtype, op);
    const Tensor output = empty({count_}, {.dtype = dtype});
    group.reduce_scatter(output, parts(group.rank(), dtype), op);
    expect_same(output, expected, to_string(op));
    const Tensor input = whole_numbers(group.rank(), 0, ranks_ * count_, dtype);
    const Tensor own = input.narrow(0, group.rank() * count_, count_);
    group.reduce_scatter_tensor(own, input, op);  // in place
    expect_same(own, expected, to_string(op));
  });
}

TEST_P(Collectives, BroadcastGivesEveryRankTheRoots) {
  for_each_dtype([&](ProcessGroup& group, DType dtype) {
    for (int src = 0; src < ranks_; ++src) {
      const Tensor tensor = whole_numbers(group.rank(), 0, count_, dtype);
      group.broadcast(tensor, src);
      expect_same(tensor, whole_numbers(src, 0, count_, dtype), "");
    }
  });
}

TEST_P(Collectives, AllGatherGivesEveryRankAll) {
  for_each_dtype([&](ProcessGroup& group, DType dtype) {
    const Tensor own = whole_numbers(group.rank(), 0, count_, dtype);
    const std::vector<Tensor> list = empty_parts(dtype);
    const Tensor stacked = empty({ranks_, count_}, {.dtype = dtype});
    const Tensor along = empty({ranks_ * count_}, {.dtype = dtype});
    group.all_gather(list, own);
    group.all_gather_into_tensor(stacked, own);
    along.narrow(0, group.rank() * count_, count_).copy_(own);
    group.all_gather_into_tensor(along, along.narrow(0, group.rank() * count_, count_));  // in place
    for (int r = 0; r < ranks_; ++r) {
      const Tensor expected = whole_numbers(r, 0, count_, dtype);
      expect_same(list[static_cast<std::size_t>(r)], expected, "list");
      expect_same(stacked[r], expected, "stacked");
      expect_same(along.narrow(0, r * count_, count_), expected, "along");
    }
  });
}

TEST_P(Collectives, GatherAndScatterAreEachOthersOpposite) {
  for_each_dtype([&](ProcessGroup& group, DType dtype) {
    const int root = ranks_ / 2;
    const bool is_root = group.rank() == root;
    const std::vector<Tensor> gathered = is_root ? empty_parts(dtype) : std::vector<Tensor>();
    group.gather(whole_numbers(group.rank(), 0, count_, dtype), gathered, root);
    for (std::size_t r = 0; r < gathered.size(); ++r) {
      expect_same(gathered[r], whole_numbers(static_cast<int>(r), 0, count_, dtype), "gather");
    }
    const Tensor own = empty({count_}, {.dtype = dtype});
    group.scatter(own, gathered, root);
    expect_same(own, whole_numbers(group.rank(), 0, count_, dtype), "scatter");
  });
}

TEST_P(Collectives, AllToAllGivesEachRankItsPartOfAll) {
  for_each_dtype([&](ProcessGroup& group, DType dtype) {
    const std::vector<Tensor> list = empty_parts(dtype);
    group.all_to_all(list, parts(group.rank(), dtype));
    const Tensor joined = empty({ranks_ * count_}, {.dtype = dtype});
    group.all_to_all_single(joined, whole_numbers(group.rank(), 0, ranks_ * count_, dtype));
    for (int r = 0; r < ranks_; ++r) {
      const Tensor expected = whole_numbers(r, group.rank() * count_, count_, dtype);
      expect_same(list[static_cast<std::size_t>(r)], expected, "list");
      expect_same(joined.narrow(0, r * count_, count_), expected, "joined");
    }
  });
}

TEST_P(Collectives, SendReachesTheRecvWithItsTag) {
  for_each_dtype([&](ProcessGroup& group, DType dtype) {
    const int next = (group.rank() + 1) % ranks_;
    const int previous = (group.rank() + ranks_ - 1) % ranks_;
    if (ranks_ == 1) {
      return;
    }
    group.send(whole_numbers(group.rank(), 0, count_, dtype), next, 1);
    Work sent = group.isend(whole_numbers(group.rank(), 1, count_, dtype), next, 2);
    const Tensor second = empty({count_}, {.dtype = dtype});
    const Tensor first = empty({count_}, {.dtype = dtype});
    Work received = group.irecv(second, previous, 2);
    group.recv(first, previous, 1);
    received.wait();
    sent.wait();
    expect_same(first, whole_numbers(previous, 0, count_, dtype), "first");
    expect_same(second, whole_numbers(previous, 1, count_, dtype), "second");
  });
}

TEST(CollectiveValues, FloatsAreAddedInTheOrderOfRanksOnEveryRank) {
  constexpr std::int64_t kCount = 10007;
  const auto input = [](int rank) {
    Generator generator(static_cast<std::uint64_t>(rank) + 1);
    const GeneratorScope draws(generator);
    return randn({kCount});
  };
  const std::vector<float> expected = (input(0) + input(1) + input(2) + input(3)).to_vector<float>();
  as_ranks(4, [&](ProcessGroup& group) {
    for (int repetition = 0; repetition < 20; ++repetition) {
      const Tensor tensor = input(group.rank()).to(core::thread_state().device);
      group.all_reduce(tensor);
      EXPECT_EQ(tensor.to_vector<float>(), expected);
    }
  });
}

TEST(CollectiveValues, SixteenBitsAreAddedIn32AndRoundedOnce) {
  as_ranks(3, [](ProcessGroup& group) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const double large = dtype == DType::bf16 ? 256 : 2048;  // beyond this value adding 1 is lost
      const Tensor tensor = full({5}, group.rank() == 0 ? large : 1, {.dtype = dtype});
      group.all_reduce(tensor);
      EXPECT_EQ(tensor.to_vector<double>(), std::vector<double>(5, large + 2));
    }
  });
}

TEST(CollectiveValues, MinAndMaxKeepANaN) {
  as_ranks(3, [](ProcessGroup& group) {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      const Tensor tensor = from_data(std::vector<double>{group.rank() == 0 ? nan : 1, group.rank() == 2 ? nan : 2});
      group.all_reduce(tensor, op);
      EXPECT_TRUE(std::isnan(tensor.to_vector<double>()[0]));
      EXPECT_TRUE(std::isnan(tensor.to_vector<double>()[1]));
    }
  });
}

class CollectiveValuesOf : public ::testing::TestWithParam<Carrier> {
 protected:
  void SetUp() override {
    if (const std::string why = test::why_not(GetParam(), 2); !why.empty()) {
      GTEST_SKIP() << why;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Carriers, CollectiveValuesOf,
                         ::testing::Values(Carrier::local, Carrier::local_of_gpus, Carrier::staged, Carrier::nccl),
                         [](const auto& test) { return std::string(test::to_string(test.param)); });

TEST_P(CollectiveValuesOf, TensorsThatAreNotDenseArePackedAndUnpacked) {
  as_ranks_of(GetParam(), 2, [](ProcessGroup& group) {
    const double rank = group.rank();
    const Tensor matrix = full({3, 4}, rank + 1);
    group.all_reduce(matrix.t().narrow(0, 1, 2));
    EXPECT_EQ(matrix.select(1, 0).to_vector<double>(), std::vector<double>(3, rank + 1));
    EXPECT_EQ(matrix.select(1, 1).to_vector<double>(), std::vector<double>(3, 3));
    EXPECT_EQ(matrix.select(1, 2).to_vector<double>(), std::vector<double>(3, 3));
    EXPECT_EQ(matrix.select(1, 3).to_vector<double>(), std::vector<double>(3, rank + 1));

    const Tensor column = full({3, 2}, rank);
    group.broadcast(column.select(1, 1), 1);
    EXPECT_EQ(column.to_vector<double>(), (std::vector<double>{rank, 1, rank, 1, rank, 1}));

    const Tensor all = zeros({4, 2}).t();  // [2, 4]
    group.all_gather_into_tensor(all, arange(8).slice(0, group.rank(), 8, 2).to(DType::f32));
    EXPECT_EQ(all.to_vector<double>(), (std::vector<double>{0, 2, 4, 6, 1, 3, 5, 7}));
    const Tensor numbers = arange(6, {.dtype = DType::f32});
    group.reduce(numbers.slice(0, group.rank(), 6, 2), 0);
    EXPECT_EQ(numbers.to_vector<double>(),
              group.rank() == 0 ? (std::vector<double>{1, 1, 5, 3, 9, 5}) : (std::vector<double>{0, 1, 2, 3, 4, 5}));
  });
}

TEST_P(CollectiveValuesOf, LargeTensorsGoInPieces) {
  as_ranks_of(GetParam(), 2, [](ProcessGroup& group) {
    constexpr std::int64_t kCount = (std::int64_t{5} << 20) / 2 + 3;  // 10 MiB
    const double rank = group.rank();
    const Tensor sum = full({kCount}, rank + 1);
    group.all_reduce(sum);
    EXPECT_EQ(sum.sum().item(), 3 * kCount);
    const Tensor sent = full({kCount}, rank);
    group.broadcast(sent, 1);
    EXPECT_EQ(sent.sum().item(), kCount);
    const Tensor half = full({kCount}, rank + 1, {.dtype = DType::bf16});
    group.reduce(half, 1);
    EXPECT_EQ(half.to(DType::f32).sum().item(), (group.rank() == 1 ? 3 : 1) * kCount);
  });
}

TEST_P(CollectiveValuesOf, SubGroupsAndPlansWork) {
  as_ranks_of(GetParam(), 2, [](ProcessGroup& group) {
    const std::unique_ptr<ProcessGroup> alone = group.new_group({1});
    EXPECT_EQ(alone != nullptr, group.rank() == 1);
    const std::unique_ptr<ProcessGroup> both = group.new_group({0, 1});
    Tensor tensor = ones({1000});
    PlannedCollective plan = both->plan_all_reduce(tensor.raw());
    for (int i = 0; i < 3; ++i) {
      tensor.mul_(1.5);
      plan.start();
      if (alone) {
        const Tensor own = ones({3});
        alone->all_reduce(own);
        EXPECT_EQ(own.sum().item(), 3);
      }
      plan.wait();
    }
    EXPECT_EQ(tensor.to_vector<double>(), std::vector<double>(1000, 27));
    group.barrier();
  });
}

TEST_P(CollectiveValuesOf, ScalarsAndManyDimensionsKeepTheirShape) {
  as_ranks_of(GetParam(), 2, [](ProcessGroup& group) {
    const Tensor scalar = tensor(static_cast<double>(group.rank() + 1));
    group.all_reduce(scalar);
    EXPECT_EQ(scalar.item(), 3);
    const Tensor both = zeros({2}, {.dtype = scalar.dtype()});
    group.all_gather_into_tensor(both, scalar);
    EXPECT_EQ(both.to_vector<double>(), (std::vector<double>{3, 3}));
    const Tensor deep = ones({2, 1, 3, 1, 2, 1, 1, 2});
    group.all_reduce(deep, ReduceOp::avg);
    EXPECT_EQ(deep.sum().item(), 24);
    const std::vector<Tensor> list{zeros_like(deep), zeros_like(deep)};
    group.all_gather(list, deep);
    EXPECT_EQ(list[1].sum().item(), 24);
  });
}

}  // namespace
}  // namespace tandem::parallel
