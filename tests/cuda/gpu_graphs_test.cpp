#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/graph/capture.h>
#include <tandem/nn/container.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/lr_scheduler.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/recorder.h>

#include "cuda/gpu_test.h"

// Tests of how a captured step is cut into GPU graphs, and of the states that a graph holds.

namespace tandem {
namespace {

using test::filled;
using test::message_of;
using test::same_bits;

constexpr int kCutSteps = 9;

TEST(CudaCapture, OptimizersWithManyGroups) {
  TANDEM_NEEDS_GPUS(1);
  const core::DeviceScope on("cuda:0");
  for (const int count : {1, 2, 8, 9, 32, 33, 128, 129}) {
    std::vector<Tensor> weights;
    std::vector<optim::ParamGroup> groups;
    for (int i = 0; i < count; ++i) {
      weights.push_back(filled(1, 0).requires_grad_());
      groups.push_back({.params = {weights.back()}, .lr = i + 1.0});
    }
    optim::SGD sgd(groups, {.lr = 1});
    auto step = graph::capture([&] {
      sgd.zero_grad();
      Tensor sum = weights[0].sum();
      for (int i = 1; i < count; ++i)
        sum = sum + weights[static_cast<std::size_t>(i)].sum();
      sum.backward();
      sgd.step();
    });
    if (count > 128) {
      const std::string text = message_of<CaptureError>([&] { step(), step(); });
      EXPECT_TRUE(text.starts_with("captured step: more than 128 optimizers' steps and random draws")) << text;
      continue;
    }
    for (int i = 0; i < 4; ++i)
      step();
    EXPECT_EQ(step.stats().gpu_graphs, 1u);
    for (int i = 0; i < count; ++i)
      EXPECT_EQ(weights[static_cast<std::size_t>(i)].item(), -4 * (i + 1)) << i << " of " << count;
  }
}

// Draws and an optimiser's step lie on either side of the host's work, which has its place among the launches.
TEST(CudaCapture, WorkInTheMiddleCutsAStepIntoGraphs) {
  TANDEM_NEEDS_GPUS(1);
  const core::DeviceScope on("cuda:0");
  const auto train = [](bool captured) {
    manual_seed(5);
    nn::Sequential model(nn::Linear(8, 12), nn::ReLU(), nn::Linear(12, 3));
    optim::Adam adam(model.parameters(), {.lr = 0.1});
    optim::StepLR schedule(adam, {.step_size = 2, .gamma = 0.5});
    const Tensor middle = zeros({1});
    const auto step = [&](const Tensor& x) {
      adam.zero_grad();
      const Tensor out = dropout(model(x));
      Tensor loss = (out * out).mean();
      detail::placed_work("work in the middle", [&middle] {
        const NoGradGuard no_grad;
        Tensor(middle).add_(1);
      });
      loss.backward();
      adam.step();
      schedule.step();
      return loss;
    };
    auto replay = graph::capture(step);
    for (int i = 0; i < kCutSteps; ++i) {
      const Tensor x = filled(16, i).reshape({2, 8});
      captured ? replay(x) : step(x);
    }
    EXPECT_EQ(replay.stats().gpu_graphs, captured ? 2u : 0u);
    EXPECT_EQ(middle.item(), kCutSteps);
    std::vector<Tensor> flat;
    for (const Tensor& parameter : model.parameters()) {
      flat.push_back(parameter.detach().flatten());
    }
    return cat(flat);
  };
  EXPECT_TRUE(same_bits(train(true), train(false)));
}

// A step without such work is refused then.
TEST(CudaCapture, APartWithMoreStatesThanAGraphHoldsRunsLaunchByLaunch) {
  TANDEM_NEEDS_GPUS(1);
  const core::DeviceScope on("cuda:0");
  constexpr int kCount = 129;
  std::vector<Tensor> weights;
  std::vector<optim::ParamGroup> groups;
  for (int i = 0; i < kCount; ++i) {
    weights.push_back(filled(1, 0).requires_grad_());
    groups.push_back({.params = {weights.back()}, .lr = i + 1.0});
  }
  optim::SGD sgd(groups, {.lr = 1});
  auto step = graph::capture([&] {
    sgd.zero_grad();
    Tensor sum = weights[0].sum();
    for (std::size_t i = 1; i < kCount; ++i)
      sum = sum + weights[i].sum();
    sum.backward();
    detail::placed_work("work in the middle", [] {});
    sgd.step();
  });
  for (int i = 0; i < 4; ++i)
    step();
  EXPECT_EQ(step.stats().gpu_graphs, 1u);
  for (int i = 0; i < kCount; ++i)
    EXPECT_EQ(weights[static_cast<std::size_t>(i)].item(), -4 * (i + 1)) << i;
}

}  // namespace
}  // namespace tandem
