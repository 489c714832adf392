#include <array>
#include <cstddef>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/ranks.h"
#include "support/message.h"

// autograd::grad() through wrappers.

namespace tandem::test {
namespace {

using parallel::DataParallel;
using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using ::testing::StartsWith;

struct Critic : nn::Module<Critic> {
  nn::Linear hidden = child("hidden", nn::Linear(2, 8));
  nn::Linear out = child("out", nn::Linear(8, 1));
  Tensor forward(const Tensor& x) const { return out(tanh(hidden(x))); }
};

Critic critic(DType dtype) {
  Generator seed(3);
  const GeneratorScope scope(seed);
  Critic model;
  model.to(dtype);
  return model;
}

// The weights after training with a gradient penalty on `ranks` ranks, which share each batch.
std::vector<double> trained(int ranks) {
  std::vector<double> weights;
  as_ranks(ranks, [&](ProcessGroup& group) {
    Critic model = critic(DType::f64);
    DistributedDataParallel ddp(model);
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    const std::int64_t rows = 8 / group.size();
    for (std::uint64_t step = 0; step < 3; ++step) {
      Generator seed(step);
      const GeneratorScope scope(seed);
      const Tensor all = rand({8, 2}, {.dtype = DType::f64});
      const Tensor x = all.narrow(0, group.rank() * rows, rows).clone().requires_grad_();
      const Tensor score = ddp(x);
      const auto [slope] = autograd::grad(score.sum(), std::array{x}, {.create_graph = true});
      sgd.zero_grad();
      ((slope.norm(2, {1}) - 1).pow(2).mean() + score.pow(2).mean()).backward();
      sgd.step();
    }
    if (group.rank() == 0) {
      for (const Tensor& parameter : model.parameters()) {
        const std::vector<double> values = parameter.to_vector<double>();
        weights.insert(weights.end(), values.begin(), values.end());
      }
    }
  });
  return weights;
}

TEST(GradOfDdp, PenaltyOnTwoRanksTrainsAsOnOne) {
  const std::vector<double> expected = trained(1);
  const std::vector<double> got = trained(2);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-12) << i;
  }
}

TEST(GradOfDdp, StartsNoExchangeAndLeavesThePassToBackward) {
  as_ranks(2, [](ProcessGroup& group) {
    Critic model = critic(DType::f32);
    DistributedDataParallel ddp(model);
    const Tensor x = rand({4, 2}).requires_grad_();
    const Tensor score = ddp(x).mean();
    if (group.rank() == 0) {  // a pass that exchanged gradients would wait for the other
      autograd::grad(score, std::array{x}, {.retain_graph = true});
      autograd::grad(std::span(&score, 1), model.parameters(), {.retain_graph = true});
    }
    score.backward();
  });
}

TEST(GradOfDdp, PenaltyAloneIsAnErrorThatSaysSo) {
  as_ranks(1, [](ProcessGroup&) {
    Critic model = critic(DType::f32);
    DistributedDataParallel ddp(model);
    const Tensor x = rand({4, 2}).requires_grad_();
    const auto [slope] = autograd::grad(ddp(x).sum(), std::array{x}, {.create_graph = true});
    EXPECT_THAT(message_of<AutogradError>([&] { slope.pow(2).mean().backward(); }),
                StartsWith("DistributedDataParallel: parameter 'hidden.weight' got a gradient in a backward pass in "
                           "which no output of the wrapped module took part"));
  });
}

TEST(GradOfReplicas, IsThatOfBackwardAndHasNoSecondOne) {
  Critic model = critic(DType::f32);
  DataParallel replicas(model, {"cpu:0", "cpu:1"});
  const Tensor x = rand({8, 2}).requires_grad_();
  const Tensor loss = replicas(x).pow(2).mean();
  std::vector<Tensor> inputs = model.parameters();
  inputs.push_back(x);
  const std::vector<Tensor> got = autograd::grad(std::span(&loss, 1), inputs, {.retain_graph = true});
  loss.backward();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(got[i].to_vector<float>(), inputs[i].grad().to_vector<float>()) << i;
  }
  EXPECT_EQ(
      message_of<AutogradError>([&] { autograd::grad(replicas(x).sum(), std::array{x}, {.create_graph = true}); }),
      "grad: 'gather' has no second derivative: leave create_graph out, or compute it by ops that have one");
}

}  // namespace
}  // namespace tandem::test
