#include <tandem/optim/lr_scheduler.h>

#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/optim/one_cycle_lr.h>
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

TEST(Schedules, ActOnEveryGroupByItsOwnBase) {
  optim::SGD sgd(
      {{.params = {zeros({1}, {.requires_grad = true})}}, {.params = {zeros({1}, {.requires_grad = true})}, .lr = 0.5}},
      {.lr = 1});
  optim::StepLR schedule(sgd, {.step_size = 1, .gamma = 0.5});
  schedule.step();
  schedule.step();
  EXPECT_EQ(schedule.last_lrs(), (std::vector<double>{0.25, 0.125}));
  EXPECT_EQ(schedule.last_lr(), 0.25);
}

TEST(Schedules, StartFromTheRateBeforeTheFirstOfThem) {
  optim::SGD sgd = make(1);
  const optim::LinearLR warm_up(sgd, {.start_factor = 0.25});
  EXPECT_EQ(sgd.learning_rate(), 0.25);
  optim::ExponentialLR after(sgd, {.gamma = 0.5});
  after.step();
  EXPECT_EQ(sgd.learning_rate(), 0.5);
  EXPECT_EQ(sgd.param_groups()[0].initial_lr(), 1);
}

TEST(SequentialLR, WarmsUpAndThenFollowsACosine) {
  optim::SGD sgd = make(1);
  optim::LinearLR warm_up(sgd, {.start_factor = 0.25, .total_iters = 3});
  optim::CosineAnnealingLR cosine(sgd, {.T_max = 4});
  optim::SequentialLR schedule(sgd, {&warm_up, &cosine}, {3});
  for (const double rate : {0.25, 0.5, 0.75, 1.0, 0.5 + std::sqrt(0.125), 0.5}) {
    EXPECT_NEAR(sgd.learning_rate(), rate, 1e-15);
    schedule.step();
  }
}

TEST(OneCycleLR, StaysAtTheLastRateAfterTheLastBatchAndThenTellsOfOneTooMany) {
  optim::SGD sgd = make();
  optim::OneCycleLR schedule(sgd, {.max_lr = {1},
                                   .epochs = 2,
                                   .steps_per_epoch = 5,
                                   .anneal_strategy = optim::AnnealStrategy::linear,
                                   .cycle_momentum = false});
  EXPECT_EQ(sgd.learning_rate(), 1.0 / 25);
  for (int batch = 0; batch < 10; ++batch) {
    schedule.step();
  }
  EXPECT_NEAR(sgd.learning_rate(), 1.0 / 25 / 1e4, 1e-15);
  EXPECT_EQ(message_of<ConfigError>([&] { schedule.step(); }),
            "OneCycleLR: step() was called 11 times, but the cycle has 10 steps; set total_steps to the number of "
            "batches in the whole training");
}

TEST(OneCycleLR, OfOneStepOrWithoutAWayUp) {
  optim::SGD sgd = make();
  const optim::OneCycleLR one(sgd, {.max_lr = {1}, .total_steps = 1, .cycle_momentum = false});
  EXPECT_NEAR(sgd.learning_rate(), 4e-6, 1e-15);
  const optim::OneCycleLR from_top(sgd, {.max_lr = {1}, .total_steps = 10, .pct_start = 0.1, .cycle_momentum = false});
  EXPECT_EQ(sgd.learning_rate(), 1) << "the way up has a length of zero";
}

TEST(ReduceLROnPlateau, TakesNaNForNoImprovement) {
  optim::SGD sgd = make(1);
  optim::ReduceLROnPlateau schedule(sgd, {.factor = 0.5, .patience = 1});
  EXPECT_TRUE(std::isinf(schedule.best()));
  schedule.step(2);
  schedule.step(std::nan(""));
  EXPECT_EQ(sgd.learning_rate(), 1);
  schedule.step(std::nan(""));
  EXPECT_EQ(sgd.learning_rate(), 0.5);
  EXPECT_EQ(schedule.best(), 2);
}

TEST(ReduceLROnPlateau, GoesOnFromItsState) {
  optim::SGD sgd = make(1);
  optim::ReduceLROnPlateau schedule(sgd, {.factor = 0.5, .patience = 2, .cooldown = 1});
  for (const double metric : {1.0, 2.0, 2.0}) {
    schedule.step(metric);
  }
  optim::SGD other = make(1);
  optim::ReduceLROnPlateau again(other, {.factor = 0.5, .patience = 2, .cooldown = 1});
  again.load_state_dict(schedule.state_dict());
  again.step(2);
  EXPECT_EQ(other.learning_rate(), 0.5);
  EXPECT_EQ(again.best(), 1);
  EXPECT_EQ(message_of<ConfigError>([&] { again.load_state_dict({}); }),
            "load_state_dict: the state does not fit ReduceLROnPlateau; nothing was loaded\n"
            "  missing: 'best'\n  missing: 'num_bad_epochs'\n  missing: 'cooldown_counter'\n  missing: 'last_epoch'");
}

TEST(Schedules, MistakesAreNamed) {
  optim::SGD sgd = make();
  optim::SGD stranger = make();
  optim::StepLR a(sgd, {.step_size = 1});
  optim::StepLR b(stranger, {.step_size = 1});
  EXPECT_EQ(message_of<ConfigError>([&] { optim::MultiStepLR(sgd, {.milestones = {3, 1}}); }),
            "MultiStepLR: needs milestones, which ascend, and gamma >= 0, got [3, 1] and 0.1");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::ExponentialLR(sgd, {.gamma = -1}); }),
            "ExponentialLR: gamma must be >= 0, got -1");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::LinearLR(sgd, {.start_factor = 0}); }),
            "LinearLR: needs start_factor in (0, 1], end_factor in [0, 1] and total_iters >= 1, got 0, 1 and 5");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::LambdaLR(sgd, [](std::int64_t) { return -1.0; }); }),
            "LambdaLR: the function must return a number >= 0, got -1 for count 0");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::LambdaLR(sgd, nullptr); }), "LambdaLR: there is no function");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::SequentialLR(sgd, {&a, &a}, {}); }),
            "SequentialLR: needs one milestone less than schedulers, got 0 and 2 schedulers");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::SequentialLR(sgd, {&a, &b}, {2}); }),
            "SequentialLR: scheduler 1 is of another optimizer");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::SequentialLR(sgd, {&a, &a, &a}, {2, 2}); }),
            "SequentialLR: milestones must be > 0 and ascend, got 2 after 2");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::OneCycleLR(sgd, {.max_lr = {1}, .total_steps = 5}); }),
            "OneCycleLR: cycle_momentum needs an optimizer with momentum, and this SGD has none; give it one, or set "
            "cycle_momentum = false");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::OneCycleLR(sgd, {.max_lr = {1, 2}, .total_steps = 5}); }),
            "OneCycleLR: max_lr needs one rate, or one for each of the 1 groups, got 2");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::OneCycleLR(sgd, {.max_lr = {1}, .epochs = 3}); }),
            "OneCycleLR: needs total_steps >= 1, or epochs and steps_per_epoch >= 1, got 0, 3 and 0");
  EXPECT_EQ(
      message_of<ConfigError>([&] { optim::OneCycleLR(sgd, {.max_lr = {1}, .total_steps = 5, .max_momentum = 1}); }),
      "OneCycleLR: base_momentum and max_momentum must be in (0, 1), got 0.85 and 1");
  EXPECT_EQ(message_of<ConfigError>([&] { optim::ReduceLROnPlateau(sgd, {.factor = 1}); }),
            "ReduceLROnPlateau: factor must be in [0, 1), got 1");
  EXPECT_THROW(optim::ReduceLROnPlateau(sgd, {.patience = -1}), ConfigError);
  EXPECT_THROW(optim::ReduceLROnPlateau(sgd, {.min_lr = std::nan("")}), ConfigError);
}

TEST(Schedules, WhatMustBeGivenHasNoDefault) {
  Tensor w = ones({1}).requires_grad_();
  optim::SGD sgd({w}, {.lr = 0.1});
  EXPECT_EQ(message_of<ConfigError>([&] { optim::CosineAnnealingLR(sgd, {.eta_min = 0.001}); }),
            "CosineAnnealingLR: needs T_max >= 1 and eta_min >= 0, got 0 and 0.001");
  EXPECT_THROW(optim::StepLR(sgd, {.gamma = 0.5}), ConfigError);
  EXPECT_THROW(optim::MultiStepLR(sgd, {}), ConfigError);
}

}  // namespace
}  // namespace tandem
