#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/naive_norm.h"

// Tests of layer norm and batch norm where digits could be lost, of infinities and NaN, and of 16-bit types.

namespace tandem::kernels {
namespace {

template <class T>
class NormDigitsOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(NormDigitsOf, Types);

// Values around 10^4 with a spread of a few units in f32's last place: with a mean in f32, results would be off by 0.1.
TYPED_TEST(NormDigitsOf, ALargeMeanLosesNoDigits) {
  using T = TypeParam;
  Rng rng(7);
  const T step = T(std::nextafter(10'000.0F, 20'000.0F) - 10'000.0F);
  for (const Cube& cube : {Cube{700, 5, 1}, Cube{10, 3, 300}, Cube{100, 2, 9}}) {
    SCOPED_TRACE(label(cube));
    std::vector<T> in;
    for (std::int64_t i = 0; i < cube.numel(); ++i)
      in.push_back(T(10'000) + static_cast<T>(rng() % 7) * step);
    Statistics statistics;
    const double allowed = std::is_same_v<T, float> ? 1e-6 : 1e-8;  // f64 has no wider type for its mean
    const auto got = batch_norm<T>(cube, in, nullptr, nullptr, statistics, nullptr, true, 0);
    EXPECT_LE(test::difference(got, naive_forward<T>(by_channel(cube), in, nullptr, nullptr, 0)), allowed);
    const auto rows = static_cast<std::size_t>(cube.channels);
    const auto by_rows = layer_norm<T>(in, cube.channels, nullptr, nullptr, statistics, 0);
    EXPECT_LE(test::difference(by_rows, naive_forward<T>(by_row(rows, in.size() / rows), in, nullptr, nullptr, 0)),
              allowed);
  }
}

TYPED_TEST(NormDigitsOf, EqualValuesHaveNoVariance) {
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

TYPED_TEST(NormDigitsOf, ManyValuesLoseNoDigits) {
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

TYPED_TEST(NormDigitsOf, RowsAndChannelsDoNotMix) {
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

// ---- 16 bits: computed in f32 and rounded once ----

template <class T>
class NormIn : public ::testing::Test {};
using Narrow = ::testing::Types<BFloat16, Float16>;
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
