#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/graph/capture.h>
#include <tandem/nn/linear.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/grad_scaler.h>

#include "support/gpu.h"
#include "support/message.h"
#include "training_run.h"

// Tests that scaling changes only the range: a step uses the gradients of an unscaled run, or is not taken at all.

namespace tandem {
namespace {

using optim::GradScaler;
using test::message_of;

// A loss whose gradients are test::gradient_at. The last element of the last gradient is increased by `more`.
Tensor loss_of(const test::Training& training, int step, unsigned mask = ~0u, double more = 0) {
  Tensor loss = zeros({});
  const std::size_t last = training.parameters.size() - 1;
  for (std::size_t i = 0; i <= last; ++i) {
    if ((mask >> i & 1u) == 0) continue;
    Tensor g = test::gradient_at(step, i, training.parameters[i].dtype());
    if (i == last && more != 0) {
      g[-1].fill_(more);
    }
    loss = loss + (training.parameters[i] * g).sum().to(DType::f32);
  }
  return loss;
}

std::vector<test::Values> values_of(const test::Training& training) {
  std::vector<test::Values> all;
  for (const Parameter& p : training.parameters)
    all.push_back(p.to_vector<double>());
  return all;
}

std::vector<std::pair<std::string, test::Values>> state_of(const optim::Optimizer& optimizer) {
  std::vector<std::pair<std::string, test::Values>> all;
  for (const auto& [name, value] : optimizer.state_dict())
    all.emplace_back(name, value.to_vector<double>());
  return all;
}

class ScaledOptimizer : public ::testing::TestWithParam<test::Case> {};

// The scales are powers of two, so scaling causes no rounding.
TEST_P(ScaledOptimizer, IsTheUnscaledOneWithoutTheStepsThatOverflow) {
  for (const auto& [dtype, unscale] : {std::pair{DType::f32, false}, {DType::f32, true}, {DType::f64, false}}) {
    test::Training plain(GetParam(), dtype);
    test::Training scaled(GetParam(), dtype);
    const auto plain_optimizer = GetParam().make(plain.handles());
    const auto optimizer = GetParam().make(scaled.handles());
    GradScaler scaler({.init_scale = 64, .growth_interval = 3});
    for (int step = 0; step < 18; ++step) {
      const bool overflows = step < 2 || step == 8 || step == 15;
      const unsigned mask = step < 10 ? ~0u : ~1u;  // another layout after skipped steps
      if (!overflows) {
        plain_optimizer->zero_grad();
        loss_of(plain, step, mask).backward();
        plain_optimizer->step();
      }
      optimizer->zero_grad();
      scaler.scale(loss_of(scaled, step, mask, overflows ? (step % 2 == 0 ? HUGE_VAL : std::nan("")) : 0)).backward();
      if (unscale) {
        scaler.unscale_(*optimizer);
      }
      scaler.step(*optimizer);
      scaler.update();
    }
    EXPECT_EQ(values_of(scaled), values_of(plain));
    EXPECT_EQ(state_of(*optimizer), state_of(*plain_optimizer));
  }
}

TEST_P(ScaledOptimizer, StepsWithoutTheScalerCountFromWhereItLeftOff) {
  test::Training plain(GetParam(), DType::f32);
  test::Training scaled(GetParam(), DType::f32);
  const auto plain_optimizer = GetParam().make(plain.handles());
  const auto optimizer = GetParam().make(scaled.handles());
  GradScaler scaler;
  optimizer->zero_grad();
  scaler.scale(loss_of(scaled, 0, ~0u, HUGE_VAL)).backward();
  scaler.step(*optimizer);
  scaler.update();
  EXPECT_EQ(values_of(scaled), values_of(plain));
  for (int step = 1; step < 5; ++step) {
    for (auto* run : {&plain, &scaled}) {
      auto& stepped = run == &plain ? *plain_optimizer : *optimizer;
      stepped.zero_grad();
      loss_of(*run, step).backward();
      stepped.step();
    }
  }
  EXPECT_EQ(values_of(scaled), values_of(plain));
  EXPECT_EQ(state_of(*optimizer), state_of(*plain_optimizer));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ScaledOptimizer, ::testing::ValuesIn(test::kCases),
                         [](const auto& test) { return test.param.name; });

// One parameter p whose gradient is `gradient` times the scale.
struct One {
  Parameter p{ones({3})};
  optim::SGD sgd{std::vector<Tensor>{p}, {.lr = 1}};

  void backward(GradScaler& scaler, double gradient = 1) {
    sgd.zero_grad();
    scaler.scale((p * gradient).sum()).backward();
  }
};

TEST(SkipNonfinite, LeavesTheUpdateOutInCapturedStepsToo) {
  for (const bool captured : {false, true}) {
    Parameter p(ones({3}));
    optim::Adam adam(std::vector<Tensor>{p}, {.lr = 0.1});
    adam.skip_nonfinite();
    const auto step = [&](const Tensor& factor) {
      adam.zero_grad();
      Tensor loss = (p * factor).sum();
      loss.backward();
      adam.step();
      return loss;
    };
    auto replayed = graph::capture(step);
    const auto run = [&](double factor) { captured ? replayed(full({3}, factor)) : step(full({3}, factor)); };
    for (int i = 0; i < 4; ++i) {
      run(2);
    }
    EXPECT_FALSE(adam.found_nonfinite());
    const auto before = p.to_vector<float>();
    run(HUGE_VAL);
    EXPECT_TRUE(adam.found_nonfinite());
    EXPECT_EQ(p.to_vector<float>(), before);
    run(2);
    EXPECT_NE(p.to_vector<float>(), before);
    EXPECT_TRUE(adam.found_nonfinite()) << "until it is asked for anew";
    EXPECT_EQ(adam.state_dict().at("state.0.step").item<std::int64_t>(), 5) << "steps that were made";
    adam.skip_nonfinite();
    EXPECT_FALSE(adam.found_nonfinite());
    adam.skip_nonfinite(false);
    run(std::nan(""));
    EXPECT_TRUE(std::isnan(p[0].item<float>()));
  }
}

TEST(GradScaler, ScalesTheLossAndItsGradients) {
  One one;
  GradScaler scaler({.init_scale = 8});
  const Tensor scaled = scaler.scale((one.p * 2).sum());
  EXPECT_EQ(scaled.item(), 48);
  scaled.backward();
  EXPECT_EQ(one.p.grad().to_vector<float>(), (std::vector<float>{16, 16, 16}));
  scaler.unscale_(one.sgd);
  EXPECT_EQ(one.p.grad().to_vector<float>(), (std::vector<float>{2, 2, 2}));
  scaler.step(one.sgd);
  EXPECT_EQ(one.p.to_vector<float>(), (std::vector<float>{-1, -1, -1}));
}

TEST(GradScaler, ALossOf16BitsBecomesF32) {
  Parameter p(ones({3}, {.dtype = DType::f16}));
  GradScaler scaler;  // its scale, 65536, exceeds the range of f16
  EXPECT_EQ(scaler.scale(p.sum()).dtype(), DType::f32);
  EXPECT_EQ(scaler.scale(p.sum()).item(), 3 * 65536);
}

TEST(GradScaler, HasTheSizeOfGradientsThatAreClipped) {
  One one;
  GradScaler scaler({.init_scale = 1024});
  one.backward(scaler, 2);
  scaler.unscale_(one.sgd);
  EXPECT_NEAR(optim::clip_grad_norm_({one.p}, 1.0).item(), std::sqrt(12), 1e-6);
  scaler.step(one.sgd);
  scaler.update();
  EXPECT_NEAR(one.p[0].item(), 1 - 1 / std::sqrt(3), 1e-5);
}

TEST(GradScaler, BacksOffAndGrows) {
  One one;
  GradScaler scaler({.init_scale = 4, .growth_factor = 3, .backoff_factor = 0.5, .growth_interval = 2});
  std::vector<double> scales;
  for (const double gradient : {1.0, HUGE_VAL, 1.0, 1.0, 1.0, std::nan(""), 1.0, 1.0}) {
    one.backward(scaler, gradient);
    scaler.step(one.sgd);
    scaler.update();
    scales.push_back(scaler.get_scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{4, 2, 2, 6, 6, 3, 3, 9}));
  EXPECT_EQ(one.p[0].item(), 1 - 6);
}

TEST(GradScaler, ASecondOptimizerIsSteppedThoughTheFirstIsNot) {
  One a;
  One b;
  GradScaler scaler({.init_scale = 16});
  a.backward(scaler, HUGE_VAL);
  b.backward(scaler, 1);
  scaler.step(a.sgd);
  scaler.step(b.sgd);
  scaler.update();
  EXPECT_EQ(a.p[0].item(), 1);
  EXPECT_EQ(b.p[0].item(), 0);
  EXPECT_EQ(scaler.get_scale(), 8);
}

TEST(GradScaler, WhatUnscaleFoundCountsWithoutAStep) {
  One one;
  GradScaler scaler({.init_scale = 16});
  one.backward(scaler, HUGE_VAL);
  scaler.unscale_(one.sgd);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 8);
  EXPECT_EQ(state_of(one.sgd).size(), 4u);  // only the group's entries: no step was taken
}

TEST(GradScaler, WhatUnscaleFoundHoldsForGradientsThatComeLater) {
  One one;
  Parameter late(ones({2}));
  optim::Adam adam({one.p, late}, {});
  GradScaler scaler({.init_scale = 16});
  scaler.scale((one.p * HUGE_VAL).sum()).backward();
  scaler.unscale_(adam);
  late.sum().backward();  // makes the optimiser cut new slices
  scaler.step(adam);
  scaler.update();
  EXPECT_EQ(late[0].item(), 1);
  EXPECT_EQ(adam.state_dict().find("state.1.step"), nullptr);
  scaler.scale((one.p + late[0]).sum()).backward();
  EXPECT_EQ(scaler.get_scale(), 8);
}

TEST(GradScaler, ItsCountIsForgottenWithALoadedState) {
  One one;
  optim::Adam adam({one.p}, {});
  GradScaler scaler;
  const auto train = [&](double gradient) {
    adam.zero_grad();
    scaler.scale((one.p * gradient).sum()).backward();
    scaler.step(adam);
    scaler.update();
  };
  train(1);
  const StateDict state = adam.state_dict();
  train(HUGE_VAL);
  train(HUGE_VAL);
  EXPECT_EQ(adam.state_dict().at("state.0.step").item(), 1);
  adam.load_state_dict(state);
  EXPECT_EQ(adam.state_dict().at("state.0.step").item(), 1);
  train(1);
  EXPECT_EQ(adam.state_dict().at("state.0.step").item(), 2);
}

TEST(GradScaler, StepsOverAParameterWithoutElementsOrGradient) {
  Parameter empty(zeros({0, 4}));
  Parameter unused(ones({2}));
  Parameter used(ones({2}));
  optim::Adam adam({empty, unused, used}, {.lr = 0.5});
  GradScaler scaler;
  for (int i = 0; i < 2; ++i) {
    adam.zero_grad();
    scaler.scale(empty.sum() + used.sum()).backward();
    scaler.step(adam);
    scaler.update();
  }
  EXPECT_EQ(unused[0].item(), 1);
  EXPECT_NEAR(used[0].item(), 0, 1e-5);
}

TEST(GradScaler, TheScaleCanBeSet) {
  One one;
  GradScaler scaler;
  one.backward(scaler, HUGE_VAL);
  scaler.step(one.sgd);
  scaler.update(128);
  EXPECT_EQ(scaler.get_scale(), 128);
  EXPECT_THROW(scaler.update(0), ConfigError);
  EXPECT_THROW(scaler.update(HUGE_VAL), ConfigError);
  one.backward(scaler);
  scaler.step(one.sgd);
  scaler.update();  // forgets earlier findings
  EXPECT_EQ(scaler.get_scale(), 128);
}

TEST(GradScaler, AScaleOfAlmostZeroKeepsGapsAndParameters) {
  One one;
  GradScaler scaler({.init_scale = 1e-45, .growth_interval = 1});  // the scale's inverse is infinite in f32
  one.backward(scaler);
  scaler.unscale_(one.sgd);
  scaler.step(one.sgd);
  EXPECT_EQ(one.p[0].item(), 1);
  one.sgd.step();  // gradients are not finite; the padding is not checked
  EXPECT_FALSE(std::isfinite(optim::clip_grad_norm_({one.p}, 1).item()));
}

TEST(GradScaler, SwitchedOffItIsNotThere) {
  One one;
  GradScaler scaler({.enabled = false});
  one.backward(scaler, 2);
  scaler.unscale_(one.sgd);
  EXPECT_EQ(one.p.grad()[0].item(), 2);
  scaler.step(one.sgd);
  scaler.update();
  EXPECT_EQ(one.p[0].item(), -1);
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_EQ(scaler.state_dict().size(), 0u);
  EXPECT_FALSE(scaler.is_enabled());
  scaler.load_state_dict({});
}

TEST(GradScaler, GoesOnFromItsState) {
  One one;
  GradScaler scaler({.init_scale = 32, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 3});
  for (int i = 0; i < 4; ++i) {
    one.backward(scaler);
    scaler.step(one.sgd);
    scaler.update();
  }
  const StateDict state = scaler.state_dict();
  EXPECT_EQ(state.size(), 5u);
  EXPECT_EQ(state.at("scale").item(), 128);
  EXPECT_EQ(state.at("_growth_tracker").item(), 1);
  EXPECT_EQ(state.at("growth_interval").item(), 3);
  for (const bool used_before : {false, true}) {
    GradScaler other;
    if (used_before) {
      one.backward(other);
    }
    other.load_state_dict(state);
    EXPECT_EQ(other.get_scale(), 128);
    for (int i = 0; i < 2; ++i) {
      one.backward(other);
      other.step(one.sgd);
      other.update();
    }
    EXPECT_EQ(other.get_scale(), 512);
    EXPECT_EQ(other.state_dict().at("_growth_tracker").item(), 0);
  }
}

TEST(GradScaler, WithALoadedStateTheFirstStepMayComeBeforeTheFirstLoss) {
  One one;
  GradScaler scaler;
  scaler.load_state_dict(GradScaler({.init_scale = 8}).state_dict());
  (one.p * 8).sum().backward();  // as the other ranks of a Join send it
  scaler.step(one.sgd);
  scaler.update();
  EXPECT_EQ(one.p.to_vector<float>(), std::vector<float>(3, 0));
  EXPECT_EQ(scaler.state_dict().at("_growth_tracker").item(), 1);
}

TEST(GradScalerErrors, OptionsAndStates) {
  EXPECT_EQ(message_of<ConfigError>([] { GradScaler({.growth_factor = 1}); }),
            "GradScaler: growth_factor must be a number > 1, got 1");
  EXPECT_THROW(GradScaler({.init_scale = 0}), ConfigError);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), ConfigError);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), ConfigError);
  GradScaler scaler;
  EXPECT_THROW(scaler.load_state_dict({}), ConfigError);
  StateDict state = scaler.state_dict();
  state.set("growth_factor", tensor(0.5));
  EXPECT_THROW(scaler.load_state_dict(state), ConfigError);
  EXPECT_EQ(scaler.get_scale(), 65536);
}

TEST(GradScalerErrors, CallsInTheWrongOrder) {
  One one;
  GradScaler scaler;
  EXPECT_EQ(message_of<AutogradError>([&] { scaler.step(one.sgd); }),
            "GradScaler::step: there is no scaled loss; call scaler.scale(loss).backward() first");
  EXPECT_THROW(scaler.unscale_(one.sgd), AutogradError);
  EXPECT_THROW(scaler.update(), AutogradError);
  const Tensor loss = scaler.scale(one.p.sum());
  EXPECT_EQ(message_of<AutogradError>([&] { scaler.step(one.sgd); }),
            "GradScaler::step: no parameter of SGD has a gradient; call scaler.scale(loss).backward() first");
  loss.backward();
  EXPECT_EQ(message_of<ConfigError>([&] { scaler.update(); }),
            "GradScaler::update: no optimizer looked at its gradients since the last update(); call "
            "scaler.step(optimizer) first");
  scaler.unscale_(one.sgd);
  EXPECT_EQ(message_of<ConfigError>([&] { scaler.unscale_(one.sgd); }),
            "GradScaler::unscale_: called twice for SGD since the last update()");
  scaler.step(one.sgd);
  const std::string stepped =
      "SGD has been stepped since the last update(); call update() once per iteration, after the steps of all "
      "optimizers";
  EXPECT_EQ(message_of<ConfigError>([&] { scaler.step(one.sgd); }), "GradScaler::step: " + stepped);
  EXPECT_EQ(message_of<ConfigError>([&] { scaler.unscale_(one.sgd); }), "GradScaler::unscale_: " + stepped);
  scaler.update();
  one.backward(scaler);
  scaler.step(one.sgd);
  EXPECT_EQ(one.p[0].item(), -1);  // none of the errors took a step
}

TEST(GradScalerErrors, AnotherDevice) {
  One one;
  Parameter elsewhere(ones({2}, {.device = "cpu:1"}));
  GradScaler scaler;
  one.backward(scaler);
  EXPECT_THROW(scaler.scale(elsewhere.sum()), DeviceError);
  optim::SGD both({one.p, elsewhere}, {});
  elsewhere.sum().backward();
  EXPECT_THROW(scaler.step(both), DeviceError);
}

TEST(GradScalerErrors, ACapturedStepNeedsTheUnscalingItWasRecordedWith) {
  One one;
  GradScaler scaler;
  auto step = graph::capture([&] { scaler.step(one.sgd); });
  for (int i = 0; i < 5; ++i) {
    one.backward(scaler);
    step();
    scaler.update();
  }
  EXPECT_GE(step.stats().replayed, 2u);
  one.backward(scaler);
  scaler.unscale_(one.sgd);
  EXPECT_EQ(message_of<CaptureError>([&] { step(); }),
            "captured step: GradScaler::step was recorded without unscale_(SGD), and now it is otherwise; make "
            "unscale_ a part of the step");
}

}  // namespace
}  // namespace tandem
