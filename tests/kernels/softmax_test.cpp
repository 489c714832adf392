#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/softmax.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Rng;

struct Cube {
  std::int64_t outer, size, inner;
  std::int64_t numel() const { return outer * size * inner; }
};

const Cube kCubes[] = {{1, 1, 1},     {1, 7, 1},    {3, 5, 1},  {2, 4, 3},   {1, 10, 9},
                       {0, 4, 3},     {3, 0, 2},    {2, 3, 0},  {64, 10, 1}, {5, 1, 2},
                       {1, 20001, 1}, {900, 33, 2}, {2, 5, 65}, {1, 3, 130}, {1, 4, 200}};

// Calls body(positions of the elements of one row) for each row.
template <class Body>
void for_each_row(const Cube& cube, Body&& body) {
  for (std::int64_t o = 0; o < cube.outer; ++o) {
    for (std::int64_t i = 0; i < cube.inner; ++i) {
      std::vector<std::size_t> row;
      for (std::int64_t s = 0; s < cube.size; ++s) {
        row.push_back(static_cast<std::size_t>((o * cube.size + s) * cube.inner + i));
      }
      if (!row.empty()) body(row);
    }
  }
}

template <class T>
std::vector<double> naive_softmax(const std::vector<T>& in, const Cube& cube, bool log) {
  std::vector<double> out(in.size());
  for_each_row(cube, [&](const std::vector<std::size_t>& row) {
    double highest = -INFINITY;
    for (const std::size_t at : row)
      highest = std::max(highest, static_cast<double>(in[at]));
    double sum = 0;
    for (const std::size_t at : row)
      sum += std::exp(static_cast<double>(in[at]) - highest);
    for (const std::size_t at : row) {
      const double shifted = static_cast<double>(in[at]) - highest;
      out[at] = log ? shifted - std::log(sum) : std::exp(shifted) / sum;
    }
  });
  return out;
}

template <class T>
std::vector<T> softmax(const std::vector<T>& in, const Cube& cube, bool log) {
  std::vector<T> out(in.size());
  launch(test::cpu(), Softmax{.dtype = dtype_of<T>,
                              .log = log,
                              .outer = cube.outer,
                              .size = cube.size,
                              .inner = cube.inner,
                              .in = in.data(),
                              .out = out.data()});
  return out;
}

template <class T>
class SoftmaxOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SoftmaxOf, Types);

TYPED_TEST(SoftmaxOf, AgreesWithTheDoubleLoop) {
  Rng rng(41);
  for (const Cube& cube : kCubes) {
    const auto in = test::random_values<TypeParam>(rng, cube.numel(), -4, 4);
    for (const bool log : {false, true}) {
      EXPECT_LE(test::difference(softmax(in, cube, log), naive_softmax(in, cube, log)), test::tolerance<TypeParam>())
          << cube.outer << " x " << cube.size << " x " << cube.inner << " log " << log;
    }
  }
}

TYPED_TEST(SoftmaxOf, LargeValuesDoNotOverflow) {
  const std::vector<TypeParam> in{TypeParam(1e4),  TypeParam(1e4 - 1),  TypeParam(-1e4),
                                  TypeParam(-1e4), TypeParam(-1e4 + 2), TypeParam(-1e4),
                                  TypeParam(1e30), TypeParam(1e30),     TypeParam(0)};
  const Cube cube{3, 3, 1};
  for (const bool log : {false, true}) {
    EXPECT_LE(test::difference(softmax(in, cube, log), naive_softmax(in, cube, log)), test::tolerance<TypeParam>());
  }
  const auto large = softmax(in, cube, false);
  EXPECT_EQ(large[6], TypeParam(0.5));
}

// With equal terms rounding errors add up instead of cancelling.
TYPED_TEST(SoftmaxOf, LongRowsLoseNoDigits) {
  constexpr std::int64_t kSize = 300'000;
  const Cube cube{1, kSize, 1};
  std::vector<TypeParam> in(kSize, TypeParam(-0.1));
  in[0] = 0;
  for (const bool log : {false, true}) {
    EXPECT_LE(test::difference(softmax(in, cube, log), naive_softmax(in, cube, log)), test::tolerance<TypeParam>());
  }
}

TYPED_TEST(SoftmaxOf, MinusInfinityHasProbabilityZero) {
  const TypeParam inf = std::numeric_limits<TypeParam>::infinity();
  const Cube row{1, 3, 1};
  const auto p = softmax<TypeParam>({-inf, 1, 1}, row, false);
  EXPECT_EQ(p, (std::vector<TypeParam>{0, TypeParam(0.5), TypeParam(0.5)}));
  const auto log_p = softmax<TypeParam>({-inf, 1, -inf}, row, true);
  EXPECT_EQ(log_p, (std::vector<TypeParam>{-inf, 0, -inf}));
}

TYPED_TEST(SoftmaxOf, WithoutAFiniteMaximumIsNaN) {
  const TypeParam inf = std::numeric_limits<TypeParam>::infinity();
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const std::vector<TypeParam>& row :
       {std::vector<TypeParam>{-inf, -inf}, std::vector<TypeParam>{nan, 1}, std::vector<TypeParam>{1, nan}}) {
    for (const bool log : {false, true}) {
      for (const TypeParam value : softmax(row, {1, 2, 1}, log))
        EXPECT_TRUE(std::isnan(value));
    }
  }
  EXPECT_TRUE(std::isnan(softmax<TypeParam>({inf, 0}, {1, 2, 1}, false)[0]));
}

TYPED_TEST(SoftmaxOf, RowsDoNotMix) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  const auto out = softmax<TypeParam>({nan, 0, 0, 0}, {2, 2, 1}, false);
  EXPECT_TRUE(std::isnan(out[1]));
  EXPECT_EQ(out[2], TypeParam(0.5));
}

TYPED_TEST(SoftmaxOf, GradientAgreesWithTheDoubleLoop) {
  using T = TypeParam;
  Rng rng(43);
  for (const Cube& cube : kCubes) {
    for (const bool log : {false, true}) {
      const auto in = test::random_values<T>(rng, cube.numel(), -3, 3);
      const auto y = softmax(in, cube, log);
      const auto g = test::random_values<T>(rng, cube.numel());
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        auto got = test::random_values<T>(rng, cube.numel());
        std::vector<double> expected(got.begin(), got.end());
        double scale = 0;
        for_each_row(cube, [&](const std::vector<std::size_t>& row) {
          double sum = 0;
          for (const std::size_t at : row) {
            sum += static_cast<double>(g[at]) * (log ? 1.0 : static_cast<double>(y[at]));
          }
          for (const std::size_t at : row) {
            const auto value = static_cast<double>(y[at]);
            const auto grad = static_cast<double>(g[at]);
            const double in_grad = log ? grad - std::exp(value) * sum : value * (grad - sum);
            expected[at] = in_grad + (accumulate == Accumulate::yes ? expected[at] : 0);
            scale = std::max(scale, std::abs(value));
          }
        });
        launch(test::cpu(), SoftmaxGrad{.dtype = dtype_of<T>,
                                        .log = log,
                                        .accumulate = accumulate,
                                        .outer = cube.outer,
                                        .size = cube.size,
                                        .inner = cube.inner,
                                        .grad = g.data(),
                                        .out = y.data(),
                                        .in_grad = got.data()});
        EXPECT_LE(test::difference(got, expected, log ? 0 : scale), test::tolerance<T>())
            << cube.outer << " x " << cube.size << " x " << cube.inner << " log " << log;
      }
    }
  }
}

TYPED_TEST(SoftmaxOf, GradientWhereProbabilityIsZeroIsFinite) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity();
  const std::vector<T> y{-inf, 0};
  const std::vector<T> g{1, 1};
  std::vector<T> got(2);
  launch(test::cpu(), SoftmaxGrad{.dtype = dtype_of<T>,
                                  .log = true,
                                  .outer = 1,
                                  .size = 2,
                                  .inner = 1,
                                  .grad = g.data(),
                                  .out = y.data(),
                                  .in_grad = got.data()});
  EXPECT_EQ(got, (std::vector<T>{1, -1}));
}

// Longer rows than the second-level cache holds as floats take no memory for them.
TEST(Softmax, LongRowsOf16Bits) {
  const std::int64_t size = 70'000;
  const std::vector<BFloat16> zeros(static_cast<std::size_t>(size), BFloat16(0.0F));
  for (const BFloat16 value : softmax(zeros, {1, size, 1}, false)) {
    ASSERT_EQ(value.bits(), BFloat16(1.0F / static_cast<float>(size)).bits());
  }
}

}  // namespace
}  // namespace tandem::kernels
