#include <cstdint>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/kernels/cuda/matmul/small_product.h>
#include <tandem/kernels/matmul.h>
#include <tandem/kernels/matmul_tuning.h>

#include "cuda/both.h"
#include "cuda/matmul_case.h"

// Tests of our own kernel for small f32 products against the CPU's products.

namespace tandem::kernels {
namespace {

using test::Rng;
using test::values_between;

enum class ProductKind { forward, input_gradient, weight_gradient };
constexpr ProductKind kKinds[] = {ProductKind::forward, ProductKind::input_gradient, ProductKind::weight_gradient};

struct ProductSizes {
  std::int64_t m, n, k;
};
constexpr ProductSizes kProductSizes[] = {{1, 1, 1},     {1, 33, 17},   {16, 32, 16},   {17, 31, 15},
                                          {33, 65, 129}, {128, 10, 8},  {128, 96, 784}, {100, 128, 128},
                                          {5, 300, 2},   {17, 2100, 8}, {64, 4096, 3}};

// A layer's product. Lines of the operands are `gap` elements longer than they need be.
struct Operands {
  Operands(Rng& rng, ProductKind kind_, const ProductSizes& s, std::int64_t gap_, std::size_t offset)
      : kind(kind_),
        sizes(s),
        gap(gap_),
        a(values_between<float>(rng, (s.m + gap) * (s.k + gap)), offset),
        b(values_between<float>(rng, (s.k + gap) * (s.n + gap)), offset),
        out(values_between<float>(rng, s.m * (s.n + gap))),
        bias(values_between<float>(rng, s.n)),
        mask(values_between<float>(rng, s.m * (s.n + gap))),
        column_sums(std::vector<float>(static_cast<std::size_t>(s.n), 7.0F)),
        a_sums(std::vector<float>(static_cast<std::size_t>(s.m), 7.0F)) {}

  // a and b are [m, k] and [k, n], each by rows or by columns.
  Matmul product(bool on_gpu) {
    const bool a_by_columns = kind == ProductKind::weight_gradient;
    const bool b_by_columns = kind == ProductKind::forward;
    const auto at = [&](test::Both<float>& both) { return on_gpu ? both.device() : both.host(); };
    Matmul product{.dtype = DType::f32, .m = sizes.m, .n = sizes.n, .k = sizes.k, .a = {}, .b = {}, .out = at(out)};
    product.a = a_by_columns ? Matrix{at(a), 1, sizes.m + gap} : Matrix{at(a), sizes.k + gap, 1};
    product.b = b_by_columns ? Matrix{at(b), 1, sizes.k + gap} : Matrix{at(b), sizes.n + gap, 1};
    product.out_stride = sizes.n + gap;
    return product;
  }

  ProductKind kind;
  ProductSizes sizes;
  std::int64_t gap;
  test::Both<float> a, b, out, bias, mask, column_sums, a_sums;
};

template <class Body>
void for_operands(Body&& body) {
  Rng rng(11);
  for (const ProductKind kind : kKinds) {
    for (const ProductSizes& sizes : kProductSizes) {
      if (kind == ProductKind::weight_gradient && sizes.k > 128) continue;  // not a small product
      for (const std::int64_t gap : {0, 3}) {
        const std::size_t offset = rng() % 2;
        SCOPED_TRACE(fmt::format("kind {}: [{}, {}] [{}, {}], gap {}, offset {}", static_cast<int>(kind), sizes.m,
                                 sizes.k, sizes.k, sizes.n, gap, offset));
        Operands operands(rng, kind, sizes, gap, offset);
        body(operands);
      }
    }
  }
}

void run_on_both(Operands& by, const auto& change) {
  Matmul here = by.product(false);
  change(here, false);
  launch(test::cpu(), here);
  Matmul there = by.product(true);
  change(there, true);
  ASSERT_TRUE(gpu::is_small_product(there));
  launch(test::gpu(), there);
}

class SmallProduct : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_NEEDS_GPU(); }
  void TearDown() override { cuda::set_small_products(true); }
};

TEST_F(SmallProduct, WithBiasAndRelu) {
  for_operands([](Operands& by) {
    for (const bool relu : {false, true}) {
      run_on_both(by, [&](Matmul& product, bool on_gpu) {
        product.after = {.bias = on_gpu ? by.bias.device() : by.bias.host(), .relu = relu};
      });
      ASSERT_LE(by.out.distance(), test::rounding<float>());
    }
  });
}

TEST_F(SmallProduct, AddsToTheResult) {
  for_operands([](Operands& by) {
    run_on_both(by, [&](Matmul& product, bool) { product.accumulate = Accumulate::yes; });
    ASSERT_LE(by.out.distance(), test::rounding<float>());
  });
}

TEST_F(SmallProduct, MasksTheGradientAndSumsItsColumns) {
  for_operands([](Operands& by) {
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      run_on_both(by, [&](Matmul& product, bool on_gpu) {
        product.accumulate = accumulate;
        product.after = {.relu_mask = on_gpu ? by.mask.device() : by.mask.host(),
                         .column_sums = on_gpu ? by.column_sums.device() : by.column_sums.host()};
      });
      ASSERT_LE(by.out.distance(), test::rounding<float>());
      ASSERT_LE(by.column_sums.distance(1), 2 * test::rounding<float>());
    }
  });
}

TEST_F(SmallProduct, SumsItsLeftSide) {
  for_operands([](Operands& by) {
    run_on_both(by, [&](Matmul& product, bool on_gpu) {
      product.after.a_sums = on_gpu ? by.a_sums.device() : by.a_sums.host();
    });
    ASSERT_LE(by.out.distance(), test::rounding<float>());
    ASSERT_LE(by.a_sums.distance(1), 2 * test::rounding<float>());
  });
}

TEST_F(SmallProduct, KeepsNanAndInfinity) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // Elements outside of the matrices, which count as 0, must not meet an infinity.
  const DeviceArray<float> a(std::vector<float>{kNan, -kInf, kInf, -1});
  const DeviceArray<float> b(std::vector<float>{1});
  DeviceArray<float> out(std::vector<float>(4));
  launch(test::gpu(), Matmul{.dtype = DType::f32,
                             .m = 4,
                             .n = 1,
                             .k = 1,
                             .a = {a.data(), 1, 1},
                             .b = {b.data(), 1, 1},
                             .out = out.data(),
                             .out_stride = 1,
                             .after = {.relu = true}});
  const std::vector<float> result = out.download();
  EXPECT_TRUE(std::isnan(result[0]));
  EXPECT_EQ((std::vector<float>(result.begin() + 1, result.end())), (std::vector<float>{0, kInf, 0}));
}

TEST_F(SmallProduct, GivesTheSameBitsEachTime) {
  Rng rng(3);
  Operands by(rng, ProductKind::input_gradient, {128, 200, 300}, 0, 0);
  std::vector<float> first;
  for (int run = 0; run < 3; ++run) {
    Matmul product = by.product(true);
    product.after = {.relu_mask = by.mask.device(), .column_sums = by.column_sums.device()};
    launch(test::gpu(), product);
    std::vector<float> all = by.out.download();
    const std::vector<float> sums = by.column_sums.download();
    all.insert(all.end(), sums.begin(), sums.end());
    first = run == 0 ? all : first;
    EXPECT_EQ(all, first) << run;
  }
}

TEST_F(SmallProduct, IsF32OfFewRowsAndOperations) {
  Rng rng(3);
  Operands by(rng, ProductKind::forward, {16, 32, 16}, 0, 0);
  const Matmul small = by.product(true);
  EXPECT_TRUE(gpu::is_small_product(small));
  const auto with = [&](auto change) {
    Matmul other = small;
    change(other);
    return gpu::is_small_product(other);
  };
  EXPECT_TRUE(with([](Matmul& p) { p.m = 128; }));
  EXPECT_FALSE(with([](Matmul& p) { p.m = 129; }));
  EXPECT_FALSE(with([](Matmul& p) { p.dtype = DType::f64; }));
  EXPECT_FALSE(with([](Matmul& p) { p.n = std::int64_t{1} << 40; }));
  EXPECT_FALSE(with([](Matmul& p) { p.k = std::int64_t{1} << 40; }));
  EXPECT_TRUE(with([](Matmul& p) { p.m = 128, p.n = 512, p.k = 784; }));
  EXPECT_FALSE(with([](Matmul& p) { p.m = 128, p.n = 1024, p.k = 1024; }));
  set_float32_matmul_precision("high");
  EXPECT_FALSE(gpu::is_small_product(small));
  set_float32_matmul_precision("highest");
  cuda::set_small_products(false);
  EXPECT_FALSE(gpu::is_small_product(small));
}

// ---- the choice by measurement ----

TEST_F(MatmulTuning, ComparesOurOwnKernelWithTheLibrary) {
  cuda::set_small_products(true);
  Case one(Product(31, 37, 41));
  one.run();
  EXPECT_EQ(one.out.download(), one.expected());
  const auto record = record_of(one.product.key(Fused::own));
  ASSERT_TRUE(record);
  EXPECT_GT(record->time_us, 0);
  EXPECT_FALSE(record_of(one.product.key(Fused::own_forward))) << "a product with a bias is measured for itself";
  EXPECT_TRUE(record_of(one.product.key(Fused::nothing)));
  one.run();
  EXPECT_EQ(one.out.download(), one.expected());
}

// The measured runs write to other memory, but the sums are the product's own.
TEST_F(MatmulTuning, LeavesTheRightSumsBehind) {
  cuda::set_small_products(true);
  Rng rng(5);
  Operands by(rng, ProductKind::input_gradient, {40, 52, 21}, 0, 0);
  run_on_both(by, [&](Matmul& product, bool on_gpu) {
    product.accumulate = Accumulate::yes;
    product.after = {.relu_mask = on_gpu ? by.mask.device() : by.mask.host(),
                     .column_sums = on_gpu ? by.column_sums.device() : by.column_sums.host()};
  });
  EXPECT_LE(by.out.distance(), test::rounding<float>());
  EXPECT_LE(by.column_sums.distance(1), 2 * test::rounding<float>());
}

TEST_F(MatmulTuning, TakesTheLibraryWhereAFileSaysThatItIsFaster) {
  cuda::set_small_products(true);
  cuda::set_kernel_tuning(false);
  Case one(Product(31, 43, 41));
  const PlanKey key = one.product.key(Fused::own);
  const Queue queue(test::gpu());
  gpu::Planner& planner = gpu::Planner::of(queue);
  EXPECT_EQ(planner.prefers_own(queue, key), true);
  gpu::PlanStore::instance().add_loaded({PlanRecord{
      .key = key, .version = 1, .separate = true, .kernels = 1, .time_us = 1, .gpu = cuda::device_name(0)}});
  EXPECT_EQ(planner.prefers_own(queue, key), false);
  one.run();
  EXPECT_EQ(one.out.download(), one.expected());
}

}  // namespace
}  // namespace tandem::kernels
