#include <tandem/nn/init.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/normal_quantile.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

namespace tandem {
namespace {

using nn::init::FanMode;
using nn::init::Nonlinearity;
using test::message_of;

using Values = std::vector<double>;

// Draws leave these limits about once in a million times. The seed is fixed, so the result does not vary.
constexpr double kSigmas = 5;

struct Sample {
  double mean = 0;
  double std = 0;
  double largest = 0;  // largest magnitude
  double count = 0;
};

Sample sample_of(const Tensor& t) {
  const Values values = t.to_vector<double>();
  Sample s;
  s.count = static_cast<double>(values.size());
  for (const double v : values) {
    s.mean += v / s.count;
    s.largest = std::max(s.largest, std::abs(v));
  }
  for (const double v : values) {
    s.std += (v - s.mean) * (v - s.mean) / s.count;
  }
  s.std = std::sqrt(s.std);
  return s;
}

void expect_uniform(const Tensor& t, double bound) {
  const Sample s = sample_of(t);
  const double std = bound / std::sqrt(3.0);
  EXPECT_LE(s.largest, bound * (1 + 1e-7));
  EXPECT_GE(s.largest, bound * (1 - 14 / s.count));
  EXPECT_LE(std::abs(s.mean), kSigmas * std / std::sqrt(s.count));
  EXPECT_NEAR(s.std / std, 1, kSigmas * std::sqrt(0.2 / s.count));
}

void expect_normal(const Tensor& t, double mean, double std) {
  const Sample s = sample_of(t);
  EXPECT_NEAR(s.mean, mean, kSigmas * std / std::sqrt(s.count));
  EXPECT_NEAR(s.std / std, 1, kSigmas / std::sqrt(2 * s.count));
}

class Init : public ::testing::Test {
 protected:
  void SetUp() override { manual_seed(17); }
};

TEST_F(Init, CalculateGainIsPyTorchs) {
  using nn::init::calculate_gain;
  EXPECT_EQ(calculate_gain(Nonlinearity::linear), 1);
  EXPECT_EQ(calculate_gain(Nonlinearity::sigmoid), 1);
  EXPECT_DOUBLE_EQ(calculate_gain(Nonlinearity::tanh), 5.0 / 3);
  EXPECT_EQ(calculate_gain(Nonlinearity::relu), std::sqrt(2.0));
  EXPECT_EQ(calculate_gain(Nonlinearity::leaky_relu), std::sqrt(2 / (1 + 0.01 * 0.01)));
  EXPECT_EQ(calculate_gain(Nonlinearity::leaky_relu, 0.2), std::sqrt(2 / (1 + 0.2 * 0.2)));
  EXPECT_EQ(calculate_gain(Nonlinearity::selu), 0.75);
  EXPECT_EQ(message_of<ConfigError>([] { calculate_gain(Nonlinearity::relu, 0.5); }),
            "calculate_gain: only leaky_relu takes a param, its negative slope; got 0.5");
}

TEST_F(Init, XavierUsesBothFans) {
  Tensor w = empty({60, 40});
  expect_uniform(nn::init::xavier_uniform_(w), std::sqrt(6.0 / 100));
  expect_uniform(nn::init::xavier_uniform_(w, 2.5), 2.5 * std::sqrt(6.0 / 100));
  expect_normal(nn::init::xavier_normal_(w), 0, std::sqrt(2.0 / 100));
  expect_normal(nn::init::xavier_normal_(w, 0.5), 0, 0.5 * std::sqrt(2.0 / 100));
  Tensor conv = empty({8, 4, 5, 3});  // fans 4 * 15 and 8 * 15
  expect_uniform(nn::init::xavier_uniform_(conv), std::sqrt(6.0 / 180));
}

TEST_F(Init, KaimingUsesOneFanAndTheGain) {
  Tensor w = empty({50, 80});
  expect_uniform(nn::init::kaiming_uniform_(w), std::sqrt(2.0) * std::sqrt(3.0 / 80));
  expect_uniform(nn::init::kaiming_uniform_(w, std::sqrt(5.0)), 1 / std::sqrt(80.0));
  expect_uniform(nn::init::kaiming_uniform_(w, 0, FanMode::fan_out), std::sqrt(6.0 / 50));
  expect_uniform(nn::init::kaiming_uniform_(w, 7, FanMode::fan_in, Nonlinearity::relu), std::sqrt(6.0 / 80));
  expect_uniform(nn::init::kaiming_uniform_(w, 0, FanMode::fan_in, Nonlinearity::tanh), 5.0 / 3 * std::sqrt(3.0 / 80));
  expect_normal(nn::init::kaiming_normal_(w), 0, std::sqrt(2.0 / 80));
  expect_normal(nn::init::kaiming_normal_(w, 0.3, FanMode::fan_out), 0, std::sqrt(2.0 / (1 + 0.09) / 50));
  expect_normal(nn::init::kaiming_normal_(w, 0, FanMode::fan_in, Nonlinearity::linear), 0, std::sqrt(1.0 / 80));
  Tensor conv = empty({8, 4, 5, 3});
  expect_normal(nn::init::kaiming_normal_(conv), 0, std::sqrt(2.0 / 60));
  expect_normal(nn::init::kaiming_normal_(conv, 0, FanMode::fan_out), 0, std::sqrt(2.0 / 120));
}

TEST_F(Init, OfOtherTypesIsTheSame) {
  for (const DType dtype : {DType::f64, DType::bf16, DType::f16}) {
    Tensor w = empty({30, 50}, {.dtype = dtype});
    expect_normal(nn::init::kaiming_normal_(w), 0, std::sqrt(2.0 / 50));
    expect_normal(nn::init::trunc_normal_(w, 0, 1, -40, 40), 0, 1);
  }
}

TEST_F(Init, Constants) {
  Tensor w = empty({2, 3});
  EXPECT_EQ(nn::init::constant_(w, 0.25).to_vector<double>(), Values(6, 0.25));
  EXPECT_EQ(nn::init::ones_(w).to_vector<double>(), Values(6, 1));
  EXPECT_EQ(nn::init::zeros_(w).to_vector<double>(), Values(6, 0));
  EXPECT_EQ(nn::init::eye_(w).to_vector<double>(), (Values{1, 0, 0, 0, 1, 0}));
  Tensor tall = empty({3, 2});
  EXPECT_EQ(nn::init::eye_(tall).to_vector<double>(), (Values{1, 0, 0, 1, 0, 0}));
  Tensor vector = empty({3});
  EXPECT_EQ(message_of<ShapeError>([&] { nn::init::eye_(vector); }), "eye_: needs a matrix, got [3]");
}

// ---- truncated normal ----

TEST_F(Init, NormalQuantileInvertsTheDistributionFunction) {
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  for (int step = -37 * 8; step < 6 * 8; ++step) {
    const double x = step / 8.0;
    const double rounding = x > 0 ? 3e-16 * std::exp(x * x / 2) : 0;  // rounding error of a probability close to 1
    EXPECT_NEAR(nn::detail::normal_quantile(below(x)), x, 1e-14 * std::max(1.0, std::abs(x)) + rounding) << x;
  }
  EXPECT_EQ(nn::detail::normal_quantile(0.5), 0);
}

TEST_F(Init, TruncNormalStaysInsideAndHasTheDistribution) {
  Tensor w = empty({200, 100}, {.dtype = DType::f64});
  const Sample s = sample_of(nn::init::trunc_normal_(w));
  EXPECT_LE(s.largest, 2);
  EXPECT_GE(s.largest, 1.99);
  // The variance of the interval (-c, c) is 1 - 2 c phi(c) / (2 Phi(c) - 1).
  const double variance = 1 - 4 * std::exp(-2.0) / std::sqrt(2 * std::numbers::pi) / std::erf(std::sqrt(2.0));
  EXPECT_NEAR(s.std, std::sqrt(variance), kSigmas * std::sqrt(0.5 / s.count));
  EXPECT_NEAR(s.mean, 0, kSigmas / std::sqrt(s.count));
}

TEST_F(Init, TruncNormalTakesAnyInterval) {
  Tensor w = empty({100, 100}, {.dtype = DType::f64});
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto range = [&] {
    const Values values = w.to_vector<double>();
    return std::pair(std::ranges::min(values), std::ranges::max(values));
  };
  nn::init::trunc_normal_(w, 1, 0.5, -kInf, kInf);
  expect_normal(w, 1, 0.5);
  for (const auto& [low, high] : {std::pair{30.0, 31.0}, {-31.0, -30.0}, {8.0, kInf}, {-1.0, 12.0}, {0.5, 0.75}}) {
    SCOPED_TRACE(low);
    nn::init::trunc_normal_(w, 0, 1, low, high);
    EXPECT_GE(range().first, low);
    EXPECT_LE(range().second, high);
    EXPECT_NE(range().first, range().second);
  }
  // Beyond c the mean is approximately c + 1 / c.
  nn::init::trunc_normal_(w, 0, 1, 30, kInf);
  EXPECT_NEAR(sample_of(w).mean, 30 + 1 / 30.0, 2e-3);
}

TEST_F(Init, TruncNormalRefusesWhatHasNoProbability) {
  Tensor w = empty({2});
  EXPECT_EQ(message_of<ConfigError>([&] { nn::init::trunc_normal_(w, 0, 0); }),
            "trunc_normal_: needs a mean and a std > 0 that are finite, and low < high; got mean 0, std 0, [-2, 2]");
  EXPECT_THROW(nn::init::trunc_normal_(w, 0, 1, 2, 2), ConfigError);
  EXPECT_THROW(nn::init::trunc_normal_(w, std::nan(""), 1), ConfigError);
  EXPECT_THROW(nn::init::trunc_normal_(w, 0, 1, std::nan(""), 1), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([&] { nn::init::trunc_normal_(w, 0, 1, 50, 60); }),
            "trunc_normal_: [50, 60] is too far from the mean 0 for a std of 1, or too narrow");
  Tensor whole = zeros({2}, {.dtype = DType::i64});
  EXPECT_EQ(message_of<DTypeError>([&] { nn::init::trunc_normal_(whole); }),
            "trunc_normal_: the tensor is i64, it must be of floating point");
}

// ---- orthogonal ----

void expect_orthogonal(const Tensor& weight, double gain, double tolerance) {
  const Tensor w = weight.to(DType::f64).reshape({weight.size(0), -1});
  const Tensor product = w.size(0) > w.size(1) ? w.t().matmul(w) : w.matmul(w.t());
  const Tensor expected = eye(product.size(0), {.dtype = DType::f64}) * (gain * gain);
  EXPECT_LE((product - expected).abs().max().item(), tolerance) << to_string(weight.shape());
}

TEST_F(Init, OrthogonalRowsOrColumns) {
  for (const Shape& shape : {Shape{1, 1}, {7, 7}, {3, 10}, {10, 3}, {1, 5}, {5, 1}, {130, 130}, {200, 65}, {64, 129}}) {
    Tensor w = empty(shape, {.dtype = DType::f64});
    expect_orthogonal(nn::init::orthogonal_(w), 1, 1e-12);
    expect_orthogonal(nn::init::orthogonal_(w, 3), 3, 1e-11);
  }
  Tensor conv = empty({8, 3, 2, 2});
  expect_orthogonal(nn::init::orthogonal_(conv), 1, 1e-6);
  Tensor none = empty({0, 3});
  EXPECT_EQ(nn::init::orthogonal_(none).shape(), (Shape{0, 3}));
  Tensor vector = empty({3});
  EXPECT_EQ(message_of<ShapeError>([&] { nn::init::orthogonal_(vector); }),
            "orthogonal_: needs at least two dimensions, got [3]");
  Tensor whole = zeros({2, 2}, {.dtype = DType::i64});
  EXPECT_THROW(nn::init::orthogonal_(whole), DTypeError);
}

// All orthogonal matrices are equally likely: each element of a square one has mean 0 and variance 1 / n, and signs
// vary.
TEST_F(Init, OrthogonalIsDrawnUniformly) {
  Tensor w = empty({3, 3}, {.dtype = DType::f64});
  constexpr int kDraws = 4000;
  Values sums(9);
  Values squares(9);
  for (int draw = 0; draw < kDraws; ++draw) {
    const Values values = nn::init::orthogonal_(w).to_vector<double>();
    for (std::size_t i = 0; i < 9; ++i) {
      sums[i] += values[i] / kDraws;
      squares[i] += values[i] * values[i] / kDraws;
    }
  }
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(sums[i], 0, kSigmas * std::sqrt(1.0 / 3 / kDraws));
    EXPECT_NEAR(squares[i], 1.0 / 3, kSigmas * std::sqrt(4.0 / 45 / kDraws));
  }
}

// ---- shared behaviour ----

TEST_F(Init, NothingIsRecordedAndParametersStayParameters) {
  nn::Linear layer(4, 4);
  const void* identity = layer.weight.unresolved();
  for (const auto& fill : std::vector<std::function<void(Tensor)>>{
           [](Tensor t) { nn::init::uniform_(t); }, [](Tensor t) { nn::init::normal_(t); },
           [](Tensor t) { nn::init::trunc_normal_(t); }, [](Tensor t) { nn::init::ones_(t); },
           [](Tensor t) { nn::init::eye_(t); }, [](Tensor t) { nn::init::xavier_normal_(t); },
           [](Tensor t) { nn::init::orthogonal_(t); }}) {
    const std::uint32_t version = layer.weight.version();
    fill(layer.weight);
    EXPECT_GT(layer.weight.version(), version);
    EXPECT_TRUE(layer.weight.is_leaf() && layer.weight.requires_grad());
    EXPECT_EQ(layer.weight.unresolved(), identity);
  }
}

TEST_F(Init, IsReproducibleBySeed) {
  Tensor w = empty({20, 30});
  const auto draw = [&](int seed) {
    manual_seed(static_cast<std::uint64_t>(seed));
    return nn::init::orthogonal_(nn::init::trunc_normal_(w)).to_vector<double>();
  };
  EXPECT_EQ(draw(3), draw(3));
  EXPECT_NE(draw(3), draw(4));
}

TEST_F(Init, OtherDevicesDrawTheSame) {
  Tensor here = empty({5, 4});
  Tensor there = empty({5, 4}, {.device = "cpu:1"});
  for (const auto& fill :
       std::vector<std::function<Tensor(Tensor)>>{[](Tensor t) { return nn::init::orthogonal_(std::move(t)); },
                                                  [](Tensor t) { return nn::init::trunc_normal_(std::move(t)); }}) {
    manual_seed(9);
    fill(here);
    manual_seed(9);
    EXPECT_EQ(fill(there).device(), Device("cpu:1"));
    EXPECT_EQ(here.to_vector<double>(), there.to_vector<double>());
  }
}

TEST_F(Init, NonContiguousTensorsAreFilled) {
  Tensor whole = zeros({4, 6});
  nn::init::orthogonal_(whole.t().narrow(0, 0, 3));
  expect_orthogonal(whole.t().narrow(0, 0, 3), 1, 1e-6);
  EXPECT_EQ(whole.narrow(1, 3, 3).abs().sum().item(), 0);
  nn::init::trunc_normal_(whole.narrow(1, 3, 3), 5, 0.1, 4, 6);
  EXPECT_GE(whole.narrow(1, 3, 3).min().item(), 4);
}

TEST_F(Init, WrongInputIsRefused) {
  Tensor vector = empty({3});
  EXPECT_EQ(message_of<ShapeError>([&] { nn::init::xavier_uniform_(vector); }),
            "xavier_uniform_: the weight must be [out, in, ...], got [3]");
  EXPECT_EQ(message_of<ShapeError>([&] { nn::init::kaiming_normal_(vector); }),
            "kaiming_normal_: the weight must be [out, in, ...], got [3]");
  Tensor w = empty({3, 3});
  EXPECT_EQ(message_of<ConfigError>([&] { nn::init::xavier_normal_(w, -1); }),
            "xavier_normal_: the gain is -1, it must not be negative");
  EXPECT_THROW(nn::init::uniform_(w, 1, 0), ConfigError);
  EXPECT_THROW(nn::init::normal_(w, 0, -1), ConfigError);
  EXPECT_THROW(nn::init::ones_(Tensor()), ConfigError);
  Tensor none = empty({0, 0});
  EXPECT_NO_THROW(nn::init::xavier_uniform_(none));
  EXPECT_NO_THROW(nn::init::kaiming_normal_(none));
}

}  // namespace
}  // namespace tandem
