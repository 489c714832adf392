#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "leaves.h"
#include "support/memory.h"
#include "support/message.h"

// Effects of backward() on the graph and on leaves.

namespace tandem {
namespace {

using test::f64;
using test::leaf;
using test::memory_of;
using test::message_of;
using ::testing::HasSubstr;

using Values = std::vector<double>;

TEST(Backward, FillsTheGradientsOfAllLeaves) {
  const Tensor a = f64({1, 2});
  const Tensor b = f64({3, 4});
  (a * b).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{3, 4}));
  EXPECT_EQ(b.grad().to_vector<double>(), (Values{1, 2}));
}

// As in PyTorch: dense elements in another order than row by row. A leaf with gaps has a dense gradient.
TEST(Backward, GivesAPermutedLeafAGradientWithItsStrides) {
  const Tensor base = randn({4, 3, 2}, {.dtype = DType::f64});
  Tensor permuted = base.permute({2, 0, 1}).detach();
  Tensor dense = permuted.clone();
  permuted.requires_grad_();
  dense.requires_grad_();
  const Tensor x = randn({2, 4, 3}, {.dtype = DType::f64});
  const auto expect_equal = [](const Tensor& a, const Tensor& b) {  // sums of passes round in another order
    EXPECT_LT((a - b).abs().max().item(), 1e-12);
  };
  const auto pass = [&](const Tensor& w) { ((w * x).sum() + (w * w).sum()).backward(); };
  for (int i = 0; i < 3; ++i) {
    pass(permuted);
    pass(dense);
    EXPECT_EQ(permuted.grad().strides(), permuted.strides());
    EXPECT_EQ(dense.grad().strides(), dense.strides());
    expect_equal(permuted.grad(), dense.grad());
  }
  const Tensor held = permuted.grad();
  pass(permuted);
  pass(dense);
  expect_equal(held, dense.grad());  // passes add in place

  Tensor transposed = base.select(2, 0).t().detach();  // [3, 4] with gaps
  transposed.requires_grad_();
  transposed.sum().backward();
  EXPECT_TRUE(transposed.grad().is_contiguous());

  // An optimiser packs its parameters, and both follow.
  permuted.zero_grad();
  const std::vector<double> before = permuted.detach().to_vector<double>();
  optim::SGD sgd({permuted}, {.lr = 1});
  pass(permuted);
  sgd.step();
  EXPECT_EQ(permuted.grad().strides(), permuted.strides());
  const std::vector<double> gradient = permuted.grad().to_vector<double>();
  const std::vector<double> after = permuted.detach().to_vector<double>();
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_NEAR(after[i], before[i] - gradient[i], 1e-12);
  }
}

TEST(Backward, AccumulatesOverPasses) {
  const Tensor a = f64({1, 2});
  (a * 2).sum().backward();
  (a * 3).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{5, 5}));
}

TEST(Backward, OfALeafItself) {
  const Tensor a = f64({5});
  a.backward();
  a.backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2}));
  a.backward(f64({7}).detach());
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{9}));
}

TEST(Backward, UnusedLeavesGetNoGradient) {
  const Tensor a = f64({1});
  const Tensor b = f64({1});
  const Tensor unused = a * b;
  (a * 2).backward();
  EXPECT_FALSE(b.grad().defined());
  EXPECT_TRUE(a.grad().defined());
}

// ---- zero_grad ----

TEST(ZeroGrad, ForgetsTheGradientAndKeepsItsMemory) {
  const Tensor a = f64({1, 2});
  (a * 2).sum().backward();
  const void* memory = memory_of(a.grad());
  a.zero_grad();
  EXPECT_FALSE(a.grad().defined());
  (a * 3).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{3, 3})) << "nothing of the old one may be left";
  EXPECT_EQ(memory_of(a.grad()), memory);
}

TEST(ZeroGrad, MayComeAtAnyTime) {
  const Tensor a = f64({1, 2});
  EXPECT_NO_THROW(a.zero_grad());
  EXPECT_NO_THROW(zeros({2}).zero_grad()) << "without gradients there is nothing to forget";
  const Tensor loss = (a * a).sum();
  a.zero_grad();
  loss.backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2, 4}));
  a.zero_grad();
  a.zero_grad();
  EXPECT_FALSE(a.grad().defined());
}

// ---- releasing the graph ----

TEST(RetainGraph, AllowsASecondPass) {
  const Tensor a = f64({1, 2});
  const Tensor loss = (a * a).sum();
  loss.backward({}, true);
  loss.backward({}, true);
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{4, 8}));
  loss.backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{6, 12}));
  EXPECT_THROW(loss.backward(), AutogradError);
}

TEST(RetainGraph, IsNeededForASecondPass) {
  const Tensor a = f64({1, 2});
  const Tensor loss = (a * a).sum();
  loss.backward();
  EXPECT_EQ(message_of<AutogradError>([&] { loss.backward(); }),
            "backward: the graph through 'sum' was freed by an earlier backward(); pass retain_graph=true to the first "
            "one, or compute the forward pass again");
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2, 4})) << "the failing pass must not have added anything";
}

TEST(RetainGraph, IsNeededForAPartThatIsShared) {
  const Tensor a = f64({1, 2});
  const Tensor shared = a * a;
  const Tensor first = shared.sum();
  const Tensor second = (shared * 3).sum();
  first.backward();
  EXPECT_THAT(message_of<AutogradError>([&] { second.backward(); }), HasSubstr("the graph through 'mul' was freed"));
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2, 4}));
}

TEST(RetainGraph, SharedPartsAddUp) {
  const Tensor a = f64({1, 2});
  const Tensor shared = a * a;
  shared.sum().backward({}, true);
  (shared * 3).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{8, 16}));
}

// ---- the gradient argument ----

TEST(BackwardGradient, MayHaveAnyShapeThatTheTensorHas) {
  const Tensor a = f64({1, 2, 3});
  (a * a).backward(from_data(Values{1, 10, 100}));
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2, 40, 600}));
}

TEST(BackwardGradient, NeedNotBeDense) {
  const Tensor a = f64({1, 2, 3});
  (a * a).backward(from_data(Values{1, 9, 10, 9, 100}).slice(0, 0, 5, 2));
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2, 40, 600}));
  a.zero_grad();
  a.backward(full({}, 2, {.dtype = DType::f64}).expand({3}));
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2, 2, 2}));
}

TEST(BackwardGradient, IsOneForOneElement) {
  for (const Shape& sizes : {Shape{}, {1}, {1, 1}}) {
    const Tensor a = leaf(sizes);
    (a * 2).backward();
    EXPECT_EQ(a.grad().item(), 2);
    EXPECT_EQ(a.grad().shape(), sizes);
  }
}

TEST(BackwardGradient, IsNotChanged) {
  const Tensor a = f64({1, 2});
  const Tensor gradient = from_data(Values{1, 10});
  (a + a + a).backward(gradient);
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{3, 30}));
  (a + 1).backward(gradient);
  EXPECT_EQ(gradient.to_vector<double>(), (Values{1, 10}));
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{4, 40}));
}

// The memory of a leaf's gradient changes during the pass.
TEST(BackwardGradient, MayBeALeafsOwnGradient) {
  const Tensor a = f64({1, 2});
  (a * 5).sum().backward();
  (a + a).backward(a.grad());
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{15, 15}));
}

TEST(BackwardGradient, MustFit) {
  const Tensor a = leaf({2, 3});
  const Tensor y = a * 2;
  EXPECT_EQ(message_of<ShapeError>([&] { y.backward(ones({3}, {.dtype = DType::f64})); }),
            "backward: the gradient is [3] f64 on cpu:0, the tensor [2, 3] f64 on cpu:0");
  EXPECT_EQ(message_of<ShapeError>([&] { y.backward(ones({2, 3})); }),
            "backward: the gradient is [2, 3] f32 on cpu:0, the tensor [2, 3] f64 on cpu:0");
  EXPECT_EQ(message_of<ShapeError>([&] { y.backward(ones({2, 3}, {.dtype = DType::f64, .device = "cpu:1"})); }),
            "backward: the gradient is [2, 3] f64 on cpu:1, the tensor [2, 3] f64 on cpu:0");
  y.backward(ones({2, 3}, {.dtype = DType::f64}));
  EXPECT_EQ(a.grad().to_vector<double>(), Values(6, 2.0)) << "a refused gradient leaves the graph as it was";
}

TEST(BackwardGradient, IsNeededForMoreThanOneElement) {
  EXPECT_EQ(message_of<AutogradError>([] { (leaf({2, 3}) * 2).backward(); }),
            "backward: the tensor [2, 3] is not a scalar; reduce it (.mean(), .sum()) or pass its gradient");
  EXPECT_EQ(message_of<AutogradError>([] { (leaf({0}) * 2).backward(); }),
            "backward: the tensor [0] is not a scalar; reduce it (.mean(), .sum()) or pass its gradient");
}

// ---- recording ----

TEST(GradMode, NothingIsRecordedUnderNoGrad) {
  const Tensor a = f64({1, 2});
  const NoGradGuard no_grad;
  const Tensor loss = (a * a).sum();
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_EQ(message_of<AutogradError>([&] { loss.backward(); }),
            "backward: this tensor [] depends on nothing that requires a gradient (was it computed under NoGradGuard, "
            "or from detached values?)");
}

TEST(GradMode, EndsWithItsScopeAndNests) {
  const Tensor a = f64({1, 2});
  {
    const NoGradGuard outer;
    {
      const GradModeScope inner(true);
      EXPECT_TRUE((a * 2).requires_grad());
    }
    EXPECT_FALSE((a * 2).requires_grad());
  }
  EXPECT_TRUE((a * 2).requires_grad());
}

TEST(GradMode, BackwardMayRunUnderNoGrad) {
  const Tensor a = f64({1, 2});
  const Tensor loss = (a * a).sum();
  const NoGradGuard no_grad;
  loss.backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2, 4}));
  EXPECT_FALSE(is_grad_enabled());
}

TEST(Detach, CutsTheGraph) {
  const Tensor a = f64({1, 2});
  EXPECT_THROW((a.detach() * 2).sum().backward(), AutogradError);
  (a * a.detach()).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{1, 2}));
  EXPECT_EQ(memory_of(a.detach()), memory_of(a)) << "the same elements";
}

TEST(RequiresGrad, BelongsToLeaves) {
  const Tensor plain = zeros({2});
  EXPECT_FALSE(plain.requires_grad());
  EXPECT_TRUE(plain.is_leaf());
  const Tensor a = f64({1, 2});
  EXPECT_TRUE(a.is_leaf());
  Tensor b = a * 2;
  EXPECT_TRUE(b.requires_grad());
  EXPECT_FALSE(b.is_leaf());
  EXPECT_NO_THROW(b.requires_grad_()) << "it does already";
  EXPECT_EQ(message_of<AutogradError>([&] { b.requires_grad_(false); }),
            "requires_grad_(false): this is the result of 'mul'; use detach() to cut the graph");
  EXPECT_EQ(message_of<DTypeError>([] { tensor({1, 2}).requires_grad_(); }),
            "requires_grad_: only floating point tensors have gradients, got i64");
}

TEST(RequiresGrad, MayBeTurnedOffAndOn) {
  Tensor a = f64({1, 2});
  (a * 2).sum().backward();
  a.requires_grad_(false);
  EXPECT_FALSE(a.requires_grad());
  EXPECT_FALSE((a * 2).requires_grad());
  EXPECT_FALSE(a.grad().defined());
  a.requires_grad_();
  EXPECT_FALSE(a.grad().defined()) << "turning it off forgets the gradient";
  (a * 3).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{3, 3}));
}

TEST(Grad, OfAResultIsAnErrorThatSaysWhatToDo) {
  const Tensor a = f64({1, 2});
  const Tensor y = a * 2;
  EXPECT_EQ(message_of<AutogradError>([&] { y.grad(); }),
            "grad: this is the result of 'mul', whose gradient is not kept; call retain_grad() before backward()");
  EXPECT_FALSE(zeros({2}).grad().defined());
}

TEST(RetainGrad, KeepsTheGradientOfAResult) {
  const Tensor a = f64({1, 2});
  const Tensor y = a * 2;
  y.retain_grad();
  y.retain_grad();
  EXPECT_FALSE(y.grad().defined());
  (y * y).sum().backward({}, true);
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{4, 8}));
  y.sum().backward();
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{5, 9})) << "passes add up, as for leaves";
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{10, 18}));
  EXPECT_NO_THROW(a.retain_grad()) << "leaves keep theirs anyway";
  EXPECT_THROW(zeros({2}).retain_grad(), AutogradError);
}

TEST(RetainGrad, IsACopyOfItsOwn) {
  const Tensor a = f64({1, 2});
  const Tensor y = a * 2;
  const Tensor z = y + 1;  // passes its gradient on unchanged
  z.retain_grad();
  y.retain_grad();
  (z + y).sum().backward();
  EXPECT_EQ(z.grad().to_vector<double>(), (Values{1, 1}));
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{2, 2}));
}

// ---- errors during a pass ----

TEST(BackwardFailure, LeavesTheGraphUsable) {
  const Tensor a = f64({1, 2});
  const Tensor y = a * a;
  bool fail = true;
  y.register_hook([&](const Tensor&) -> Tensor {
    if (fail) throw ValueError("stop here");
    return {};
  });
  const Tensor loss = (y * 3).sum();
  EXPECT_EQ(message_of<ValueError>([&] { loss.backward({}, true); }), "stop here");
  EXPECT_FALSE(a.grad().defined()) << "the failing pass had not come to the leaf";
  fail = false;
  loss.backward({}, true);
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{6, 12})) << "half-finished gradients must not be left in the graph";
  (a * 1).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{7, 13}));
}

TEST(BackwardFailure, OfAnotherKindOfExceptionPassesUnchanged) {
  const Tensor a = f64({1, 2});
  const Tensor y = a * a;
  y.register_hook([](const Tensor&) -> Tensor { throw std::string("no tandem error"); });
  EXPECT_THROW(y.sum().backward(), std::string);
  (a * 2).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2, 2}));
}

}  // namespace
}  // namespace tandem
