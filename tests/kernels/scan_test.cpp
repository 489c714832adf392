#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/scan.h>

#include "kernels/arrays.h"
#include "support/thread_count.h"

namespace tandem::kernels {
namespace {

using test::Rng;

struct Around {
  std::int64_t outer, size, inner;
};

constexpr Around kArounds[] = {{1, 1, 1},  {1, 7, 1},      {3, 5, 1},     {2, 3, 4},    {1, 2, 63},
                               {2, 3, 64}, {2, 3, 65},     {1, 9, 200},   {0, 3, 2},    {2, 0, 2},
                               {2, 3, 0},  {5, 40'000, 1}, {2, 300, 257}, {1, 9, 1025}, {2, 3, 2500}};

template <class T>
void expect_equals_naive(const Around& around, bool reverse, Accumulate accumulate) {
  SCOPED_TRACE(std::to_string(around.outer) + " " + std::to_string(around.size) + " " + std::to_string(around.inner));
  Rng rng(3);
  const std::int64_t count = around.outer * around.size * around.inner;
  const auto in = test::random_values<T>(rng, count, -4, 4);
  auto out = test::random_values<T>(rng, count, -4, 4);
  std::vector<double> expected(out.begin(), out.end());
  for (std::int64_t o = 0; o < around.outer; ++o) {
    for (std::int64_t k = 0; k < around.inner; ++k) {
      double total = 0;
      for (std::int64_t step = 0; step < around.size; ++step) {
        const std::int64_t i = reverse ? around.size - 1 - step : step;
        const auto at = static_cast<std::size_t>((o * around.size + i) * around.inner + k);
        total += static_cast<double>(in[at]);
        expected[at] = (accumulate == Accumulate::yes ? expected[at] : 0) + total;
      }
    }
  }
  launch(test::cpu(), CumSum{.dtype = dtype_of<T>,
                             .reverse = reverse,
                             .accumulate = accumulate,
                             .outer = around.outer,
                             .size = around.size,
                             .inner = around.inner,
                             .in = in.data(),
                             .out = out.data()});
  EXPECT_LE(test::difference(out, expected), std::is_integral_v<T> ? 0 : test::tolerance<T>());
}

TEST(CumSumKernel, EqualsTheNaiveLoop) {
  for (const Around& around : kArounds) {
    for (const bool reverse : {false, true}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        expect_equals_naive<float>(around, reverse, accumulate);
        expect_equals_naive<double>(around, reverse, accumulate);
        expect_equals_naive<std::int64_t>(around, reverse, accumulate);
      }
    }
  }
}

TEST(CumSumKernel, OfNarrowIntegersIsWide) {
  const std::vector<std::uint8_t> bytes(600, 255);
  std::vector<std::int64_t> sums(600);
  launch(test::cpu(),
         CumSum{.dtype = DType::u8, .outer = 2, .size = 100, .inner = 3, .in = bytes.data(), .out = sums.data()});
  EXPECT_EQ(sums[299], 25'500);
  EXPECT_EQ(sums[302], 255);
  bool flags[600];
  for (int i = 0; i < 600; ++i) {
    flags[i] = i % 2 == 0;
  }
  launch(test::cpu(),
         CumSum{.dtype = DType::boolean, .outer = 1, .size = 600, .inner = 1, .in = flags, .out = sums.data()});
  EXPECT_EQ(sums[599], 300);
}

TEST(CumSumKernel, KeepsTheDigitsOfLongRowsAndRoundsOnce) {
  const std::vector<float> in(1'000'000, 0.1F);
  std::vector<float> out(in.size());
  const auto size = static_cast<std::int64_t>(in.size());
  launch(test::cpu(),
         CumSum{.dtype = DType::f32, .outer = 1, .size = size, .inner = 1, .in = in.data(), .out = out.data()});
  EXPECT_EQ(out.back(), static_cast<float>(static_cast<double>(0.1F) * 1e6));
  const std::vector<BFloat16> ones(600, BFloat16(1.0F));
  std::vector<BFloat16> sums(600);
  launch(test::cpu(),
         CumSum{.dtype = DType::bf16, .outer = 1, .size = 600, .inner = 1, .in = ones.data(), .out = sums.data()});
  EXPECT_EQ(static_cast<float>(sums.back()), 600.0F) << "sums in bf16 would stop at 256";
}

}  // namespace
}  // namespace tandem::kernels
