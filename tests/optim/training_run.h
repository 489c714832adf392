#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/autograd/parameter.h>
#include <tandem/optim/adagrad.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/rmsprop.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "naive.h"

// Every optimiser with its options, a naive counterpart in double precision, and parameters to run both on.

namespace tandem::test {

inline constexpr int kSteps = 50;

inline const std::vector<Shape> kSizes{{3, 5}, {}, {65}, {7, 1, 2}, {64}};

// The gradient of parameter `which` at a step. The numbers are arbitrary, but both sides get the same.
inline Tensor gradient_at(int step, std::size_t which, DType dtype) {
  Generator generator(1000 * static_cast<std::uint64_t>(step) + which);
  const GeneratorScope scope(generator);
  return randn(kSizes[which], {.dtype = dtype});
}

struct Case {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>&)> make;
  // Makes the optimiser for groups with options of their own.
  std::function<std::unique_ptr<optim::Optimizer>(const std::vector<optim::ParamGroup>&)> make_groups;
  // Makes a step function for one parameter, in double precision.
  std::function<std::function<void(Values&, const Values&)>()> naive;
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

template <class Optimizer, class Options, class Naive>
Case make_case(const char* name, const Options& options, const Naive& naive) {
  return {name, [options](const std::vector<Tensor>& p) { return std::make_unique<Optimizer>(p, options); },
          [options](const std::vector<optim::ParamGroup>& g) { return std::make_unique<Optimizer>(g, options); },
          [naive] { return [naive = Naive(naive)](Values& p, const Values& g) mutable { naive.step(p, g); }; }};
}

inline Case sgd(const char* name, const optim::SGDOptions& o) {
  return make_case<optim::SGD>(name, o,
                               NaiveSgd{.lr = o.lr,
                                        .momentum = o.momentum,
                                        .dampening = o.dampening,
                                        .weight_decay = o.weight_decay,
                                        .nesterov = o.nesterov,
                                        .maximize = o.maximize});
}

template <class Optimizer, class Options>
Case any_adam(const char* name, const Options& o, bool decoupled) {
  return make_case<Optimizer>(name, o,
                              NaiveAdam{.lr = o.lr,
                                        .beta1 = o.betas.first,
                                        .beta2 = o.betas.second,
                                        .eps = o.eps,
                                        .weight_decay = o.weight_decay,
                                        .decoupled = decoupled,
                                        .amsgrad = o.amsgrad,
                                        .maximize = o.maximize});
}

inline Case adam(const char* name, const optim::AdamOptions& o) { return any_adam<optim::Adam>(name, o, false); }
inline Case adamw(const char* name, const optim::AdamWOptions& o) { return any_adam<optim::AdamW>(name, o, true); }

inline Case rmsprop(const char* name, const optim::RMSpropOptions& o) {
  return make_case<optim::RMSprop>(name, o,
                                   NaiveRmsProp{.lr = o.lr,
                                                .alpha = o.alpha,
                                                .eps = o.eps,
                                                .weight_decay = o.weight_decay,
                                                .momentum = o.momentum,
                                                .centered = o.centered,
                                                .maximize = o.maximize});
}

inline Case adagrad(const char* name, const optim::AdagradOptions& o) {
  return make_case<optim::Adagrad>(name, o,
                                   NaiveAdagrad{.lr = o.lr,
                                                .lr_decay = o.lr_decay,
                                                .weight_decay = o.weight_decay,
                                                .initial = o.initial_accumulator_value,
                                                .eps = o.eps,
                                                .maximize = o.maximize});
}

inline const std::vector<Case> kCases{
    sgd("Sgd", {.lr = 0.1}),
    sgd("SgdDecay", {.lr = 0.1, .weight_decay = 0.05}),
    sgd("SgdMomentum", {.lr = 0.05, .momentum = 0.9}),
    sgd("SgdMomentumDampening", {.lr = 0.05, .momentum = 0.9, .dampening = 0.4}),
    sgd("SgdMomentumDecay", {.lr = 0.05, .momentum = 0.5, .weight_decay = 0.1}),
    sgd("SgdNesterov", {.lr = 0.05, .momentum = 0.9, .nesterov = true}),
    sgd("SgdNesterovDecay", {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}),
    sgd("SgdRateZero", {.lr = 0, .momentum = 0.9}),
    adam("Adam", {}),
    adam("AdamFast", {.lr = 0.1, .betas = {0.5, 0.9}, .eps = 1e-3}),
    adam("AdamDecay", {.lr = 0.01, .weight_decay = 0.1}),
    adam("AdamWithoutMemory", {.lr = 0.01, .betas = {0, 0}}),
    adamw("AdamW", {}),
    adamw("AdamWDecay", {.lr = 0.01, .weight_decay = 0.5}),
    adamw("AdamWNoDecay", {.lr = 0.01, .weight_decay = 0}),
    sgd("SgdMaximize", {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .maximize = true}),
    sgd("SgdPlainMaximize", {.lr = 0.05, .weight_decay = 0.1, .maximize = true}),
    adam("AdamAmsgrad", {.lr = 0.01, .betas = {0.9, 0.5}, .amsgrad = true}),
    adam("AdamMaximize", {.lr = 0.01, .weight_decay = 0.1, .maximize = true}),
    adamw("AdamWAmsgrad", {.lr = 0.01, .betas = {0.9, 0.5}, .weight_decay = 0.1, .amsgrad = true, .maximize = true}),
    rmsprop("RmsProp", {}),
    rmsprop("RmsPropDecay", {.lr = 0.02, .alpha = 0.9, .eps = 1e-3, .weight_decay = 0.1}),
    rmsprop("RmsPropMomentum", {.momentum = 0.9}),
    rmsprop("RmsPropCentered", {.eps = 0.1, .centered = true}),
    rmsprop("RmsPropAll", {.eps = 0.1, .weight_decay = 0.1, .momentum = 0.5, .centered = true, .maximize = true}),
    adagrad("Adagrad", {.lr = 0.1}),
    adagrad("AdagradDecay", {.lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.1}),
    adagrad("AdagradInitial", {.lr = 0.1, .initial_accumulator_value = 2, .eps = 1e-2, .maximize = true}),
};

// Parameters and their expected values.
struct Training {
  std::vector<Parameter> parameters;
  std::vector<Values> expected;
  std::vector<std::function<void(Values&, const Values&)>> naive;

  Training(const Case& c, DType dtype) {
    manual_seed(5);
    for (const Shape& sizes : kSizes) {
      parameters.emplace_back(randn(sizes, {.dtype = dtype}));
      expected.push_back(parameters.back().to_vector<double>());
      naive.push_back(c.naive());
    }
  }
  std::vector<Tensor> handles() const { return {parameters.begin(), parameters.end()}; }

  // Takes a step in which the parameters of `mask` have a gradient.
  void step(optim::Optimizer& optimizer, int number, unsigned mask = ~0u) {
    optimizer.zero_grad();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if ((mask >> i & 1u) == 0) continue;
      const Tensor g = gradient_at(number, i, parameters[i].dtype());
      parameters[i].backward(g);
      naive[i](expected[i], g.to_vector<double>());
    }
    optimizer.step();
  }

  void expect_equal(double tolerance) const {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Values got = parameters[i].to_vector<double>();
      double largest = 0;
      double difference = 0;
      for (std::size_t j = 0; j < got.size(); ++j) {
        largest = std::max(largest, std::abs(expected[i][j]));
        difference = std::max(difference, std::abs(got[j] - expected[i][j]));
      }
      EXPECT_LE(difference, tolerance * largest) << "parameter " << i;
    }
  }
};

inline double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-12 : 1e-4; }

}  // namespace tandem::test
