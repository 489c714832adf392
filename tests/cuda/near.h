#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/float16.h>

// Tolerances for results of a GPU, which adds in another order than the CPU.

namespace tandem::test {

/// A few units in T's last place, relative to the largest number or to 1, whichever is larger.
template <class T>
constexpr double nearness() {
  return std::is_integral_v<T>         ? 0
         : std::is_same_v<T, double>   ? 1e-12
         : std::is_same_v<T, BFloat16> ? 0x1p-7
         : std::is_same_v<T, Float16>  ? 0x1p-10
                                       : 2e-6;
}

/// NaNs count as equal.
template <class T>
void expect_near(const std::vector<T>& got, const std::vector<T>& expected, const char* what, double slack = 1) {
  ASSERT_EQ(got.size(), expected.size());
  double scale = 1;
  for (const T value : expected) {
    if (std::isfinite(static_cast<double>(value))) scale = std::max(scale, std::abs(static_cast<double>(value)));
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto a = static_cast<double>(got[i]);
    const auto b = static_cast<double>(expected[i]);
    ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= slack * nearness<T>() * scale)
        << what << "[" << i << "]: " << a << " instead of " << b;
  }
}

}  // namespace tandem::test
