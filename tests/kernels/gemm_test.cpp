#include <tandem/kernels/cpu/gemm.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/arrays.h"

// Tests of the block products below Matmul, for every instruction set of this machine.

namespace tandem::kernels {
namespace {

using test::Rng;

void gemm_on(core::Isa isa, const Matmul& kernel, const cpu::OutputBlock& block,
             ScratchArena& scratch = test::cpu().scratch) {
#if defined(__x86_64__)
  switch (isa) {
    case core::Isa::baseline: return cpu::baseline::gemm_f32(kernel, block, scratch);
    case core::Isa::avx2: return cpu::avx2::gemm_f32(kernel, block, scratch);
    case core::Isa::avx512: return cpu::avx512::gemm_f32(kernel, block, scratch);
  }
#endif
  cpu::baseline::gemm_f32(kernel, block, scratch);
}

// y = x w^T, dx = dy w and dw = dy^T x, with w [out, in] as in nn::Linear.
enum class Pass { forward, to_input, to_weight };

struct Layer {
  std::int64_t batch, in, out;
  std::vector<float> x, w, y;
  std::int64_t gap;  // between rows

  Layer(Rng& rng, std::int64_t batch_, std::int64_t in_, std::int64_t out_, std::int64_t gap_ = 0)
      : batch(batch_), in(in_), out(out_), gap(gap_) {
    x = test::random_values<float>(rng, batch * (in + gap));
    w = test::random_values<float>(rng, out * (in + gap));
    y = test::random_values<float>(rng, batch * (out + gap));
  }

  Matmul product(Pass pass) const {
    const std::int64_t wide = in + gap;
    const std::int64_t high = out + gap;
    Matmul kernel{.dtype = DType::f32,
                  .m = batch,
                  .n = out,
                  .k = in,
                  .a = {x.data(), wide, 1},
                  .b = {w.data(), 1, wide},
                  .out = nullptr,
                  .out_stride = high};
    if (pass == Pass::to_input) {
      kernel.n = in, kernel.k = out, kernel.a = {y.data(), high, 1}, kernel.b = {w.data(), wide, 1};
    } else if (pass == Pass::to_weight) {
      kernel.m = out, kernel.n = in, kernel.k = batch, kernel.a = {y.data(), 1, high}, kernel.b = {x.data(), wide, 1};
    }
    kernel.out_stride = kernel.n + gap;
    return kernel;
  }
};

std::vector<double> in_doubles(const Matmul& kernel, std::vector<float> old) {
  std::vector<double> sums(old.begin(), old.end());
  const auto* a = static_cast<const float*>(kernel.a.data);
  const auto* b = static_cast<const float*>(kernel.b.data);
  const auto* bias = static_cast<const float*>(kernel.after.bias);
  const auto* mask = static_cast<const float*>(kernel.after.relu_mask);
  for (std::int64_t i = 0; i < kernel.m; ++i) {
    for (std::int64_t j = 0; j < kernel.n; ++j) {
      double& sum = sums[static_cast<std::size_t>(i * kernel.out_stride + j)];
      sum = kernel.accumulate == Accumulate::yes ? sum : 0;
      for (std::int64_t k = 0; k < kernel.k; ++k) {
        sum += double{a[i * kernel.a.row_stride + k * kernel.a.col_stride]} *
               double{b[k * kernel.b.row_stride + j * kernel.b.col_stride]};
      }
      sum += bias != nullptr ? double{bias[j]} : 0;
      sum = kernel.after.relu && sum < 0 ? 0 : sum;
      sum = mask != nullptr && mask[i * kernel.out_stride + j] <= 0 ? 0 : sum;
    }
  }
  return sums;
}

// Tiles are 14 x 32, 24 x 16 and 8 x 48 (AVX-512) or 6 x 16, 12 x 8 and 4 x 24. Blocks are 256 deep, 168 or 72 rows
// high, and 1024 or 512 columns wide. The sizes are equal to, below and above these; powers of two conflict in the
// cache. {9, 730, 723} and those around it have outputs that are written in rows of tiles; the last four go along
// lines, 2,048 columns at a time.
const std::int64_t kLayers[][3] = {
    {16, 128, 256},  {17, 129, 255}, {15, 70, 49},    {25, 300, 16},  {8, 40, 47},    {3, 1000, 17},   {1, 513, 33},
    {31, 17, 1100},  {1030, 33, 40}, {170, 257, 31},  {64, 512, 10},  {256, 512, 64}, {40, 1025, 530}, {65, 77, 1},
    {33, 1, 20},     {1, 90, 60},    {47, 130, 3},    {5, 3, 2},      {1, 1, 1},      {100, 256, 500}, {90, 256, 250},
    {1030, 20, 520}, {9, 730, 723},  {260, 725, 724}, {1, 2051, 300}, {2, 1030, 520}, {3, 725, 730},   {600, 1, 1000}};

class GemmOf : public ::testing::TestWithParam<core::Isa> {};

TEST_P(GemmOf, AgreesWithTheDoubleLoopInTheThreePassesOfALayer) {
  Rng rng(3);
  for (const auto& [batch, in, out] : kLayers) {
    for (const Pass pass : {Pass::forward, Pass::to_input, Pass::to_weight}) {
      for (const bool epilogue : {false, true}) {
        const Layer layer(rng, batch, in, out, epilogue ? 3 : 0);
        Matmul kernel = layer.product(pass);
        std::vector<float> result = test::random_values<float>(rng, kernel.m * kernel.out_stride);
        const std::vector<float> bias = test::random_values<float>(rng, kernel.n);
        const std::vector<float> mask = test::random_values<float>(rng, kernel.m * kernel.out_stride);
        if (epilogue) {
          kernel.accumulate = Accumulate::yes, kernel.after.relu = true, kernel.after.bias = bias.data();
          kernel.after.relu_mask = pass == Pass::to_input ? mask.data() : nullptr;
        }
        const std::vector<double> expected = in_doubles(kernel, result);
        kernel.out = result.data();
        gemm_on(GetParam(), kernel, {0, kernel.m, 0, kernel.n});
        EXPECT_LE(test::difference(result, expected, std::sqrt(double(kernel.k)) / 3), 2e-6)
            << batch << ' ' << in << ' ' << out << " pass " << static_cast<int>(pass) << " epilogue " << epilogue;
      }
    }
  }
}

TEST_P(GemmOf, NotANumberIsSeenAndReluKeepsIt) {
  Rng rng(5);
  Layer layer(rng, 20, 300, 40);
  layer.x[7 * 300 + 290] = std::nanf("");
  Matmul kernel = layer.product(Pass::forward);
  kernel.after.relu = true;
  std::vector<float> result(800);
  kernel.out = result.data();
  gemm_on(GetParam(), kernel, {0, 20, 0, 40});
  for (std::int64_t i = 0; i < 800; ++i) {
    EXPECT_EQ(std::isnan(result[static_cast<std::size_t>(i)]), i / 40 == 7) << i;
  }
}

// A NaN from a ReLU is not <= 0, so the gradient passes, like in PyTorch's threshold_backward.
TEST_P(GemmOf, NotANumberInAMaskLetsTheGradientThrough) {
  Rng rng(6);
  for (const auto& [batch, in, out] : {std::array<std::int64_t, 3>{20, 300, 40}, {4, 3, 2}, {30, 2, 50}, {1, 40, 70}}) {
    const Layer layer(rng, batch, in, out);
    Matmul kernel = layer.product(Pass::to_input);
    std::vector<float> mask = test::random_values<float>(rng, kernel.m * kernel.n);
    for (std::size_t i = 0; i < mask.size(); i += 3) {
      mask[i] = std::nanf("");
    }
    std::vector<float> result(mask.size());
    kernel.after.relu_mask = mask.data();
    kernel.out = result.data();
    gemm_on(GetParam(), kernel, {0, kernel.m, 0, kernel.n});
    for (std::size_t i = 0; i < mask.size(); ++i) {
      EXPECT_EQ(result[i] != 0, !(mask[i] <= 0)) << i << " of " << batch << ' ' << in << ' ' << out;
    }
  }
}

// Packing one side must not overwrite the other side's copy, which follows it in a reused workspace.
TEST_P(GemmOf, BlocksOfAnyHeightLeaveTheOtherSideAlone) {
  Rng rng(9);
  const Layer layer(rng, 256, 100, 400);  // rows that are packed, with the depth of a block
  Matmul kernel = layer.product(Pass::to_weight);
  std::vector<float> result(static_cast<std::size_t>(kernel.m * kernel.out_stride));
  kernel.out = result.data();
  const std::vector<double> expected = in_doubles(kernel, result);
  ScratchArena scratch;
  {
    const ScratchScope scope(scratch);
    scratch.allocate(std::size_t{4} << 20);  // one block, in which neighbours are adjacent
  }
  for (std::int64_t rows = 1; rows <= 200; ++rows) {
    std::fill(result.begin(), result.end(), 0.0F);
    for (std::int64_t row = 0; row < kernel.m; row += rows) {
      gemm_on(GetParam(), kernel, {row, std::min(rows, kernel.m - row), 0, kernel.n}, scratch);
    }
    ASSERT_LE(test::difference(result, expected, std::sqrt(256.0) / 3), 2e-6) << rows << " rows";
  }
}

TEST_P(GemmOf, DepthIsNotLimitedByTheWorkspace) {
  Rng rng(11);
  const std::int64_t batch = 256, in = 270'000, out = 300;
  const std::vector<float> ones(static_cast<std::size_t>(out * in), 1.0F);
  std::vector<float> result(static_cast<std::size_t>(batch * out));
  gemm_on(GetParam(),
          {.dtype = DType::f32,
           .m = batch,
           .n = out,
           .k = in,
           .a = {ones.data(), in, 1},
           .b = {ones.data(), 1, in},
           .out = result.data(),
           .out_stride = out},
          {0, batch, 0, 2});
  EXPECT_EQ(result[0], static_cast<float>(in));
}

INSTANTIATE_TEST_SUITE_P(Isas, GemmOf, ::testing::ValuesIn(core::available_isas()),
                         [](const auto& isa) { return core::to_string(isa.param); });

std::vector<float> result_of(core::Isa isa, Matmul kernel, const std::vector<cpu::OutputBlock>& blocks) {
  std::vector<float> result(static_cast<std::size_t>(kernel.m * kernel.out_stride), 0.5F);
  kernel.out = result.data();
  for (const cpu::OutputBlock& block : blocks) {
    gemm_on(isa, kernel, block);
  }
  return result;
}

// With more than three rows and columns, each output is one chain of fused multiply-adds per block of depths, whatever
// the tiles. Any number of threads therefore gives the same bits, and AVX2 gives the same as AVX-512.
TEST(Gemm, HowTheOutputIsCutChangesNoBit) {
  Rng rng(7);
  for (const core::Isa isa : core::available_isas()) {
    if (isa == core::Isa::baseline) continue;
    for (const auto& [batch, in, out] : kLayers) {
      for (const Pass pass : {Pass::forward, Pass::to_input, Pass::to_weight}) {
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          const Layer layer(rng, batch, in, out);
          Matmul kernel = layer.product(pass);
          kernel.accumulate = accumulate;
          const std::int64_t m = kernel.m, n = kernel.n;
          const std::vector<float> whole = result_of(isa, kernel, {{0, m, 0, n}});
          const std::vector<float> rows = result_of(isa, kernel, {{0, m / 2, 0, n}, {m / 2, m - m / 2, 0, n}});
          const std::vector<float> cols = result_of(isa, kernel, {{0, m, 0, n / 3}, {0, m, n / 3, n - n / 3}});
          EXPECT_EQ(whole, rows) << batch << ' ' << in << ' ' << out << " pass " << static_cast<int>(pass);
          EXPECT_EQ(whole, cols) << batch << ' ' << in << ' ' << out << " pass " << static_cast<int>(pass);
          const bool dots = n <= 3 || (m <= 3 && pass == Pass::forward);  // summed by lanes; AVX-512 has more of these
          if (isa == core::Isa::avx512 && accumulate == Accumulate::no && !dots) {
            EXPECT_EQ(whole, result_of(core::Isa::avx2, kernel, {{0, m, 0, n}}));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
