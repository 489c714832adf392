#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/grad_scale.h>
#include <tandem/kernels/optimizer_formulas.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
class FindInfOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Float16>;
TYPED_TEST_SUITE(FindInfOf, Types);

TYPED_TEST(FindInfOf, OneElementAnywhereIsEnough) {
  using T = TypeParam;
  using C = ComputeType<T>;
  for (const std::int64_t count : {1, 7, 1000, 70001}) {
    for (const std::int64_t at : {std::int64_t{-1}, std::int64_t{0}, count / 2, count - 1}) {
      for (const double bad : {kInf, -kInf, std::nan("")}) {
        std::vector<T> gradients(static_cast<std::size_t>(count), T(C(3)));
        if (at >= 0) {
          gradients[static_cast<std::size_t>(at)] = T(static_cast<C>(bad));
        }
        GradScale record{.inverse = 0.5, .found_inf = 0, .skipped = 0};
        float found = 0;
        launch(test::cpu(), FindInf{.dtype = dtype_of<T>,
                                    .unscale = false,
                                    .count = count,
                                    .gradients = gradients.data(),
                                    .record = &record,
                                    .found_inf = &found});
        ASSERT_EQ(record.found_inf, at >= 0 ? 1 : 0) << bad << " at " << at << " of " << count;
        ASSERT_EQ(found, at >= 0 ? 1 : 0);
      }
    }
  }
}

TYPED_TEST(FindInfOf, NothingIsFoundInNothingNorForgotten) {
  using T = TypeParam;
  GradScale record{.inverse = kInf, .found_inf = 0, .skipped = 0};
  float found = 1;  // set by another optimiser
  launch(test::cpu(), FindInf{.dtype = dtype_of<T>,
                              .unscale = true,
                              .count = 0,
                              .gradients = nullptr,
                              .record = &record,
                              .found_inf = &found});
  EXPECT_EQ(record.found_inf, 0);
  EXPECT_EQ(found, 1);
}

TYPED_TEST(FindInfOf, UnscalingMultipliesAndKeepsZeros) {
  using T = TypeParam;
  using C = ComputeType<T>;
  for (const double inverse : {0.25, kInf}) {
    std::vector<T> gradients{T(C(0)), T(C(8)), T(C(0)), T(C(-2))};
    GradScale record{.inverse = inverse, .found_inf = 0, .skipped = 0};
    float found = 0;
    launch(test::cpu(), FindInf{.dtype = dtype_of<T>,
                                .unscale = true,
                                .count = 4,
                                .gradients = gradients.data(),
                                .record = &record,
                                .found_inf = &found});
    EXPECT_EQ(static_cast<double>(gradients[0]), 0);
    EXPECT_EQ(static_cast<double>(gradients[1]), 8 * inverse);
    EXPECT_EQ(static_cast<double>(gradients[2]), 0);
    EXPECT_EQ(static_cast<double>(gradients[3]), -2 * inverse);
    EXPECT_EQ(record.found_inf, inverse == kInf ? 1 : 0);
  }
}

TEST(GradScale, TheScaleDoesNotGrowBeyondF32) {
  float scale = 0x1p127F;
  std::int32_t tracker = 0;
  float found = 0;
  launch(test::cpu(), UpdateGradScale{.scale = &scale,
                                      .growth_tracker = &tracker,
                                      .found_inf = &found,
                                      .growth = 2,
                                      .backoff = 0.5,
                                      .interval = 1});
  EXPECT_EQ(scale, 0x1p127F);
}

TEST(GradScale, AMasterStaysUnlessItsParameterIsNotItsRounding) {
  const float master = 1.001F;
  EXPECT_EQ(formula::master_of(master, BFloat16(master)), master);
  EXPECT_EQ(formula::master_of(master, BFloat16(1.5F)), 1.5F);
  EXPECT_EQ(formula::master_of(1e6F, Float16(1e6F)), 1e6F);  // above the range of f16
  EXPECT_TRUE(std::signbit(formula::master_of(0.0F, Float16(-0.0F))));
  EXPECT_TRUE(std::isnan(formula::master_of(1.0F, BFloat16(std::nanf("")))));
}

}  // namespace
}  // namespace tandem::kernels
