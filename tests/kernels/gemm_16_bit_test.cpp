#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/cpu/gemm.h>
#include <tandem/kernels/matmul_tuning.h>

#include "kernels/arrays.h"

// Products of 16-bit numbers, and of f32 whose factors are rounded to bf16, for every instruction set of this machine.

namespace tandem::kernels {
namespace {

using test::Rng;
using Gemm = std::function<void(const Matmul&, const cpu::OutputBlock&)>;

struct Way {
  std::string name;
  Gemm gemm;
};

// The instruction sets' products of that type.
std::vector<Way> ways_of(DType dtype) {
  std::vector<Way> ways;
  const auto add = [&](const char* name, auto* gemm) {
    ways.push_back({name, [gemm](const Matmul& kernel, const cpu::OutputBlock& block) {
                      gemm(kernel, block, test::cpu().scratch, nullptr);
                    }});
  };
  const bool is_16_bit = dtype != DType::f32;
  if (is_16_bit) {
    add("baseline", &cpu::baseline::gemm_16_bit);
  }
#if defined(__x86_64__)
  const std::vector<core::Isa> isas = core::available_isas();
  const auto has = [&](core::Isa isa) { return std::ranges::find(isas, isa) != isas.end(); };
  if (is_16_bit && has(core::Isa::avx2)) {
    add("avx2", &cpu::avx2::gemm_16_bit);
  }
  if (is_16_bit && has(core::Isa::avx512)) {
    add("avx512", &cpu::avx512::gemm_16_bit);
  }
  if (dtype != DType::f16 && core::has_bf16_products()) {
    add("avx512_bf16", &cpu::avx512_bf16::gemm_bf16);
  }
  if (dtype != DType::f16 && core::has_amx()) {
    add("avx512_amx", &cpu::avx512_amx::gemm_amx);
  }
#endif
  return ways;
}

template <class T>
struct Problem {
  std::vector<T> a, b, out, bias, mask;
  Matmul kernel;

  // Element (i, k) of the left side and (k, j) of the right one lie dense along i or k, and along k or j.
  Problem(Rng& rng, std::int64_t m, std::int64_t n, std::int64_t k, bool a_by_rows, bool b_by_rows, bool epilogue)
      : kernel{.dtype = dtype_of<T>, .m = m, .n = n, .k = k, .a = {}, .b = {}, .out = nullptr, .out_stride = n + 3} {
    constexpr std::int64_t kGap = 5;
    a = test::random_values<T>(rng, (m + kGap) * (k + kGap));
    b = test::random_values<T>(rng, (n + kGap) * (k + kGap));
    out = test::random_values<T>(rng, m * kernel.out_stride);
    bias = test::random_values<T>(rng, n);
    mask = test::random_values<T>(rng, m * kernel.out_stride);
    kernel.a = a_by_rows ? Matrix{a.data(), k + kGap, 1} : Matrix{a.data(), 1, m + kGap};
    kernel.b = b_by_rows ? Matrix{b.data(), n + kGap, 1} : Matrix{b.data(), 1, k + kGap};
    if (epilogue) {
      kernel.accumulate = Accumulate::yes;
      kernel.after = {.bias = bias.data(), .relu = true, .relu_mask = mask.data()};
    }
  }

  // The result of the double loop; the factors are rounded to F first.
  template <class F>
  std::vector<double> expected() const {
    std::vector<double> sums(out.begin(), out.end());
    const auto factor = [](const T* p) { return static_cast<double>(static_cast<F>(static_cast<ComputeType<T>>(*p))); };
    for (std::int64_t i = 0; i < kernel.m; ++i) {
      for (std::int64_t j = 0; j < kernel.n; ++j) {
        const std::int64_t at = i * kernel.out_stride + j;
        double& sum = sums[static_cast<std::size_t>(at)];
        sum = kernel.accumulate == Accumulate::yes ? sum : 0;
        for (std::int64_t k = 0; k < kernel.k; ++k) {
          sum += factor(a.data() + i * kernel.a.row_stride + k * kernel.a.col_stride) *
                 factor(b.data() + k * kernel.b.row_stride + j * kernel.b.col_stride);
        }
        if (kernel.after.bias != nullptr) {
          sum = std::max(0.0, sum + static_cast<double>(bias[static_cast<std::size_t>(j)]));
          sum = static_cast<double>(mask[static_cast<std::size_t>(at)]) <= 0 ? 0 : sum;
        }
      }
    }
    return sums;
  }

  std::vector<T> result(const Gemm& gemm, const std::vector<cpu::OutputBlock>& blocks) const {
    std::vector<T> written = out;
    Matmul made = kernel;
    made.out = written.data();
    for (const cpu::OutputBlock& block : blocks) {
      gemm(made, block);
    }
    return written;
  }
};

// Above, at and below the sizes of tiles and blocks, whose depth is 256 units of one or two numbers; odd depths; and
// few rows or columns, which are dot products.
const std::int64_t kSizes[][3] = {{723, 730, 9},  {16, 32, 128},   {17, 33, 129}, {15, 49, 70},   {14, 64, 512},
                                  {31, 100, 513}, {3, 40, 70},     {40, 3, 71},   {1, 65, 33},    {65, 1, 300},
                                  {170, 31, 257}, {30, 100, 1025}, {600, 20, 9},  {4, 300, 1100}, {2, 2, 2},
                                  {1, 1, 1},      {20, 1300, 40},  {9, 17, 1}};

template <class T, class F>
void expect_agreement(double tolerance) {
  Rng rng(11);
  const std::vector<Way> ways = ways_of(dtype_of<T>);
  for (const auto& [m, n, k] : kSizes) {
    if (std::is_same_v<T, float> && (m <= 3 || n <= 3)) continue;  // these may stay in f32
    for (const int layout : {0, 1, 2, 3}) {
      const bool epilogue = (m + layout) % 2 == 0;
      const Problem<T> problem(rng, m, n, k, layout % 2 == 0, layout / 2 == 0, epilogue);
      const std::vector<double> expected = problem.template expected<F>();
      for (const Way& way : ways) {
        const std::vector<T> whole = problem.result(way.gemm, {{0, m, 0, n}});
        EXPECT_LE(test::difference(whole, expected, std::sqrt(double(k)) / 3), tolerance)
            << way.name << ' ' << m << ' ' << n << ' ' << k << " layout " << layout << " epilogue " << epilogue;
      }
    }
  }
}

TEST(Gemm16Bit, Bf16AgreesWithTheDoubleLoopRoundedOnce) { expect_agreement<BFloat16, BFloat16>(0x1p-8); }
TEST(Gemm16Bit, F16AgreesWithTheDoubleLoopRoundedOnce) { expect_agreement<Float16, Float16>(0x1p-11); }
TEST(Gemm16Bit, MediumPrecisionIsTheProductOfFactorsRoundedToBf16) { expect_agreement<float, BFloat16>(2e-6); }

template <class T>
void expect_the_same_bits_for_any_cut() {
  Rng rng(13);
  for (const Way& way : ways_of(dtype_of<T>)) {
    if (way.name == "baseline") continue;  // Eigen's products don't have them
    for (const auto& [m, n, k] : kSizes) {
      for (const int layout : {0, 1, 2, 3}) {
        const Problem<T> problem(rng, m, n, k, layout % 2 == 0, layout / 2 == 0, layout == 0);
        const std::vector<T> whole = problem.result(way.gemm, {{0, m, 0, n}});
        EXPECT_EQ(
            0, std::memcmp(whole.data(), problem.result(way.gemm, {{0, m / 2, 0, n}, {m / 2, m - m / 2, 0, n}}).data(),
                           whole.size() * sizeof(T)))
            << way.name << ' ' << m << ' ' << n << ' ' << k;
        EXPECT_EQ(
            0, std::memcmp(whole.data(), problem.result(way.gemm, {{0, m, 0, n / 3}, {0, m, n / 3, n - n / 3}}).data(),
                           whole.size() * sizeof(T)))
            << way.name << ' ' << m << ' ' << n << ' ' << k;
      }
    }
  }
}

TEST(Gemm16Bit, HowTheOutputIsCutChangesNoBit) {
  expect_the_same_bits_for_any_cut<BFloat16>();
  expect_the_same_bits_for_any_cut<Float16>();
  expect_the_same_bits_for_any_cut<float>();
}

template <class T>
void expect_special_values_to_stay() {
  Rng rng(17);
  for (const Way& way : ways_of(dtype_of<T>)) {
    Problem<T> problem(rng, 20, 40, 300, true, false, false);
    problem.a[7 * 305 + 290] = T(std::nanf(""));
    problem.a[9 * 305 + 290] = T(INFINITY);
    for (std::int64_t j = 0; j < 40; ++j) {
      problem.b[static_cast<std::size_t>(j * 305 + 290)] = T(1.0F);
    }
    problem.kernel.after.relu = true;
    const std::vector<T> result = problem.result(way.gemm, {{0, 20, 0, 40}});
    for (std::int64_t i = 0; i < 20; ++i) {
      for (std::int64_t j = 0; j < 40; ++j) {
        const auto value = static_cast<float>(result[static_cast<std::size_t>(i * 43 + j)]);
        EXPECT_EQ(std::isnan(value), i == 7) << way.name << ' ' << i << ' ' << j;
        EXPECT_EQ(std::isinf(value), i == 9) << way.name << ' ' << i << ' ' << j;
      }
    }
  }
}

TEST(Gemm16Bit, NotANumberAndInfinityAreSeen) {
  expect_special_values_to_stay<BFloat16>();
  expect_special_values_to_stay<Float16>();
  expect_special_values_to_stay<float>();
}

// Sums beyond the largest f16 become infinite, and numbers below its smallest normal one are kept.
TEST(Gemm16Bit, F16RoundsAtTheEndsOfItsRange) {
  for (const Way& way : ways_of(DType::f16)) {
    Rng rng(1);
    Problem<Float16> problem(rng, 5, 6, 8, true, true, false);
    std::ranges::fill(problem.a, Float16(300.0F));
    std::ranges::fill(problem.b, Float16(300.0F));
    EXPECT_TRUE(std::isinf(static_cast<float>(problem.result(way.gemm, {{0, 5, 0, 6}})[0]))) << way.name;
    std::ranges::fill(problem.a, Float16(0x1p-20F));
    std::ranges::fill(problem.b, Float16(1.0F));
    EXPECT_EQ(static_cast<float>(problem.result(way.gemm, {{0, 5, 0, 6}})[0]), 0x1p-17F) << way.name;
  }
}

// A product of zeros changes nothing.
TEST(Gemm16Bit, WhatIsAddedToKeepsNumbersBelowTheSmallestNormalOne) {
  for (const Way& way : ways_of(DType::bf16)) {
    Rng rng(1);
    Problem<BFloat16> problem(rng, 20, 40, 30, true, true, false);
    problem.kernel.accumulate = Accumulate::yes;
    std::ranges::fill(problem.a, BFloat16(0.0F));
    std::ranges::fill(problem.out, BFloat16(1e-39F));
    const std::vector<BFloat16> result = problem.result(way.gemm, {{0, 20, 0, 40}});
    EXPECT_EQ(result[0].bits(), BFloat16(1e-39F).bits()) << way.name;
  }
}

TEST(Gemm16Bit, AProductKeepsThePrecisionThatItWasMadeWith) {
  const auto made = [] {
    return Matmul{.dtype = DType::f32, .m = 1, .n = 1, .k = 1, .a = {}, .b = {}, .out = nullptr, .out_stride = 1};
  };
  set_float32_matmul_precision("medium");
  const Matmul medium = made();
  set_float32_matmul_precision("high");
  EXPECT_TRUE(medium.in_bf16);
  EXPECT_FALSE(made().in_bf16);
  set_float32_matmul_precision("highest");
  EXPECT_FALSE(made().in_bf16);
}

TEST(Gemm16Bit, MediumPrecisionChangesF32ProductsWhereTheProcessorHasBf16) {
  Rng rng(19);
  Problem<float> problem(rng, 64, 64, 64, true, true, false);
  problem.kernel.out_stride = 64;
  std::vector<float> exact(64 * 64), medium(64 * 64);
  problem.kernel.out = exact.data();
  run(OnCpu{}, test::cpu(), problem.kernel);
  problem.kernel.in_bf16 = true;
  problem.kernel.out = medium.data();
  run(OnCpu{}, test::cpu(), problem.kernel);
  EXPECT_EQ(exact != medium, core::has_bf16_products());
  EXPECT_LE(test::difference(medium, exact), 1e-2);
}

}  // namespace
}  // namespace tandem::kernels
