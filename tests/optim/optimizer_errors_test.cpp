#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/autograd/parameter.h>
#include <tandem/core/error.h>
#include <tandem/nn/linear.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/memory.h"
#include "support/message.h"

namespace tandem {
namespace {

using optim::Adam;
using optim::AdamW;
using optim::SGD;
using test::memory_of;
using test::message_of;

const double kNan = std::nan("");

std::vector<Tensor> one() { return {zeros({2}, {.requires_grad = true})}; }

TEST(OptimizerErrors, LearningRate) {
  EXPECT_EQ(message_of<ConfigError>([] { SGD(one(), {.lr = -0.5}); }),
            "SGD: the learning rate must be a number >= 0, got -0.5");
  EXPECT_THROW(SGD(one(), {.lr = HUGE_VAL}), ConfigError);
  EXPECT_THROW(Adam(one(), {.lr = kNan}), ConfigError);
  AdamW adamw(one(), {.lr = 0.5});
  EXPECT_EQ(message_of<ConfigError>([&] { adamw.set_learning_rate(kNan); }),
            "AdamW: the learning rate must be a number >= 0, got nan");
  EXPECT_EQ(adamw.learning_rate(), 0.5);
}

TEST(OptimizerErrors, OptionsOfSgd) {
  EXPECT_EQ(message_of<ConfigError>([] { SGD(one(), {.momentum = -1}); }),
            "SGD: momentum and weight_decay must be >= 0, got -1 and 0");
  EXPECT_THROW(SGD(one(), {.weight_decay = -1}), ConfigError);
  EXPECT_THROW(SGD(one(), {.momentum = kNan}), ConfigError);
  EXPECT_THROW(SGD(one(), {.weight_decay = kNan}), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([] { SGD(one(), {.nesterov = true}); }),
            "SGD: nesterov needs momentum > 0 and dampening = 0, got 0 and 0");
  EXPECT_THROW(SGD(one(), {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), ConfigError);
}

TEST(OptimizerErrors, OptionsOfAdam) {
  EXPECT_EQ(message_of<ConfigError>([] { Adam(one(), {.betas = {1, 0.999}}); }),
            "Adam: betas must be in [0, 1), got 1 and 0.999");
  EXPECT_THROW(Adam(one(), {.betas = {0.9, -0.1}}), ConfigError);
  EXPECT_THROW(Adam(one(), {.betas = {0.9, kNan}}), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([] { AdamW(one(), {.eps = -1}); }),
            "AdamW: eps and weight_decay must be >= 0, got -1 and 0.01");
  EXPECT_THROW(AdamW(one(), {.weight_decay = kNan}), ConfigError);
}

TEST(OptimizerErrors, Parameters) {
  EXPECT_EQ(message_of<ConfigError>([] { SGD({}); }),
            "SGD: the list of parameters is empty (did the model register its layers?)");
  EXPECT_EQ(message_of<ConfigError>([] { SGD({one()[0], Tensor()}); }), "SGD: parameter 1 is undefined");
  EXPECT_EQ(message_of<ConfigError>([] { Adam({one()[0] * 2}); }),
            "Adam: parameter 0 is the result of an op; only leaves can be optimised, such as a module's parameters()");
  const nn::Linear layer(2, 2);
  std::vector<Tensor> twice = layer.parameters();
  autograd::set_parameter_name(twice[0], "fc.weight");
  twice.push_back(twice[0]);
  EXPECT_EQ(message_of<ConfigError>([&] { SGD sgd(twice); }), "SGD: parameter 2 'fc.weight' appears twice");
}

TEST(Optimizer, PassesOverParametersThatNeedNoGradient) {
  const Tensor frozen = ones({2});
  const Tensor leaf = ones({2}, {.requires_grad = true});
  SGD sgd({frozen, leaf}, {.lr = 1});
  (leaf * frozen).sum().backward();
  sgd.step();
  EXPECT_EQ(frozen.to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_EQ(leaf.to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(sgd.parameters().size(), 2u);
  SGD only_frozen({frozen}, {.lr = 1});
  EXPECT_NO_THROW(only_frozen.step());
}

TEST(Optimizer, ZeroGradForgetsAndKeepsMemory) {
  TANDEM_SKIP_ON_GPU("it compares addresses of host memory");
  const Tensor leaf = ones({2}, {.requires_grad = true});
  SGD sgd({leaf}, {.lr = 1});
  leaf.sum().backward();
  const void* memory = memory_of(leaf.grad());
  sgd.zero_grad();
  EXPECT_FALSE(leaf.grad().defined());
  sgd.step();
  EXPECT_EQ(leaf.to_vector<double>(), (std::vector<double>{1, 1})) << "a forgotten gradient is none";
  leaf.sum().backward();
  EXPECT_EQ(memory_of(leaf.grad()), memory);
}

TEST(Optimizer, StepsNeedNoGuardAndRecordNothing) {
  const Tensor leaf = ones({2}, {.requires_grad = true});
  Adam adam({leaf});
  leaf.sum().backward();
  adam.step();
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_TRUE(leaf.requires_grad());
}

TEST(Optimizer, WorksOnNonDenseLeavesAndEmptyOnes) {
  Tensor transposed = arange(6.0).reshape({2, 3}).t();
  transposed.requires_grad_();
  const Tensor empty_one = zeros({0, 3}, {.requires_grad = true});
  SGD sgd({transposed, empty_one}, {.lr = 1, .momentum = 0.9});
  (transposed.sum() + empty_one.sum()).backward();
  sgd.step();
  EXPECT_EQ(transposed.to_vector<double>(), (std::vector<double>{-1, 2, 0, 3, 1, 4}));
}

}  // namespace
}  // namespace tandem
