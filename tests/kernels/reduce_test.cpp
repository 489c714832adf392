#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/reduce.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Layout;
using test::Rng;

Shape part(const Shape& whole, std::uint64_t mask, bool chosen) {
  Shape result;
  for (int dim = 0; dim < whole.ndim(); ++dim) {
    if (((mask >> dim) & 1) == chosen) result.push_back(whole[dim]);
  }
  return result;
}

// The type that sums of T are stored in.
template <class T>
using SumOf = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;

// The kernel that sums `sizes` over the dimensions in `mask`.
template <class T, class Out>
Reduce sum_kernel(std::vector<T>& in, const Layout& in_layout, std::vector<Out>& out, const Layout& out_layout,
                  const Shape& sizes, std::uint64_t mask) {
  Reduce kernel{.op = ReduceOp::sum,
                .dtype = dtype_of<T>,
                .kept = test::loop_of(part(sizes, mask, false)),
                .reduced = test::loop_of(part(sizes, mask, true)),
                .out = test::operand_of(out, out_layout),
                .in = test::operand_of(in, {part(in_layout.strides, mask, false), in_layout.offset}),
                .in_reduced = test::operand_of(in, {part(in_layout.strides, mask, true), in_layout.offset})};
  return kernel;
}

// The sums of `in` over the dimensions in `mask`, one for each index of the other dimensions.
template <class T>
std::vector<double> naive_sums(const std::vector<T>& in, const Layout& layout, const Shape& sizes, std::uint64_t mask) {
  Layout out{.strides = Shape::filled(sizes.ndim(), 0)};
  const Shape dense = contiguous_strides(part(sizes, mask, false));
  for (int dim = 0, at = 0; dim < sizes.ndim(); ++dim) {
    if (((mask >> dim) & 1) == 0) out.strides[dim] = dense[at++];
  }
  std::vector<double> sums(static_cast<std::size_t>(part(sizes, mask, false).numel()));
  test::for_each_element(
      sizes, [&](std::size_t i, std::size_t o) { sums[o] += static_cast<double>(in[i]); }, layout, out);
  return sums;
}

template <class T>
class ReduceOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(ReduceOf, Types);

TYPED_TEST(ReduceOf, SumsOverAnyDimensions) {
  using T = TypeParam;
  constexpr bool kIntegers = !std::is_floating_point_v<T>;
  Rng rng(11);
  for (const Shape& sizes : test::awkward_shapes()) {
    const std::uint64_t masks = std::uint64_t{1} << sizes.ndim();
    for (std::uint64_t mask = 0; mask < masks; ++mask) {
      const Layout in_layout = test::random_layout(rng, sizes, true);
      std::vector<T> in = test::random_values<T>(rng, in_layout.extent, kIntegers ? 0 : -1, kIntegers ? 3 : 1);
      const Shape kept = part(sizes, mask, false);
      const Layout out_layout = test::random_layout(rng, kept, false);
      std::vector<SumOf<T>> out(static_cast<std::size_t>(out_layout.extent), SumOf<T>(5));
      Reduce kernel = sum_kernel(in, in_layout, out, out_layout, sizes, mask);
      kernel.accumulate = rng() % 2 == 0 ? Accumulate::yes : Accumulate::no;
      kernel.scale = kIntegers ? 1 : 0.5;
      if (rng() % 2 == 0) {
        simplify(kernel.kept, {&kernel.out, &kernel.in});
        simplify(kernel.reduced, {&kernel.in_reduced});
      }
      launch(test::cpu(), kernel);

      std::vector<double> expected(out.size(), 5);
      const std::vector<double> sums = naive_sums(in, in_layout, sizes, mask);
      std::size_t next = 0;
      test::for_each_element(
          kept,
          [&](std::size_t o) {
            expected[o] = (kernel.accumulate == Accumulate::yes ? 5.0 : 0.0) + sums[next++] * kernel.scale;
          },
          out_layout);
      // Terms with random signs cancel, so the tolerance follows the size of the terms.
      const double slack =
          kIntegers ? 0 : test::tolerance<T>() * (1 + 4 * std::sqrt(static_cast<double>(sizes.numel())));
      ASSERT_LE(test::difference(out, expected), slack) << to_string(sizes) << " mask " << mask;
    }
  }
}

template <class T>
double sum_of(std::vector<T>& in, std::int64_t stride = 1) {
  std::vector<SumOf<T>> out(1);
  Reduce kernel{.op = ReduceOp::sum,
                .dtype = dtype_of<T>,
                .kept = test::loop_of({}),
                .reduced = test::loop_of({static_cast<std::int64_t>(in.size()) / stride}),
                .out = {out.data(), {1}},
                .in = {in.data(), {1}},
                .in_reduced = {in.data(), {stride}}};
  launch(test::cpu(), kernel);
  return static_cast<double>(out[0]);
}

TEST(Sum, LongOnesLoseNoDigits) {
  for (const std::int64_t count : {65535, 65536, 65537, 131072, 1000003}) {
    std::vector<float> values(static_cast<std::size_t>(count), 0.1f);
    const double exact = static_cast<double>(0.1f) * static_cast<double>(count);
    EXPECT_NEAR(sum_of(values) / exact, 1, 1e-6) << count;
    EXPECT_NEAR(sum_of(values, 2) / (static_cast<double>(0.1f) * static_cast<double>(count / 2)), 1, 1e-6) << count;
  }
  // In f32, 2^24 + 1 + 1 + ... does not grow.
  std::vector<float> ones(1 << 17, 1.0f);
  ones[0] = 0x1p24f;
  EXPECT_NEAR(sum_of(ones) / (0x1p24 + 0x1p17), 1, 1e-5);
}

TEST(Sum, LongColumnsLoseNoDigits) {
  constexpr std::int64_t kRows = 70000;
  constexpr std::int64_t kCols = 3;
  std::vector<float> values(kRows * kCols, 0.1f);
  std::vector<float> out(kCols);
  launch(test::cpu(), Reduce{.op = ReduceOp::sum,
                             .dtype = DType::f32,
                             .kept = test::loop_of({kCols}),
                             .reduced = test::loop_of({kRows}),
                             .out = {out.data(), {1}},
                             .in = {values.data(), {1}},
                             .in_reduced = {values.data(), {kCols}}});
  for (const float sum : out)
    EXPECT_NEAR(sum / (static_cast<double>(0.1f) * kRows), 1, 1e-6);
}

TEST(Sum, PassesNaNAndInfinityOn) {
  for (const std::size_t at : {0u, 1000u, 69999u}) {
    std::vector<float> values(70000, 1.0f);
    values[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(sum_of(values)));
    values[at] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(sum_of(values), INFINITY);
    values[(at + 5) % values.size()] = -INFINITY;
    EXPECT_TRUE(std::isnan(sum_of(values)));
  }
}

TEST(Sum, OfIntegersWrapsAround) {
  std::vector<std::int64_t> values{std::numeric_limits<std::int64_t>::max(), 1, 1};
  std::vector<std::int64_t> out(1);
  launch(test::cpu(), Reduce{.op = ReduceOp::sum,
                             .dtype = DType::i64,
                             .kept = test::loop_of({}),
                             .reduced = test::loop_of({3}),
                             .out = {out.data(), {1}},
                             .in = {values.data(), {1}},
                             .in_reduced = {values.data(), {1}}});
  EXPECT_EQ(out[0], std::numeric_limits<std::int64_t>::min() + 1);
}

// The sum of so many largest values exceeds a narrow type.
TEST(Sum, OfNarrowIntegersIsWide) {
  std::vector<std::uint8_t> bytes(1'000'003, 255);
  EXPECT_EQ(sum_of(bytes), 255.0 * 1'000'003);
  EXPECT_EQ(sum_of(bytes, 2), 255.0 * 500'001);
  std::vector<std::int32_t> ints(70'001, INT32_MIN);
  EXPECT_EQ(sum_of(ints), -0x1p31 * 70'001);
  std::vector<std::uint8_t> flags(70'001, 1);
  std::int64_t total = 0;
  launch(test::cpu(), Reduce{.op = ReduceOp::sum,
                             .dtype = DType::boolean,
                             .kept = test::loop_of({}),
                             .reduced = test::loop_of({70'001}),
                             .out = {&total, {1}},
                             .in = {flags.data(), {1}},
                             .in_reduced = {flags.data(), {1}}});
  EXPECT_EQ(total, 70'001);
}

TYPED_TEST(ReduceOf, CountsWhatIsNotZero) {
  using T = TypeParam;
  Rng rng(17);
  for (const Shape& sizes : test::awkward_shapes()) {
    for (const std::uint64_t mask : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
      const Layout layout = test::random_layout(rng, sizes, true);
      std::vector<T> in = test::random_values<T>(rng, layout.extent, 0, 3);
      std::vector<T> ones(in.size());
      for (std::size_t i = 0; i < in.size(); ++i) {
        in[i] = std::floor(static_cast<double>(in[i])) == 0 ? T(0) : in[i];
        ones[i] = in[i] != T(0) ? T(1) : T(0);
      }
      const Shape kept = part(sizes, mask, false);
      std::vector<std::int64_t> out(static_cast<std::size_t>(kept.numel()));
      Reduce kernel = sum_kernel(in, layout, out, {.strides = contiguous_strides(kept)}, sizes, mask);
      kernel.op = ReduceOp::nonzero;
      launch(test::cpu(), kernel);
      ASSERT_EQ(test::difference(out, naive_sums(ones, layout, sizes, mask)), 0) << to_string(sizes) << " " << mask;
    }
  }
}

TEST(Nonzero, CountsNaNAndNotTheNegativeZero) {
  std::vector<float> in{0, -0.0F, std::nanf(""), 1e-45F};
  std::int64_t count = 0;
  launch(test::cpu(), Reduce{.op = ReduceOp::nonzero,
                             .dtype = DType::f32,
                             .kept = test::loop_of({}),
                             .reduced = test::loop_of({4}),
                             .out = {&count, {1}},
                             .in = {in.data(), {1}},
                             .in_reduced = {in.data(), {1}}});
  EXPECT_EQ(count, 2);
}

struct Extreme {
  std::vector<double> values;
  std::vector<std::int64_t> indices;
};

// Reduces along the middle dimension of a dense [outer, size, inner].
template <class T>
Extreme extremes(ReduceOp op, std::vector<T> in, std::int64_t outer, std::int64_t size, std::int64_t inner) {
  std::vector<T> out(static_cast<std::size_t>(outer * inner));
  std::vector<std::int64_t> indices(out.size(), -1);
  launch(test::cpu(), Reduce{.op = op,
                             .dtype = dtype_of<T>,
                             .kept = test::loop_of({outer, inner}),
                             .reduced = test::loop_of({size}),
                             .out = {out.data(), {inner, 1}},
                             .in = {in.data(), {size * inner, 1}},
                             .in_reduced = {in.data(), {inner}},
                             .indices = indices.data()});
  return {{out.begin(), out.end()}, indices};
}

TYPED_TEST(ReduceOf, MaxAndMinWithTheirFirstPosition) {
  using T = TypeParam;
  Rng rng(13);
  for (const auto& [outer, size, inner] : std::vector<std::tuple<int, int, int>>{
           {1, 1, 1}, {1, 7, 1}, {3, 5, 1}, {2, 4, 3}, {1, 9, 11}, {5, 1, 2}, {300, 17, 40}, {2, 70000, 1}}) {
    // Few distinct values cause ties.
    std::vector<T> in = test::random_values<T>(rng, outer * size * inner, 0, 4);
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
      const Extreme got = extremes(op, in, outer, size, inner);
      for (int o = 0; o < outer; ++o) {
        for (int i = 0; i < inner; ++i) {
          std::int64_t best = 0;
          const auto at = [&](std::int64_t s) { return in[static_cast<std::size_t>((o * size + s) * inner + i)]; };
          for (std::int64_t s = 1; s < size; ++s) {
            if (op == ReduceOp::max ? at(s) > at(best) : at(s) < at(best)) best = s;
          }
          const auto position = static_cast<std::size_t>(o * inner + i);
          ASSERT_EQ(got.values[position], static_cast<double>(at(best)));
          ASSERT_EQ(got.indices[position], best);
        }
      }
    }
  }
}

TEST(Extreme, NaNWinsAndTheFirstOneIsFound) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    for (const std::vector<float>& row :
         {std::vector<float>{1, nan, inf, nan, -inf}, std::vector<float>{inf, nan, 0, 0, -inf}}) {
      const Extreme got = extremes(op, row, 1, 5, 1);
      EXPECT_TRUE(std::isnan(got.values[0]));
      EXPECT_EQ(got.indices[0], 1);
    }
    EXPECT_EQ(extremes(op, std::vector<float>{nan, 5, nan}, 1, 3, 1).indices[0], 0);
  }
}

TEST(Extreme, InfinitiesAreValues) {
  const double inf = INFINITY;
  EXPECT_EQ(extremes(ReduceOp::max, std::vector<double>{-inf, -inf}, 1, 2, 1).values[0], -inf);
  EXPECT_EQ(extremes(ReduceOp::max, std::vector<double>{-inf, -1e308}, 1, 2, 1).indices[0], 1);
  EXPECT_EQ(extremes(ReduceOp::min, std::vector<double>{inf, 1e308, -inf}, 1, 3, 1).indices[0], 2);
}

TEST(Extreme, WorksOverSeveralStridedDimensions) {
  std::vector<float> in(4 * 5);
  std::iota(in.begin(), in.end(), 0.0f);
  std::vector<float> out(1);
  Reduce kernel{.op = ReduceOp::max,
                .dtype = DType::f32,
                .kept = test::loop_of({}),
                .reduced = test::loop_of({2, 3}),
                .out = {out.data(), {1}},
                .in = {in.data(), {1}},
                .in_reduced = {in.data(), {10, 1}}};
  launch(test::cpu(), kernel);
  EXPECT_EQ(out[0], 12);
  kernel.op = ReduceOp::min;
  launch(test::cpu(), kernel);
  EXPECT_EQ(out[0], 0);
}

}  // namespace
}  // namespace tandem::kernels
