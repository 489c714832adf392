#include <array>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/autocast.h>
#include <tandem/autograd/grad.h>
#include <tandem/core/thread_state.h>
#include <tandem/graph/capture.h>
#include <tandem/kernels/launch.h>
#include <tandem/nn/container.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/adam.h>
#include <tandem/tensor/cpu_allocator.h>

#include "leaves.h"
#include "support/message.h"

// Tests of grad(), and of what contains its results. Second derivatives of each op are checked with its first ones.

namespace tandem {
namespace {

using autograd::grad;
using test::f64;
using test::leaf;
using test::message_of;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Pointwise;

std::vector<double> list(const Tensor& tensor) { return tensor.detach().to_vector<double>(); }

TEST(Grad, ReturnsGradientsAndLeavesThoseOfLeavesAlone) {
  const Tensor x = f64({2, 3});
  const Tensor y = (x * x).sum();
  const auto [dx] = grad(y, std::array{x}, {.retain_graph = true});
  EXPECT_THAT(list(dx), ElementsAre(4, 6));
  EXPECT_FALSE(dx.requires_grad());
  EXPECT_FALSE(x.grad().defined());
  y.backward();
  EXPECT_THAT(list(x.grad()), ElementsAre(4, 6));
  const auto [again] = grad((x * 3).sum(), std::array{x});
  EXPECT_THAT(list(again), ElementsAre(3, 3));
  EXPECT_THAT(list(x.grad()), ElementsAre(4, 6));
}

TEST(Grad, OfResultsIsByThemAlone) {
  const Tensor x = f64({2, 3});
  const Tensor w = f64({1, 1});
  const Tensor m = x * w;
  for (const bool create_graph : {false, true}) {
    const auto [dm, dx] =
        grad((m * m * x).sum(), std::array{m, x}, {.create_graph = create_graph, .retain_graph = true});
    EXPECT_THAT(list(dm), ElementsAre(8, 18));
    EXPECT_THAT(list(dx), ElementsAre(12, 27));
    EXPECT_EQ(dm.requires_grad(), create_graph);
  }
  EXPECT_FALSE(w.grad().defined());
}

TEST(Grad, OfSeveralOutputsWeighsEach) {
  const Tensor x = f64({2, 3});
  const std::vector<Tensor> outputs{x * 2, (x * x).sum()};
  for (const bool create_graph : {false, true}) {
    const std::vector<Tensor> got =
        grad(outputs, std::vector{x},
             {.grad_outputs = {f64({1, 10}).detach(), Tensor()}, .create_graph = create_graph, .retain_graph = true});
    EXPECT_THAT(list(got[0]), ElementsAre(6, 26));
  }
}

TEST(Grad, HasDerivativesOfAnyOrder) {
  const Tensor x = f64({2, -1});
  Tensor y = x.pow(4);
  const std::vector<std::vector<double>> expected{{32, -4}, {48, 12}, {48, -24}, {24, 24}, {0, 0}};
  for (const std::vector<double>& order : expected) {
    const auto [dy] = grad(y.sum(), std::array{x}, {.create_graph = true});
    EXPECT_THAT(list(dy), Pointwise(DoubleEq(), order));
    y = dy;
  }
}

TEST(Grad, OfTheGradientOfTheOutputIsTheGradientItself) {
  const Tensor x = f64({2, 3});
  const Tensor v = f64({1, 1});
  const auto [dx] = grad(x * x, std::array{x}, {.grad_outputs = {v}, .create_graph = true});
  const auto [dv] = grad(dx.sum(), std::array{v});
  EXPECT_THAT(list(dv), ElementsAre(4, 6));
}

TEST(Grad, LetsBackwardReachTheWeightsThroughIt) {  // a gradient penalty
  const Tensor x = f64({2});
  const Tensor w = f64({3});
  const auto [dx] = grad((w * x * x).sum(), std::array{x}, {.create_graph = true});  // 2 w x
  (dx * dx).sum().backward();                                                        // 4 w^2 x^2
  EXPECT_THAT(list(w.grad()), ElementsAre(96));
  EXPECT_THAT(list(x.grad()), ElementsAre(144));
}

TEST(Grad, RunsHooksOfTensorsAndNotThoseOfLeavesAfterAccumulation) {
  const Tensor x = f64({2, 3});
  int accumulated = 0;
  x.register_hook([](const Tensor& g) { return g * 2; });
  x.register_post_accumulate_grad_hook([&](const Tensor&) { ++accumulated; });
  for (const bool create_graph : {false, true}) {
    const auto [dx] = grad((x * x).sum(), std::array{x}, {.create_graph = create_graph});
    EXPECT_THAT(list(dx), ElementsAre(8, 12));
  }
  EXPECT_EQ(accumulated, 0);
  EXPECT_FALSE(x.grad().defined());
}

// The ReLU of a layer lets the product of the next one mask its gradient and sum up that of its bias.
TEST(Grad, OfOneInputWritesNoGradientOfTheWeightsOnTheWay) {
  nn::Sequential model(nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 1));
  const Tensor x = randn({5, 3}).requires_grad_();
  const auto [expected] = grad(model(x).sum(), std::array{x}, {.create_graph = true});
  const auto [dx] = grad(model(x).sum(), std::array{x});
  EXPECT_THAT(list(dx), Pointwise(::testing::DoubleNear(1e-6), list(expected)));
  for (const Tensor& parameter : model.parameters()) {
    EXPECT_FALSE(parameter.grad().defined());
  }
}

// Counts launches by name.
struct Launches final : kernels::LaunchObserver {
  std::map<std::string, int> counts;
  void on_launch(kernels::Context&, const kernels::LaunchRecord& record) override { ++counts[record.name]; }
};

TEST(Grad, ComputesNothingThatNobodyAskedFor) {
  const Tensor x = leaf({4, 3});
  const Tensor w = leaf({5, 3}, -1, 1, 8);
  for (const bool create_graph : {false, true}) {
    const Tensor y = linear(x, w).tanh();
    Launches launches;
    core::ThreadState state = core::thread_state();
    state.observer = &launches;
    {
      const core::ThreadStateScope scope(state);
      grad(y, std::array{x}, {.grad_outputs = {ones_like(y)}, .create_graph = create_graph});
    }
    EXPECT_EQ(launches.counts["matmul"], 1) << "the gradient by x, and not that by w";
    EXPECT_EQ(launches.counts["pointwise"], 1) << "tanh's";
  }
}

TEST(Grad, IsZeroWhereTheWayThereIsFlat) {
  const Tensor x = f64({-1, 2});
  for (const bool create_graph : {false, true}) {
    const auto [dx] = grad(relu(x).sum(), std::array{x}, {.create_graph = true});
    EXPECT_THAT(list(dx), ElementsAre(0, 1));
    const auto [ddx] = grad(dx.sum(), std::array{x}, {.create_graph = create_graph});
    EXPECT_THAT(list(ddx), ElementsAre(0, 0));
  }
}

TEST(Grad, BehindFlatSlopesGivesLeavesZerosThatNobodyComputes) {
  nn::Sequential model(nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 1));
  const Tensor x = randn({5, 3}).requires_grad_();
  const auto [dx] = grad(model(x).sum(), std::array{x}, {.create_graph = true});
  Launches launches;
  core::ThreadState state = core::thread_state();
  state.observer = &launches;
  {
    const core::ThreadStateScope scope(state);
    dx.pow(2).sum().backward();
  }
  EXPECT_EQ(launches.counts["matmul"], 5) << "of the three products of dx; none of those of the forward pass";
  const std::vector<Tensor> parameters = model.parameters();
  EXPECT_GT(parameters[0].grad().norm().item(), 0);
  EXPECT_EQ(parameters[1].grad().norm().item(), 0) << "a bias shifts no slope";
  EXPECT_EQ(x.grad().norm().item(), 0);
}

TEST(Grad, BehindFlatSlopesIsZeroForHooksAndForWhoRetainsIt) {
  const Tensor x = f64({-1, 2});
  const Tensor h = x * 2;
  h.retain_grad();
  int calls = 0;
  const HookHandle hook = x.register_hook([&](const Tensor& gradient) {
    ++calls;
    return gradient + 3;
  });
  for (const bool create_graph : {false, true}) {
    const auto [dh] = grad(relu(h).sum(), std::array{h}, {.create_graph = true});
    const auto [dx] = grad(dh.sum(), std::array{x}, {.create_graph = create_graph, .retain_graph = true});
    EXPECT_THAT(list(dx), ElementsAre(3, 3));
    EXPECT_FALSE(h.grad().defined()) << "grad() changes nothing";
  }
  EXPECT_EQ(calls, 2);
  const auto [dh] = grad(relu(h).sum(), std::array{h}, {.create_graph = true});
  dh.sum().backward();
  EXPECT_THAT(list(x.grad()), ElementsAre(3, 3));
  EXPECT_THAT(list(h.grad()), ElementsAre(0, 0));
}

TEST(Grad, OfAResultThatTakesNoPartIsNamedThoughItsNeighbourDoes) {
  const Tensor x = f64({-1, 2});
  const std::vector<Tensor> parts = relu(x).split(1, 0);
  EXPECT_EQ(
      message_of<AutogradError>([&] { grad(parts[0].sum(), std::array{parts[1]}, {.create_graph = true}); }),
      "grad: input 0 [1] takes no part in the outputs; leave it out, or pass {.allow_unused = true} for an undefined "
      "gradient");
}

TEST(Grad, MayBeMixedWithBackward) {
  nn::Sequential model(nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 1));
  const Tensor x = randn({5, 3});
  const std::vector<Tensor> parameters = model.parameters();
  const Tensor loss = model(x).pow(2).mean();
  const std::vector<Tensor> got = grad(std::span(&loss, 1), parameters, {.retain_graph = true});
  loss.backward();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(list(got[i]), list(parameters[i].grad())) << i;
  }
}

TEST(Grad, FreesItsGraphWithItsResults) {
  const Tensor x = leaf({100'000});
  std::size_t before = 0;
  for (int i = 0; i < 20; ++i) {
    const auto [dx] = grad(x.tanh().exp().sum(), std::array{x}, {.create_graph = true});
    (dx * dx).sum().backward();
    x.zero_grad();
    before = i == 5 ? cpu_memory_stats().system_bytes : before;
  }
  EXPECT_LE(cpu_memory_stats().system_bytes, before);
}

TEST(Grad, IsCapturedWithItsStep) {
  const auto train = [](bool captured) {
    manual_seed(3);
    nn::Sequential model(nn::Linear(2, 8), nn::Tanh(), nn::Linear(8, 1));
    optim::Adam adam(model.parameters(), {.lr = 1e-2});
    const auto step = [&](const Tensor& in) {
      const Tensor x = in.detach().requires_grad_();
      const Tensor u = model(x);
      const auto [du] = grad(u.sum(), std::array{x}, {.create_graph = true});
      const auto [ddu] = grad(du.narrow(1, 0, 1).sum(), std::array{x}, {.create_graph = true});
      const Tensor loss = (du.narrow(1, 1, 1) - ddu.narrow(1, 0, 1)).pow(2).mean() + u.pow(2).mean();
      adam.zero_grad();
      loss.backward();
      adam.step();
      return loss;
    };
    auto replayed = graph::capture(step);
    std::vector<double> losses;
    for (int i = 0; i < 8; ++i) {
      const Tensor x = test::values({16, 2}, -1, 1, static_cast<std::uint64_t>(i)).to(DType::f32);
      losses.push_back((captured ? replayed(x) : step(x)).item());
    }
    return losses;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(Grad, OfAnAutocastForwardPassHasTheTypesOfItsInputs) {
  const auto expect_types = [](nn::Sequential model) {
    const Tensor x = randn({16, 4}).requires_grad_();
    const auto slope = [&] { return grad(model(x).sum(), std::array{x}, {.create_graph = true})[0]; };
    const Tensor weight = model.parameters().front();
    const Tensor exact = slope();
    exact.pow(2).mean().backward();
    const Tensor exact_grad = weight.grad().clone();
    weight.zero_grad();
    const AutocastScope autocast(DType::bf16);
    const Tensor rough = slope();
    EXPECT_EQ(rough.dtype(), DType::f32);
    EXPECT_LT((rough - exact).norm().item(), 0.02 * exact.norm().item());
    rough.pow(2).mean().backward();
    EXPECT_EQ(weight.grad().dtype(), DType::f32);
    EXPECT_LT((weight.grad() - exact_grad).norm().item(), 0.05 * exact_grad.norm().item());
  };
  manual_seed(4);
  expect_types(nn::Sequential(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 1)));
  expect_types(nn::Sequential(nn::Linear(4, 8), nn::GELU(), nn::Linear(8, 1)));
  expect_types(nn::Sequential(nn::Linear(4, 8), nn::ELU(), nn::Linear(8, 1)));
}

TEST(HessianVectorProduct, IsThatOfTheHessian) {
  const Tensor x = f64({1, 2});
  const Tensor y = f64({3});
  const Tensor v = f64({1, 10}).detach();
  const Tensor u = f64({5}).detach();
  const Tensor out = (x * x * y).sum();  // blocks 2 y I and 2 x
  const std::vector<Tensor> got = autograd::hessian_vector_product(out, std::vector{x, y}, std::vector{v, u});
  EXPECT_THAT(list(got[0]), ElementsAre(6 * 1 + 2 * 1 * 5, 6 * 10 + 2 * 2 * 5));
  EXPECT_THAT(list(got[1]), ElementsAre(2 * 1 * 1 + 2 * 2 * 10));
  const std::vector<Tensor> none = autograd::hessian_vector_product((x * 2).sum(), std::vector{x}, std::vector{v});
  EXPECT_THAT(list(none[0]), ElementsAre(0, 0)) << "of a linear function";
}

TEST(GradErrors, NameTheInputOrTheOp) {
  const Tensor x = f64({2});
  const Tensor other = f64({1});
  const Tensor plain = f64({1}).detach();
  EXPECT_EQ(message_of<AutogradError>([&] { grad(x.sum(), std::array{plain}); }),
            "grad: input 0 [1] does not require a gradient (requires_grad_())");
  EXPECT_EQ(message_of<AutogradError>([&] { grad(plain * 2, std::array{x}); }),
            "grad: no output depends on anything that requires a gradient (was it computed under NoGradGuard, or from "
            "detached values?)");
  for (const bool create_graph : {false, true}) {
    EXPECT_EQ(message_of<AutogradError>([&] { grad(x.sum(), std::array{other}, {.create_graph = create_graph}); }),
              "grad: input 0 [1] takes no part in the outputs; leave it out, or pass {.allow_unused = true} for an "
              "undefined gradient");
    const auto [unused] = grad(x.sum(), std::array{other}, {.create_graph = create_graph, .allow_unused = true});
    EXPECT_FALSE(unused.defined());
  }
  EXPECT_EQ(message_of<AutogradError>([&] { grad(cat({x, x}), std::array{x}); }),
            "grad: output 0 [2] is not a scalar; reduce it (.mean(), .sum()) or pass its gradient (grad_outputs)");
  EXPECT_EQ(message_of<ShapeError>([&] { grad(x, std::array{x}, {.grad_outputs = {ones({2})}}); }),
            "grad: grad_outputs 0 is [2] f32 on cpu:0, the output [1] f64 on cpu:0");
  const Tensor freed = (x * x).sum();
  freed.backward();
  EXPECT_EQ(message_of<AutogradError>([&] { grad(freed, std::array{x}, {.create_graph = true}); }),
            "grad: the graph through 'sum' was freed by an earlier pass; pass retain_graph to that one, or compute the "
            "forward pass again");
}

}  // namespace
}  // namespace tandem
