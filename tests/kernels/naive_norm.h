#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/kernels/batch_norm.h>
#include <tandem/kernels/layer_norm.h>

#include "kernels/arrays.h"

// Layer norm and batch norm as naive loops in long double, and calls of the kernels.

namespace tandem::kernels {

using test::Rng;
using Real = long double;
using Reals = std::vector<double>;
using Statistics = std::vector<NormStatistics>;

inline constexpr double kEps = 1e-5;

struct Cube {
  std::int64_t outer, channels, inner;
  std::int64_t numel() const { return outer * channels * inner; }
  std::size_t channel(std::int64_t i) const { return static_cast<std::size_t>(i / inner % channels); }
};

inline const Cube kCubes[] = {{2, 1, 1},    {3, 5, 1},     {7, 3, 4},      {64, 10, 1},  {65, 600, 1},
                              {2, 3, 33},   {5, 2, 31},    {3, 2, 1000},   {1, 4, 50},   {2000, 7, 1},
                              {130, 5, 40}, {1, 1, 70001}, {9, 70, 9},     {0, 4, 3},    {3, 0, 2},
                              {2, 3, 0},    {1025, 65, 2}, {1030, 513, 1}, {9, 70, 130}, {225, 9, 300}};

inline std::string label(const Cube& c) { return fmt::format("{} x {} x {}", c.outer, c.channels, c.inner); }

// ---- the naive loops: group(i) is the index of element i's statistics, unit(i) that of its weight and bias ----

struct Naive {
  std::size_t groups, units;
  std::function<std::size_t(std::size_t)> group, unit;
};

inline Naive by_channel(const Cube& cube) {
  const auto channels = static_cast<std::size_t>(cube.channels);
  const auto of = [cube](std::size_t i) { return cube.channel(static_cast<std::int64_t>(i)); };
  return {channels, channels, of, of};
}

inline Naive by_row(std::size_t rows, std::size_t size) {
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
                                .momentum = {0.25},
                                .in = in.data(),
                                .weight = weight != nullptr ? weight->data() : nullptr,
                                .bias = bias != nullptr ? bias->data() : nullptr,
                                .running_mean = running != nullptr ? running->mean.data() : nullptr,
                                .running_var = running != nullptr ? running->var.data() : nullptr,
                                .statistics = statistics.data(),
                                .out = out.data()});
  return out;
}

}  // namespace tandem::kernels
