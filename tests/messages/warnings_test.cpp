#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "support/warnings.h"

// Mistakes in a training loop that run: each is told once in a process, so each has a test of its own here.

namespace tandem {
namespace {

using test::Warnings;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Net : nn::Module<Net> {
  nn::Linear fc1 = child("fc1", nn::Linear(4, 3));
  nn::Linear spare = child("spare", nn::Linear(4, 3));
  Tensor forward(const Tensor& x) const { return fc1(x); }
};

Tensor loss_of(const Net& net) { return net(ones({2, 4})).sum(); }

TEST(WarningInTraining, SoftmaxBeforeALoss) {
  Net net;
  const Tensor y = tensor({0, 2});
  Warnings warnings;
  for (int i = 0; i < 2; ++i) {
    nn::cross_entropy(net(ones({2, 4})), y);
    nn::nll_loss(log_softmax(net(ones({2, 4})), 1), y);
  }
  EXPECT_THAT(warnings.texts(), IsEmpty());
  for (int i = 0; i < 2; ++i) {
    nn::cross_entropy(softmax(net(ones({2, 4})), 1), y);
    nn::nll_loss(softmax(net(ones({2, 4})), 1), y);
    nn::binary_cross_entropy_with_logits(sigmoid(net(ones({2, 4}))).view({6}), ones({6}));
  }
  EXPECT_THAT(warnings.texts(),
              ElementsAre("cross_entropy: the logits are the result of softmax(); it applies softmax() itself: give it "
                          "what comes before [TDM-W205]",
                          "nll_loss: the log_probs are the result of softmax(); it takes log_softmax(), or use "
                          "cross_entropy on the logits [TDM-W205]",
                          "binary_cross_entropy_with_logits: the logits are the result of sigmoid(); it applies "
                          "sigmoid() itself: give it what comes before [TDM-W205]"));
}

TEST(WarningInTraining, NothingForTheUsualLoop) {
  Net net;
  optim::Adagrad adagrad(net.fc1.parameters(), {.lr = 0.1});
  optim::StepLR schedule(adagrad, {.step_size = 2});
  Warnings warnings;
  for (int step = 0; step < 12; ++step) {
    adagrad.zero_grad();
    loss_of(net).backward();
    loss_of(net).backward();  // accumulates within the step
    adagrad.step();
    schedule.step();
  }
  EXPECT_THAT(warnings.texts(), IsEmpty());
}

// A replay drops the gradient first, as zero_grad() in the captured part does.
TEST(WarningInTraining, NothingForAStepAfterACapturedBackwardPass) {
  Net net;
  optim::Adagrad adagrad(net.fc1.parameters(), {.lr = 0.1});
  auto gradients = graph::capture([&](const Tensor& x) {
    adagrad.zero_grad();
    const Tensor loss = net(x).sum();
    loss.backward();
    return loss;
  });
  Warnings warnings;
  for (int step = 0; step < 8; ++step) {
    gradients(ones({2, 4}));
    adagrad.step();
  }
  EXPECT_THAT(warnings.texts(), IsEmpty());
}

TEST(WarningInTraining, NothingForTwoOptimisersOfOneParameter) {
  Net net;
  optim::Adagrad one(net.fc1.parameters(), {.lr = 0.1});
  optim::Adagrad two(net.fc1.parameters(), {.lr = 0.2});
  Warnings warnings;
  for (int step = 0; step < 3; ++step) {
    one.zero_grad();
    loss_of(net).backward();
    one.step();
    two.step();
  }
  EXPECT_THAT(warnings.texts(), IsEmpty());
}

TEST(WarningInTraining, NoZeroGrad) {
  Net net;
  optim::SGD sgd(net.fc1.parameters(), {.lr = 0.1});
  Warnings warnings;
  for (int step = 0; step < 3; ++step) {
    loss_of(net).backward();
    sgd.step();
  }
  EXPECT_THAT(warnings.texts(), ElementsAre("SGD: step() uses sums of new gradients and those of the step before; call "
                                            "zero_grad() in each step, before loss.backward() [TDM-W201]"));
}

TEST(WarningInTraining, NothingForGradientsThatTheProgramSetsToZero) {
  Net net;
  optim::SGD sgd(net.fc1.parameters(), {.lr = 0.1});
  Warnings warnings;
  const auto forget = [&] {
    for (const Tensor& parameter : net.fc1.parameters()) {
      parameter.grad().zero_();
    }
  };
  for (int step = 0; step < 3; ++step) {
    loss_of(net).backward();
    sgd.step();
    forget();
  }
  loss_of(net).backward();
  sgd.step();
  loss_of(net).backward();  // was not meant
  forget();
  loss_of(net).backward();
  sgd.step();
  EXPECT_THAT(warnings.texts(), IsEmpty());
}

TEST(WarningInTraining, StepsWithoutABackwardPass) {
  Net net;
  optim::SGD sgd(net.fc1.parameters(), {.lr = 0.1});
  Warnings warnings;
  sgd.step();
  loss_of(net).backward();
  sgd.step();
  sgd.step();
  sgd.zero_grad();
  sgd.step();
  EXPECT_THAT(warnings.texts(),
              ElementsAre("SGD: step() finds no gradient in any parameter; call loss.backward() after zero_grad() and "
                          "before each step() [TDM-W202]",
                          "SGD: step() uses the gradients of the step before once more; call loss.backward() before "
                          "each step() [TDM-W202]"));
}

TEST(WarningInTraining, AScheduleBeforeItsOptimiser) {
  Net net;
  optim::SGD sgd(net.fc1.parameters(), {.lr = 0.1});
  optim::ExponentialLR schedule(sgd, {.gamma = 0.5});
  Warnings warnings;
  for (int step = 0; step < 2; ++step) {
    sgd.zero_grad();
    loss_of(net).backward();
    schedule.step();
    sgd.step();
  }
  EXPECT_THAT(warnings.texts(),
              ElementsAre("ExponentialLR: step() before the first step() of its optimiser SGD: the "
                          "first rate of the schedule is never used. Call it after the optimiser's [TDM-W206]"));
}

TEST(WarningInTraining, AParameterThatNeverGetsAGradient) {
  Net net;
  optim::RMSprop rmsprop(net.parameters(), {.lr = 0.1});
  Warnings warnings;
  for (int step = 0; step < 12; ++step) {
    rmsprop.zero_grad();
    loss_of(net).backward();
    rmsprop.step();
  }
  EXPECT_THAT(warnings.texts(),
              ElementsAre("RMSprop: parameter 'spare.bias' and 1 more had no gradient in 10 steps, and stays as it is: "
                          "it takes no part in the loss. Use it, or leave it out (requires_grad_(false)) [TDM-W203]"));
}

// The input is new in each step and is no weight, though it asks for a gradient.
TEST(WarningInTraining, AWeightThatNoOptimiserHas) {
  struct Raw : nn::Module<Raw> {
    nn::Linear fc = child("fc", nn::Linear(4, 3));
    Tensor scale = ones({3}, {.requires_grad = true});
    Tensor forward(const Tensor& x) const { return fc(x) * scale; }
  } net;
  Net other;
  optim::SGD sgd(net.parameters(), {.lr = 0.1});
  optim::SGD second(other.fc1.parameters(), {.lr = 0.1});
  Warnings warnings;
  const auto train = [&](bool raw) {
    for (int step = 0; step < 4; ++step) {
      sgd.zero_grad();
      const Tensor x = ones({2, 4}, {.requires_grad = true});
      (raw ? net(x) : net.fc(x)).sum().backward();
      sgd.step();
      second.zero_grad();
      loss_of(other).backward();
      second.step();
    }
  };
  train(false);
  EXPECT_THAT(warnings.texts(), IsEmpty());
  train(true);
  EXPECT_THAT(warnings.texts(),
              ElementsAre("backward: a tensor [3] gets a gradient in each step, and no optimiser has it: it is never "
                          "trained. If it is a weight, register it, Parameter weight = parameter(\"weight\", ...), or "
                          "hand it to the optimiser; if it is data and nobody reads its gradient, "
                          "requires_grad_(false) saves that [TDM-W204]"));
}

}  // namespace
}  // namespace tandem
