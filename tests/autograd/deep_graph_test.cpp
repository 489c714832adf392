#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/tensor/factories.h>

// Graphs that would overflow the stack if any code walked them recursively.

namespace tandem {
namespace {

constexpr int kDeep = 1'000'000;

Tensor leaf(double value) { return full({}, value, {.dtype = DType::f64, .requires_grad = true}); }

// The kinds of links; each test chains up to `kDeep` of them and checks the gradient.
Tensor plain(const Tensor& x) { return x * 1.0; }
Tensor same_twice(const Tensor& x) { return x * 0.5 + x * 0.5; }
Tensor residual(const Tensor& x) { return x + x * 0.0; }
Tensor squared(const Tensor& x) { return x * x; }
Tensor through_views(const Tensor& x) { return x.unsqueeze(0).squeeze(0); }
Tensor joined(const Tensor& x) {
  const Tensor row = x.reshape({1});
  return cat({row, row})[0];
}

struct Chain {
  const char* name;
  Tensor (*link)(const Tensor&);
  int links;
};

class DeepGraph : public ::testing::TestWithParam<Chain> {
 protected:
  Tensor build(const Tensor& x) const {
    Tensor y = x;
    for (int i = 0; i < GetParam().links; ++i) {
      y = GetParam().link(y);
    }
    return y;
  }
};

TEST_P(DeepGraph, BuildBackwardDestroy) {
  const Tensor x = leaf(1);
  build(x).backward();
  EXPECT_TRUE(x.grad().defined());
  if (GetParam().link != squared) {
    EXPECT_EQ(x.grad().item(), 1);
  }
}

TEST_P(DeepGraph, DestroyWithoutBackward) {
  const Tensor x = leaf(1);
  {
    const Tensor y = build(x);
  }
  EXPECT_FALSE(x.grad().defined());
}

TEST_P(DeepGraph, BackwardTwiceThenDestroy) {
  const Tensor x = leaf(1);
  {
    const Tensor y = build(x);
    y.backward({}, true);
    y.backward({}, true);
  }
  EXPECT_TRUE(x.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(Chains, DeepGraph,
                         ::testing::Values(Chain{"Plain", plain, kDeep}, Chain{"SameTwice", same_twice, kDeep / 10},
                                           Chain{"Residual", residual, kDeep / 10},
                                           Chain{"Squared", squared, kDeep / 5},
                                           Chain{"Views", through_views, kDeep / 10},
                                           Chain{"Joined", joined, kDeep / 15}),
                         [](const auto& test) { return std::string(test.param.name); });

// Every intermediate tensor is alive, and they are destroyed in the worst orders: oldest first, then newest first.
TEST(DeepGraphHandles, DestroyedInAnyOrder) {
  for (const bool oldest_first : {true, false}) {
    const Tensor x = leaf(1);
    std::vector<std::optional<Tensor>> all{x};
    for (int i = 0; i < kDeep / 5; ++i) {
      all.emplace_back(*all.back() + *all.back());
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[oldest_first ? i : all.size() - 1 - i].reset();
    }
  }
}

TEST(WideGraph, ManyBranchesMeetInOneLeaf) {
  const Tensor x = leaf(2);
  std::vector<Tensor> branches;
  for (int i = 0; i < 20'000; ++i) {
    branches.push_back((x * 3.0).reshape({1}));
  }
  cat(branches).sum().backward();
  EXPECT_EQ(x.grad().item(), 60'000);
}

TEST(WideGraph, ManyLeaves) {
  std::vector<Tensor> leaves;
  std::vector<Tensor> scaled;
  for (int i = 0; i < 20'000; ++i) {
    leaves.push_back(leaf(i));
    scaled.push_back(leaves.back() * static_cast<double>(i));
  }
  stack(scaled).sum().backward();
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_EQ(leaves[static_cast<std::size_t>(i)].grad().item(), i);
  }
}

// A graph of 64 nodes with 2^64 paths: no code may walk paths.
TEST(DiamondGraph, IsWalkedByNodesNotByPaths) {
  const Tensor x = leaf(1);
  Tensor y = x;
  for (int i = 0; i < 64; ++i) {
    y = y + y;
  }
  y.backward();
  EXPECT_EQ(x.grad().item(), 0x1p64);
}

}  // namespace
}  // namespace tandem
