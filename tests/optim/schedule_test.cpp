#include <tandem/optim/lr_scheduler.h>

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;

optim::SGD make(double lr = 0.5) { return optim::SGD({zeros({1}, {.requires_grad = true})}, {.lr = lr}); }

TEST(StepLR, MultipliesEverySoManySteps) {
  optim::SGD sgd = make(0.5);
  optim::StepLR schedule(sgd, {.step_size = 3, .gamma = 0.1});
  EXPECT_EQ(schedule.last_lr(), 0.5) << "the first epoch runs at the base rate";
  for (int count = 1; count <= 10; ++count) {
    schedule.step();
    EXPECT_NEAR(sgd.learning_rate(), 0.5 * std::pow(0.1, count / 3), 1e-17) << count;
    EXPECT_EQ(schedule.last_lr(), sgd.learning_rate());
  }
}

TEST(CosineAnnealingLR, GoesDownAlongACosine) {
  optim::SGD sgd = make(0.5);
  optim::CosineAnnealingLR schedule(sgd, {.T_max = 10, .eta_min = 0.1});
  EXPECT_EQ(sgd.learning_rate(), 0.5);
  for (int count = 1; count <= 25; ++count) {
    schedule.step();
    EXPECT_NEAR(sgd.learning_rate(), 0.1 + 0.4 * (1 + std::cos(std::numbers::pi * count / 10)) / 2, 1e-15) << count;
    if (count == 5) {
      EXPECT_NEAR(sgd.learning_rate(), 0.3, 1e-15);
    }
    if (count == 10) {
      EXPECT_NEAR(sgd.learning_rate(), 0.1, 1e-15);
    }
    if (count == 20) {
      EXPECT_NEAR(sgd.learning_rate(), 0.5, 1e-15) << "beyond T_max it comes back, as PyTorch's";
    }
  }
}

TEST(CosineAnnealingLR, ReachesZeroAndNeverLess) {
  optim::SGD sgd = make(0.3);
  optim::CosineAnnealingLR schedule(sgd, {.T_max = 7});
  for (int count = 0; count < 100; ++count) {
    EXPECT_NO_THROW(schedule.step());
    EXPECT_GE(sgd.learning_rate(), 0);
  }
}

TEST(Schedules, TakeEffectAtTheNextStep) {
  const Tensor leaf = zeros({1}, {.requires_grad = true});
  optim::SGD sgd({leaf}, {.lr = 1});
  optim::StepLR schedule(sgd, {.step_size = 1, .gamma = 0.5});
  for (int i = 0; i < 3; ++i) {
    leaf.zero_grad();
    leaf.sum().backward();
    sgd.step();
    schedule.step();
  }
  EXPECT_EQ(leaf.item(), -1.75);
}

TEST(Schedules, WrongOptionsAreErrors) {
  optim::SGD sgd = make();
  EXPECT_EQ(message_of<ConfigError>([&] { optim::StepLR(sgd, {.step_size = 0}); }),
            "StepLR: needs step_size >= 1 and gamma >= 0, got 0 and 0.1");
  EXPECT_THROW(optim::StepLR(sgd, {.step_size = 1, .gamma = -1}), ConfigError);
  EXPECT_THROW(optim::StepLR(sgd, {.step_size = 1, .gamma = std::nan("")}), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([&] { optim::CosineAnnealingLR(sgd, {.T_max = 0}); }),
            "CosineAnnealingLR: needs T_max >= 1 and eta_min >= 0, got 0 and 0");
  EXPECT_THROW(optim::CosineAnnealingLR(sgd, {.T_max = 5, .eta_min = -1}), ConfigError);
}

}  // namespace
}  // namespace tandem
