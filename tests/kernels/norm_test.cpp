#include <tandem/kernels/norm.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/arrays.h"

// Layer norm and batch norm against naive loops in long double.

namespace tandem::kernels {
namespace {

using test::Rng;
using Real = long double;
using Reals = std::vector<double>;
using Statistics = std::vector<NormStatistics>;

constexpr double kEps = 1e-5;

struct Cube {
  std::int64_t outer, channels, inner;
  std::int64_t numel() const { return outer * channels * inner; }
  std::size_t channel(std::int64_t i) const { return static_cast<std::size_t>(i / inner % channels); }
};

const Cube kCubes[] = {{2, 1, 1},  {3, 5, 1},    {7, 3, 4},  {64, 10, 1},  {65, 600, 1},  {2, 3, 33},
                       {5, 2, 31}, {3, 2, 1000}, {1, 4, 50}, {2000, 7, 1}, {130, 5, 40},  {1, 1, 70001},
                       {9, 70, 9}, {0, 4, 3},    {3, 0, 2},  {2, 3, 0},    {1025, 65, 2}, {1030, 513, 1}};

std::string label(const Cube& c) { return fmt::format("{} x {} x {}", c.outer, c.channels, c.inner); }

// ---- the naive loops: group(i) has the statistics of element i, unit(i) its weight and bias ----

struct Naive {
  std::size_t groups, units;
  std::function<std::size_t(std::size_t)> group, unit;
};

Naive by_channel(const Cube& cube) {
  const auto channels = static_cast<std::size_t>(cube.channels);
  const auto of = [cube](std::size_t i) { return cube.channel(static_cast<std::int64_t>(i)); };
  return {channels, channels, of, of};
}

Naive by_row(std::size_t rows, std::size_t size) {
  return {rows, size, [size](std::size_t i) { return i / size; }, [size](std::size_t i) { return i % size; }};
}

struct NaiveStatistics {
  std::vector<Real> count, mean, variance;
  template <class T>
  NaiveStatistics(const Naive& n, const std::vector<T>& x) : count(n.groups), mean(n.groups), variance(n.groups) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      count[n.group(i)] += 1;
      mean[n.group(i)] += static_cast<Real>(x[i]);
    }
    for (std::size_t g = 0; g < n.groups; ++g)
      mean[g] /= count[g];
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Real distance = static_cast<Real>(x[i]) - mean[n.group(i)];
      variance[n.group(i)] += distance * distance / count[n.group(i)];
    }
  }
};

template <class T>
std::vector<Real> naive_normalised(const Naive& n, const std::vector<T>& x, const NaiveStatistics& s, double eps) {
  std::vector<Real> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t g = n.group(i);
    out[i] = (static_cast<Real>(x[i]) - s.mean[g]) / std::sqrt(s.variance[g] + static_cast<Real>(eps));
  }
  return out;
}

template <class T>
Reals naive_forward(const Naive& n, const std::vector<T>& x, const std::vector<T>* weight, const std::vector<T>* bias,
                    double eps = kEps) {
  const std::vector<Real> normalised = naive_normalised(n, x, NaiveStatistics(n, x), eps);
  Reals out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Real w = weight != nullptr ? static_cast<Real>((*weight)[n.unit(i)]) : 1;
    const Real b = bias != nullptr ? static_cast<Real>((*bias)[n.unit(i)]) : 0;
    out[i] = static_cast<double>(normalised[i] * w + b);
  }
  return out;
}

struct NaiveGradients {
  Reals in, weight, bias;
};

template <class T>
NaiveGradients naive_gradients(const Naive& n, const std::vector<T>& x, const std::vector<T>& grad,
                               const std::vector<T>* weight) {
  const NaiveStatistics s(n, x);
  const std::vector<Real> normalised = naive_normalised(n, x, s, kEps);
  std::vector<Real> sum(n.groups), product(n.groups), of_weight(n.units), of_bias(n.units);
  const auto h = [&](std::size_t i) {
    return static_cast<Real>(grad[i]) * (weight != nullptr ? static_cast<Real>((*weight)[n.unit(i)]) : 1);
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum[n.group(i)] += h(i);
    product[n.group(i)] += h(i) * normalised[i];
    of_weight[n.unit(i)] += static_cast<Real>(grad[i]) * normalised[i];
    of_bias[n.unit(i)] += static_cast<Real>(grad[i]);
  }
  NaiveGradients out{Reals(x.size()), Reals(of_weight.begin(), of_weight.end()), Reals(of_bias.begin(), of_bias.end())};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t g = n.group(i);
    out.in[i] = static_cast<double>((h(i) - sum[g] / s.count[g] - normalised[i] * product[g] / s.count[g]) /
                                    std::sqrt(s.variance[g] + static_cast<Real>(kEps)));
  }
  return out;
}

template <class T>
void expect_added(const std::vector<T>& got, const std::vector<T>& before, const Reals& expected, Accumulate accumulate,
                  double scale) {
  Reals all = expected;
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] += accumulate == Accumulate::yes ? static_cast<double>(before[i]) : 0;
  EXPECT_LE(test::difference(got, all, scale), test::tolerance<T>());
}

// ---- the kernels ----

template <class T>
std::vector<T> layer_norm(const std::vector<T>& in, std::int64_t rows, const std::vector<T>* weight,
                          const std::vector<T>* bias, Statistics& statistics, double eps = kEps) {
  std::vector<T> out(in.size());
  statistics.resize(static_cast<std::size_t>(rows));
  launch(test::cpu(), LayerNorm{.dtype = dtype_of<T>,
                                .rows = rows,
                                .size = rows == 0 ? 5 : static_cast<std::int64_t>(in.size()) / rows,
                                .eps = eps,
                                .in = in.data(),
                                .weight = weight != nullptr ? weight->data() : nullptr,
                                .bias = bias != nullptr ? bias->data() : nullptr,
                                .statistics = statistics.data(),
                                .out = out.data()});
  return out;
}

template <class T>
struct Running {
  std::vector<T> mean, var;
};

template <class T>
std::vector<T> batch_norm(const Cube& cube, const std::vector<T>& in, const std::vector<T>* weight,
                          const std::vector<T>* bias, Statistics& statistics, Running<T>* running = nullptr,
                          bool training = true, double eps = kEps) {
  std::vector<T> out(in.size());
  statistics.resize(static_cast<std::size_t>(cube.channels));
  launch(test::cpu(), BatchNorm{.dtype = dtype_of<T>,
                                .training = training,
                                .outer = cube.outer,
                                .channels = cube.channels,
                                .inner = cube.inner,
                                .eps = eps,
                                .momentum = 0.25,
                                .in = in.data(),
                                .weight = weight != nullptr ? weight->data() : nullptr,
                                .bias = bias != nullptr ? bias->data() : nullptr,
                                .running_mean = running != nullptr ? running->mean.data() : nullptr,
                                .running_var = running != nullptr ? running->var.data() : nullptr,
                                .statistics = statistics.data(),
                                .out = out.data()});
  return out;
}

template <class T>
class NormOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(NormOf, Types);

TYPED_TEST(NormOf, LayerNormAgreesWithTheNaiveLoop) {
  using T = TypeParam;
  Rng rng(1);
  for (const auto& [rows, size] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                   {1, 7},
                                   {3, 31},
                                   {3, 32},
                                   {5, 33},
                                   {300, 64},
                                   {2, 513},
                                   {3, 5000},
                                   {40, 2000},
                                   {0, 5},
                                   {3, 0}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}", rows, size));
    const auto in = test::random_values<T>(rng, rows * size, -2, 3);
    const auto weight = test::random_values<T>(rng, size, 0.5, 1.5);
    const auto bias = test::random_values<T>(rng, size);
    const Naive naive = by_row(static_cast<std::size_t>(rows), static_cast<std::size_t>(size));
    Statistics statistics;
    for (const auto* w : {&weight, static_cast<const std::vector<T>*>(nullptr)}) {
      for (const auto* b : {&bias, static_cast<const std::vector<T>*>(nullptr)}) {
        const auto got = layer_norm(in, rows, w, b, statistics);
        EXPECT_LE(test::difference(got, naive_forward(naive, in, w, b)), test::tolerance<T>());
      }
    }
  }
}

TYPED_TEST(NormOf, LayerNormGradientsAgreeWithTheNaiveLoop) {
  using T = TypeParam;
  Rng rng(2);
  for (const auto& [rows, size] :
       {std::pair<std::int64_t, std::int64_t>{1, 2}, {3, 31}, {5, 33}, {300, 64}, {3, 5000}, {1500, 600}, {0, 5}}) {
    const auto in = test::random_values<T>(rng, rows * size, -2, 3);
    const auto grad = test::random_values<T>(rng, rows * size);
    const auto weight = test::random_values<T>(rng, size, 0.5, 1.5);
    const Naive naive = by_row(static_cast<std::size_t>(rows), static_cast<std::size_t>(size));
    for (const auto* w : {&weight, static_cast<const std::vector<T>*>(nullptr)}) {
      Statistics statistics;
      layer_norm(in, rows, w, w, statistics);
      const NaiveGradients expected = naive_gradients(naive, in, grad, w);
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        SCOPED_TRACE(fmt::format("{} rows of {}{}", rows, size, accumulate == Accumulate::yes ? ", added" : ""));
        const auto before = test::random_values<T>(rng, rows * size);
        const auto before_affine = test::random_values<T>(rng, size);
        auto of_in = before;
        auto of_weight = before_affine;
        auto of_bias = before_affine;
        launch(test::cpu(), LayerNormGrad{.dtype = dtype_of<T>,
                                          .rows = rows,
                                          .size = size,
                                          .grad = grad.data(),
                                          .in = in.data(),
                                          .weight = w != nullptr ? w->data() : nullptr,
                                          .statistics = statistics.data(),
                                          .in_grad = of_in.data(),
                                          .accumulate_in = accumulate,
                                          .weight_grad = of_weight.data(),
                                          .accumulate_weight = accumulate,
                                          .bias_grad = of_bias.data(),
                                          .accumulate_bias = accumulate});
        expect_added(of_in, before, expected.in, accumulate, 1);
        expect_added(of_weight, before_affine, expected.weight, accumulate, 1);
        expect_added(of_bias, before_affine, expected.bias, accumulate, 1);
      }
    }
  }
}

TYPED_TEST(NormOf, BatchNormAgreesWithTheNaiveLoop) {
  using T = TypeParam;
  Rng rng(3);
  for (const Cube& cube : kCubes) {
    SCOPED_TRACE(label(cube));
    const auto in = test::random_values<T>(rng, cube.numel(), -2, 3);
    const auto weight = test::random_values<T>(rng, cube.channels, 0.5, 1.5);
    const auto bias = test::random_values<T>(rng, cube.channels);
    const Naive naive = by_channel(cube);
    Statistics statistics;
    for (const auto* w : {&weight, static_cast<const std::vector<T>*>(nullptr)}) {
      for (const auto* b : {&bias, static_cast<const std::vector<T>*>(nullptr)}) {
        const auto got = batch_norm(cube, in, w, b, statistics);
        EXPECT_LE(test::difference(got, naive_forward(naive, in, w, b)), test::tolerance<T>());
      }
    }
  }
}

TYPED_TEST(NormOf, BatchNormUpdatesTheRunningStatistics) {
  using T = TypeParam;
  Rng rng(4);
  for (const Cube& cube : kCubes) {
    SCOPED_TRACE(label(cube));
    const auto in = test::random_values<T>(rng, cube.numel(), -2, 3);
    const Running<T> before{test::random_values<T>(rng, cube.channels),
                            test::random_values<T>(rng, cube.channels, 1, 2)};
    Running<T> running = before;
    Statistics statistics;
    batch_norm<T>(cube, in, nullptr, nullptr, statistics, &running);
    if (cube.numel() == 0) {
      EXPECT_EQ(running.mean, before.mean) << "a batch of none changes nothing";
      EXPECT_EQ(running.var, before.var);
      continue;
    }
    const NaiveStatistics s(by_channel(cube), in);
    Reals mean, var;
    for (std::size_t c = 0; c < s.mean.size(); ++c) {
      mean.push_back(0.75 * static_cast<double>(before.mean[c]) + 0.25 * static_cast<double>(s.mean[c]));
      var.push_back(0.75 * static_cast<double>(before.var[c]) +
                    0.25 * static_cast<double>(s.variance[c] * s.count[c] / (s.count[c] - 1)));
    }
    EXPECT_LE(test::difference(running.mean, mean), test::tolerance<T>());
    EXPECT_LE(test::difference(running.var, var), test::tolerance<T>());
  }
}

TYPED_TEST(NormOf, BatchNormInEvaluationUsesTheRunningStatistics) {
  using T = TypeParam;
  Rng rng(5);
  for (const Cube& cube : kCubes) {
    SCOPED_TRACE(label(cube));
    const auto in = test::random_values<T>(rng, cube.numel(), -2, 3);
    const auto weight = test::random_values<T>(rng, cube.channels, 0.5, 1.5);
    const auto grad = test::random_values<T>(rng, cube.numel());
    const Running<T> before{test::random_values<T>(rng, cube.channels),
                            test::random_values<T>(rng, cube.channels, 1, 2)};
    Running<T> running = before;
    Statistics statistics;
    const auto got = batch_norm<T>(cube, in, &weight, nullptr, statistics, &running, false);
    EXPECT_EQ(running.mean, before.mean);
    EXPECT_EQ(running.var, before.var);
    Reals out, of_in, of_weight(weight.size()), of_bias(weight.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::size_t c = cube.channel(static_cast<std::int64_t>(i));
      const double rstd = 1 / std::sqrt(static_cast<double>(running.var[c]) + kEps);
      const double x = (static_cast<double>(in[i]) - static_cast<double>(running.mean[c])) * rstd;
      out.push_back(x * static_cast<double>(weight[c]));
      of_in.push_back(static_cast<double>(grad[i]) * static_cast<double>(weight[c]) * rstd);
      of_weight[c] += static_cast<double>(grad[i]) * x;
      of_bias[c] += static_cast<double>(grad[i]);
    }
    EXPECT_LE(test::difference(got, out), test::tolerance<T>());
    std::vector<T> in_grad(in.size()), weight_grad(weight.size()), bias_grad(weight.size());
    BatchNormGrad kernel{.dtype = dtype_of<T>,
                         .training = false,
                         .outer = cube.outer,
                         .channels = cube.channels,
                         .inner = cube.inner,
                         .grad = grad.data(),
                         .in = in.data(),
                         .weight = weight.data(),
                         .statistics = statistics.data(),
                         .in_grad = in_grad.data(),
                         .weight_grad = weight_grad.data(),
                         .bias_grad = bias_grad.data()};
    launch(test::cpu(), kernel);
    EXPECT_LE(test::difference(in_grad, of_in), test::tolerance<T>());
    EXPECT_LE(test::difference(weight_grad, of_weight, 1), test::tolerance<T>());
    EXPECT_LE(test::difference(bias_grad, of_bias, 1), test::tolerance<T>());
    // Neither gradient needs the input then.
    const auto all = in_grad;
    kernel.in = nullptr;
    kernel.weight_grad = nullptr;
    launch(test::cpu(), kernel);
    EXPECT_EQ(in_grad, all);
    EXPECT_LE(test::difference(bias_grad, of_bias, 1), test::tolerance<T>());
  }
}

TYPED_TEST(NormOf, BatchNormGradientsAgreeWithTheNaiveLoop) {
  using T = TypeParam;
  Rng rng(6);
  for (const Cube& cube : kCubes) {
    const auto in = test::random_values<T>(rng, cube.numel(), -2, 3);
    const auto grad = test::random_values<T>(rng, cube.numel());
    const auto weight = test::random_values<T>(rng, cube.channels, 0.5, 1.5);
    for (const auto* w : {&weight, static_cast<const std::vector<T>*>(nullptr)}) {
      Statistics statistics;
      batch_norm(cube, in, w, w, statistics);
      const NaiveGradients expected = naive_gradients(by_channel(cube), in, grad, w);
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        SCOPED_TRACE(label(cube) + (accumulate == Accumulate::yes ? ", added" : ""));
        const auto before = test::random_values<T>(rng, cube.numel());
        const auto before_affine = test::random_values<T>(rng, cube.channels);
        auto of_in = before;
        auto of_weight = before_affine;
        auto of_bias = before_affine;
        launch(test::cpu(), BatchNormGrad{.dtype = dtype_of<T>,
                                          .training = true,
                                          .outer = cube.outer,
                                          .channels = cube.channels,
                                          .inner = cube.inner,
                                          .grad = grad.data(),
                                          .in = in.data(),
                                          .weight = w != nullptr ? w->data() : nullptr,
                                          .statistics = statistics.data(),
                                          .in_grad = of_in.data(),
                                          .accumulate_in = accumulate,
                                          .weight_grad = of_weight.data(),
                                          .accumulate_weight = accumulate,
                                          .bias_grad = of_bias.data(),
                                          .accumulate_bias = accumulate});
        expect_added(of_in, before, expected.in, accumulate, 1);
        expect_added(of_weight, before_affine, expected.weight, accumulate, 1);
        expect_added(of_bias, before_affine, expected.bias, accumulate, 1);
      }
    }
  }
}

// ---- where digits get lost ----

// Around 10^4 with a spread of a few of f32's units in the last place: with a mean in f32 results would be off by 0.1.
TYPED_TEST(NormOf, ALargeMeanLosesNoDigits) {
  using T = TypeParam;
  Rng rng(7);
  const T step = T(std::nextafter(10'000.0F, 20'000.0F) - 10'000.0F);
  for (const Cube& cube : {Cube{700, 5, 1}, Cube{10, 3, 300}, Cube{100, 2, 9}}) {
    SCOPED_TRACE(label(cube));
    std::vector<T> in;
    for (std::int64_t i = 0; i < cube.numel(); ++i)
      in.push_back(T(10'000) + static_cast<T>(rng() % 7) * step);
    Statistics statistics;
    const double allowed = std::is_same_v<T, float> ? 1e-6 : 1e-8;  // a mean in f64 serves f64 as one in f32 does f32
    const auto got = batch_norm<T>(cube, in, nullptr, nullptr, statistics, nullptr, true, 0);
    EXPECT_LE(test::difference(got, naive_forward<T>(by_channel(cube), in, nullptr, nullptr, 0)), allowed);
    const auto rows = static_cast<std::size_t>(cube.channels);
    const auto by_rows = layer_norm<T>(in, cube.channels, nullptr, nullptr, statistics, 0);
    EXPECT_LE(test::difference(by_rows, naive_forward<T>(by_row(rows, in.size() / rows), in, nullptr, nullptr, 0)),
              allowed);
  }
}

TYPED_TEST(NormOf, EqualValuesHaveNoVariance) {
  using T = TypeParam;
  for (const Cube& cube : {Cube{700, 5, 1}, Cube{10, 3, 300}, Cube{100, 2, 9}}) {
    const std::vector<T> in(static_cast<std::size_t>(cube.numel()), T(1234.567));
    const std::vector<T> bias(in.size(), T(0.5));
    Statistics statistics;
    for (const T value : batch_norm<T>(cube, in, nullptr, &bias, statistics))
      ASSERT_EQ(value, T(0.5));
    EXPECT_EQ(statistics[0].rstd, 1 / std::sqrt(kEps));
    for (const T value : layer_norm<T>(in, cube.outer, nullptr, &bias, statistics))
      ASSERT_EQ(value, T(0.5));
    EXPECT_EQ(statistics[0].rstd, 1 / std::sqrt(kEps));
  }
}

TYPED_TEST(NormOf, ManyValuesLoseNoDigits) {
  using T = TypeParam;
  Rng rng(8);
  for (const Cube& cube : {Cube{600'000, 2, 1}, Cube{2, 1, 600'000}}) {
    const auto in = test::random_values<T>(rng, cube.numel(), 5, 6);
    const auto grad = test::random_values<T>(rng, cube.numel(), 1, 2);
    Statistics statistics;
    const auto got = batch_norm<T>(cube, in, nullptr, nullptr, statistics);
    EXPECT_LE(test::difference(got, naive_forward<T>(by_channel(cube), in, nullptr, nullptr)), test::tolerance<T>());
    std::vector<T> of_weight(static_cast<std::size_t>(cube.channels)), of_bias(of_weight.size());
    launch(test::cpu(), BatchNormGrad{.dtype = dtype_of<T>,
                                      .training = true,
                                      .outer = cube.outer,
                                      .channels = cube.channels,
                                      .inner = cube.inner,
                                      .grad = grad.data(),
                                      .in = in.data(),
                                      .weight = nullptr,
                                      .statistics = statistics.data(),
                                      .in_grad = nullptr,
                                      .weight_grad = of_weight.data(),
                                      .bias_grad = of_bias.data()});
    const NaiveGradients expected = naive_gradients<T>(by_channel(cube), in, grad, nullptr);
    EXPECT_LE(test::difference(of_bias, expected.bias), test::tolerance<T>());
    EXPECT_LE(test::difference(of_weight, expected.weight, 1e5), test::tolerance<T>());  // terms cancel
  }
}

TYPED_TEST(NormOf, RowsAndChannelsDoNotMix) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  Statistics statistics;
  const auto rows = layer_norm<T>({nan, 1, 1, 2, 3, 4}, 2, nullptr, nullptr, statistics);
  EXPECT_TRUE(std::isnan(rows[0]) && std::isnan(rows[2]));
  EXPECT_FALSE(std::isnan(rows[3]));
  const auto channels = batch_norm<T>({3, 2, 1}, {nan, 1, 2, 3, 4, 6}, nullptr, nullptr, statistics);
  EXPECT_TRUE(std::isnan(channels[0]) && std::isnan(channels[4]));
  EXPECT_FALSE(std::isnan(channels[1]));
}

// ---- 16 bits: as f32, rounded once ----

template <class T>
class NormIn : public ::testing::Test {};
using Narrow = ::testing::Types<BFloat16, Half>;
TYPED_TEST_SUITE(NormIn, Narrow);

template <class T>
std::vector<float> widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

template <class T>
void expect_rounded(const std::vector<T>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i].bits(), T(expected[i]).bits()) << i;
}

TYPED_TEST(NormIn, EqualsF32RoundedOnce) {
  using T = TypeParam;
  Rng rng(9);
  const auto draw = [&](std::int64_t count, float low, float high) {
    std::vector<T> values;
    for (const float value : test::random_values<float>(rng, count, low, high))
      values.push_back(T(value));
    return values;
  };
  for (const Cube& cube : {Cube{33, 17, 1}, Cube{3, 4, 50}}) {
    const auto in = draw(cube.numel(), -2, 3);
    const auto weight = draw(cube.numel(), 0.5F, 1.5F);
    const auto wide_in = widened(in);
    const auto wide_weight = widened(weight);
    Statistics statistics, wide_statistics;
    expect_rounded(batch_norm<T>(cube, in, &weight, &weight, statistics),
                   batch_norm<float>(cube, wide_in, &wide_weight, &wide_weight, wide_statistics));
    expect_rounded(layer_norm<T>(in, cube.outer, &weight, &weight, statistics),
                   layer_norm<float>(wide_in, cube.outer, &wide_weight, &wide_weight, wide_statistics));
    const auto run = [&](auto type, const auto& values, const auto& factors) {
      using U = decltype(type);
      std::vector<U> of_in(in.size()), of_weight(in.size());
      launch(test::cpu(), LayerNormGrad{.dtype = dtype_of<U>,
                                        .rows = cube.outer,
                                        .size = cube.channels * cube.inner,
                                        .grad = factors.data(),
                                        .in = values.data(),
                                        .weight = factors.data(),
                                        .statistics = statistics.data(),
                                        .in_grad = of_in.data(),
                                        .weight_grad = of_weight.data(),
                                        .bias_grad = nullptr});
      of_in.insert(of_in.end(), of_weight.begin(), of_weight.end());
      return of_in;
    };
    expect_rounded(run(T(), in, weight), run(float(), wide_in, wide_weight));
  }
}

}  // namespace
}  // namespace tandem::kernels
