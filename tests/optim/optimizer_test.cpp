#include <tandem/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "support/gpu.h"
#include "training_run.h"

// Tests every optimiser and option against a naive implementation in double precision, over 50 steps.

namespace tandem {
namespace {

using test::Case;
using test::gradient_at;
using test::kCases;
using test::kSizes;
using test::kSteps;
using test::Training;
using test::Values;

class EveryOptimizer : public ::testing::TestWithParam<Case> {};

TEST_P(EveryOptimizer, EqualsTheNaiveOne) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Training run(GetParam(), dtype);
    const auto optimizer = GetParam().make(run.handles());
    for (int step = 0; step < kSteps; ++step) {
      run.step(*optimizer, step);
    }
    run.expect_equal(test::tolerance(dtype));
  }
}

// As in PyTorch, a parameter without a gradient is left alone and its step count does not move.
TEST_P(EveryOptimizer, GradientsComeAndGo) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    Training run(GetParam(), DType::f64);
    const auto optimizer = GetParam().make(run.handles());
    Generator generator(seed);
    const GeneratorScope scope(generator);
    for (int step = 0; step < kSteps; ++step) {
      run.step(*optimizer, step, static_cast<unsigned>(randint(0, 32, {}).item<std::int64_t>()));
    }
    run.expect_equal(1e-12);
  }
}

TEST_P(EveryOptimizer, OneParameterComesLate) {
  Training run(GetParam(), DType::f64);
  const auto optimizer = GetParam().make(run.handles());
  for (int step = 0; step < kSteps; ++step) {
    run.step(*optimizer, step, step < 10 ? 0b11011u : ~0u);
  }
  run.expect_equal(1e-12);
}

TEST_P(EveryOptimizer, ThereMayBeNoGradientsAtAll) {
  Training run(GetParam(), DType::f64);
  const auto optimizer = GetParam().make(run.handles());
  optimizer->step();
  for (int step = 0; step < 10; ++step) {
    run.step(*optimizer, step, step % 3 == 2 ? 0u : ~0u);
  }
  run.expect_equal(1e-12);
}

TEST_P(EveryOptimizer, TheRateChangesFromStepToStep) {
  Training run(GetParam(), DType::f64);
  const auto optimizer = GetParam().make(run.handles());
  run.step(*optimizer, 0);
  optimizer->set_learning_rate(0);
  const std::vector<Values> before = run.expected;
  run.step(*optimizer, 1);
  for (std::size_t i = 0; i < before.size(); ++i) {
    for (std::size_t j = 0; j < before[i].size(); ++j) {
      EXPECT_NEAR(run.parameters[i].to_vector<double>()[j], before[i][j], 1e-12);
    }
  }
}

static_assert(!std::is_move_constructible_v<optim::SGD>, "a scheduler refers to it");

TEST_P(EveryOptimizer, FrozenParametersAreLeftAloneUntilTheyThaw) {
  Training run(GetParam(), DType::f64);
  run.parameters[1].requires_grad_(false);
  run.parameters[3].requires_grad_(false);
  const auto optimizer = GetParam().make(run.handles());
  for (int step = 0; step < 10; ++step) {
    run.step(*optimizer, step, 0b10101u);
  }
  run.parameters[3].requires_grad_();
  for (int step = 10; step < 20; ++step) {
    run.step(*optimizer, step, 0b11101u);
  }
  run.parameters[0].requires_grad_(false);
  for (int step = 20; step < 30; ++step) {
    run.step(*optimizer, step, 0b11100u);
  }
  run.parameters[0].requires_grad_();
  for (int step = 30; step < 40; ++step) {
    run.step(*optimizer, step, 0b11101u);
  }
  run.expect_equal(1e-12);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryOptimizer, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(TwoOptimizers, OnDisjointParametersDoNotDisturbEachOther) {
  Training run(kCases[2], DType::f64);
  const std::vector<Tensor> all = run.handles();
  optim::SGD first({all[0], all[2], all[4]}, {.lr = 0.05, .momentum = 0.9});
  optim::SGD second({all[1], all[3]}, {.lr = 0.05, .momentum = 0.9});
  for (int step = 0; step < 20; ++step) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].zero_grad();
      const Tensor g = gradient_at(step, i, DType::f64);
      all[i].backward(g);
      run.naive[i](run.expected[i], g.to_vector<double>());
    }
    first.step();
    second.step();
  }
  run.expect_equal(1e-12);
}

TEST(TwoOptimizers, OnOverlappingParametersTakeTurns) {
  Training run(kCases[2], DType::f64);
  std::vector<std::function<void(Values&, const Values&)>> other;
  for (std::size_t i = 0; i < kSizes.size(); ++i)
    other.push_back(kCases[2].naive());
  const std::vector<Tensor> all = run.handles();
  optim::SGD first({all[0], all[1], all[2]}, {.lr = 0.05, .momentum = 0.9});
  optim::SGD second({all[4], all[2], all[3], all[1]}, {.lr = 0.05, .momentum = 0.9});
  for (int step = 0; step < 20; ++step) {
    std::vector<Values> gradients;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].zero_grad();
      const Tensor g = gradient_at(step, i, DType::f64);
      all[i].backward(g);
      gradients.push_back(g.to_vector<double>());
    }
    first.step();
    second.step();
    for (const std::size_t i : {0u, 1u, 2u})
      run.naive[i](run.expected[i], gradients[i]);
    for (const std::size_t i : {4u, 2u, 3u, 1u})
      other[i](run.expected[i], gradients[i]);
  }
  run.expect_equal(1e-12);
}

TEST(Optimizer, ParametersOfSeveralDTypesAndDevices) {
  Training run(kCases[2], DType::f64);
  Parameter single(ones({3}));
  Parameter there(ones({3}, {.device = "cpu:1"}));
  std::vector<Tensor> all = run.handles();
  all.insert(all.begin() + 2, single);
  all.insert(all.begin() + 4, there);
  const auto optimizer = kCases[2].make(all);
  for (int step = 0; step < 3; ++step) {
    single.zero_grad();
    there.zero_grad();
    single.backward(ones({3}));
    there.backward(ones({3}, {.device = "cpu:1"}));
    // run.step() clears all gradients first, but here the other parameters get theirs in the same step.
    for (std::size_t i = 0; i < run.parameters.size(); ++i) {
      run.parameters[i].zero_grad();
      const Tensor g = gradient_at(step, i, DType::f64);
      run.parameters[i].backward(g);
      run.naive[i](run.expected[i], g.to_vector<double>());
    }
    optimizer->step();
  }
  run.expect_equal(1e-12);
  test::expect_same_up_to_gpu(single.to_vector<double>(), there.to_vector<double>());
  EXPECT_LT(single.to_vector<double>()[0], 0.9);
}

}  // namespace
}  // namespace tandem
