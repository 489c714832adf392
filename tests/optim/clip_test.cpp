#include <tandem/optim/clip.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/autograd/parameter.h>
#include <tandem/core/error.h>
#include <tandem/nn/linear.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/message.h"

namespace tandem {
namespace {

using optim::clip_grad_norm_;
using test::message_of;

using Values = std::vector<double>;

// Leaves of several sizes and kinds with random gradients, packed or not.
std::vector<Tensor> with_gradients(bool packed, DType dtype = DType::f64) {
  manual_seed(6);
  std::vector<Tensor> parameters;
  for (const Shape& sizes : {Shape{3, 5}, {}, {65}, {0}, {40, 1000}}) {
    Tensor p = zeros(sizes, {.dtype = dtype});
    parameters.push_back(p.requires_grad_());
  }
  if (packed) {
    ParameterStore::ensure(parameters);
  }
  for (const Tensor& p : parameters) {
    p.backward(randn(p.shape(), {.dtype = dtype}));
  }
  return parameters;
}

Values all_gradients(const std::vector<Tensor>& parameters) {
  Values all;
  for (const Tensor& p : parameters) {
    const Values g = p.grad().defined() ? p.grad().to_vector<double>() : Values{};
    all.insert(all.end(), g.begin(), g.end());
  }
  return all;
}

double norm(const Values& values) {
  double sum = 0;
  for (const double x : values) {
    sum += x * x;
  }
  return std::sqrt(sum);
}

TEST(ClipGradNorm, ScalesAllGradientsTogether) {
  for (const bool packed : {false, true}) {
    for (const double max_norm : {0.5, 10.0, 100.0}) {
      const auto parameters = with_gradients(packed);
      Values expected = all_gradients(parameters);
      const double before = norm(expected);
      for (double& x : expected) {
        x *= max_norm / (before + 1e-6);
      }
      const Tensor returned = clip_grad_norm_(parameters, max_norm);
      EXPECT_NEAR(returned.item(), before, 1e-12 * before);
      EXPECT_EQ(returned.dtype(), DType::f64);
      EXPECT_EQ(returned.dim(), 0);
      const Values got = all_gradients(parameters);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 1e-12 * max_norm) << i;
      }
    }
  }
}

TEST(ClipGradNorm, IsNoticedByAGraphThatSavedAGradient) {
  const Tensor w = tensor({3.0}, {.requires_grad = true});
  const Tensor x = tensor({1.0}, {.requires_grad = true});
  (w * w).sum().backward();
  const Tensor y = (x * w.grad()).sum();
  optim::clip_grad_norm_({w}, 1);
  EXPECT_THROW(y.backward(), AutogradError);
  const Tensor z = (x * w.grad()).sum();
  optim::clip_grad_value_({w}, 0.1);
  EXPECT_THROW(z.backward(), AutogradError);
}

TEST(ClipGradNorm, LeavesSmallGradientsAsTheyAre) {
  const auto parameters = with_gradients(true);
  const Values before = all_gradients(parameters);
  clip_grad_norm_(parameters, 1e6);
  EXPECT_EQ(all_gradients(parameters), before);
}

TEST(ClipGradNorm, CountsOnlyWhatHasAGradient) {
  const auto parameters = with_gradients(true);
  parameters[4].zero_grad();
  Tensor frozen = zeros({3});
  std::vector<Tensor> list = parameters;
  list.push_back(frozen);
  const double before = norm(all_gradients(parameters));
  EXPECT_NEAR(clip_grad_norm_(list, 0.5).item(), before, 1e-12 * before);
  EXPECT_NEAR(norm(all_gradients(parameters)), 0.5, 1e-5);
  EXPECT_FALSE(parameters[4].grad().defined());
  EXPECT_EQ(clip_grad_norm_({frozen}, 1).item(), 0);
}

TEST(ClipGradNorm, MixesDTypes) {
  auto parameters = with_gradients(true);
  const auto singles = with_gradients(true, DType::f32);
  parameters.insert(parameters.end(), singles.begin(), singles.end());
  const double before = norm(all_gradients(parameters));
  EXPECT_NEAR(clip_grad_norm_(parameters, 1).item(), before, 1e-9 * before);
  EXPECT_NEAR(norm(all_gradients(parameters)), 1, 1e-5);
}

TEST(ClipGradNorm, LargeGradientsDoNotOverflowF32) {
  const Tensor p = zeros({2}, {.requires_grad = true});
  p.backward(full({2}, 3e30));
  EXPECT_NEAR(clip_grad_norm_({p}, 1).item() / 4.2426407e30, 1, 1e-6);
  EXPECT_NEAR(p.grad().to_vector<double>()[0], std::sqrt(0.5), 1e-6);
}

TEST(ClipGradNorm, TellsOfGradientsThatAreNotFinite) {
  const Tensor p = zeros({2}, {.requires_grad = true});
  p.backward(from_data(std::vector<float>{1, std::numeric_limits<float>::infinity()}));
  EXPECT_TRUE(std::isinf(clip_grad_norm_({p}, 1).item()));
  p.zero_grad();
  p.backward(from_data(std::vector<float>{1, std::nanf("")}));
  EXPECT_TRUE(std::isnan(clip_grad_norm_({p}, 1).item()));
}

TEST(ClipGradNorm, OfAnyKind) {
  for (const bool packed : {false, true}) {
    for (const double kind : {1.0, 0.5, 3.0, std::numeric_limits<double>::infinity()}) {
      const auto parameters = with_gradients(packed);
      Values expected = all_gradients(parameters);
      double before = 0;
      for (const double x : expected) {
        before = std::isinf(kind) ? std::max(before, std::abs(x)) : before + std::pow(std::abs(x), kind);
      }
      before = std::isinf(kind) ? before : std::pow(before, 1 / kind);
      EXPECT_NEAR(clip_grad_norm_(parameters, 0.5, kind).item(), before, 1e-12 * before) << kind;
      const Values got = all_gradients(parameters);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i] * 0.5 / (before + 1e-6), 1e-12) << kind;
      }
    }
  }
}

TEST(ClipGradNorm, RefusesWhatIsNotFiniteIfAsked) {
  const Tensor p = zeros({2}, {.requires_grad = true});
  p.backward(from_data(std::vector<float>{1, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(
      message_of<ValueError>([&] { clip_grad_norm_({p}, 1, 2, true); }),
      "clip_grad_norm_: the norm of the gradients is inf, not finite; nothing was scaled. Look for what overflows, "
      "or lower the learning rate");
  EXPECT_EQ(p.grad().to_vector<double>()[0], 1);
  EXPECT_EQ(message_of<ConfigError>([&] { clip_grad_norm_({p}, 1, 0); }),
            "clip_grad_norm_: norm_type must be > 0, got 0");
}

TEST(ClipGradValue, BringsEachElementIntoRange) {
  for (const bool packed : {false, true}) {
    const auto parameters = with_gradients(packed);
    parameters[2].zero_grad();
    Values expected = all_gradients(parameters);
    for (double& x : expected) {
      x = std::max(-0.25, std::min(x, 0.25));
    }
    optim::clip_grad_value_(parameters, 0.25);
    EXPECT_EQ(all_gradients(parameters), expected);
    EXPECT_FALSE(parameters[2].grad().defined());
  }
  optim::clip_grad_value_({}, 1);
  EXPECT_EQ(message_of<ConfigError>([] { optim::clip_grad_value_({}, -1); }),
            "clip_grad_value_: clip_value must be >= 0, got -1");
}

TEST(ClipGradNorm, WrongUseIsAnError) {
  TANDEM_SKIP_ON_GPU("the message names cpu:0");
  const auto parameters = with_gradients(false);
  EXPECT_EQ(message_of<ConfigError>([&] { clip_grad_norm_(parameters, 0); }),
            "clip_grad_norm_: max_norm must be > 0, got 0");
  EXPECT_THROW(clip_grad_norm_(parameters, std::nan("")), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([] { clip_grad_norm_({}, 1); }),
            "clip_grad_norm_: the list of parameters is empty");
  const Tensor there = zeros({2}, {.device = "cpu:1", .requires_grad = true});
  there.sum().backward();
  const Values before = all_gradients(parameters);
  EXPECT_EQ(message_of<DeviceError>([&] { clip_grad_norm_({parameters[0], there}, 1e-3); }),
            "clip_grad_norm_: gradients are on cpu:0 and cpu:1; clip them one device at a time");
  EXPECT_EQ(all_gradients(parameters), before);
}

}  // namespace
}  // namespace tandem
