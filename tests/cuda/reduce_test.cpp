#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/reduce.h>

#include "cuda/device_array.h"
#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::DeviceArray;
using test::Layout;
using test::Rng;

Shape part(const Shape& whole, std::uint64_t mask, bool chosen) {
  Shape result;
  for (int dim = 0; dim < whole.ndim(); ++dim) {
    if (((mask >> dim) & 1) == chosen) result.push_back(whole[dim]);
  }
  return result;
}

template <class T>
using SumOf = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;

template <class T>
double slack(const Shape& sizes, ReduceOp op) {
  if (op != ReduceOp::sum || std::is_integral_v<T>) return 0;
  const double unit = std::is_same_v<T, double> ? 1e-14 : is_16_bit<T> ? 0x1p-8 : 1e-6;
  return unit * (1 + 4 * std::sqrt(static_cast<double>(sizes.numel())));
}

// NaNs count as equal. A broadcast value is added to itself, and rounding errors add up to a few units of the sum.
template <class T>
void expect_close(const std::vector<T>& got, const std::vector<T>& expected, double slack) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto a = static_cast<double>(got[i]);
    const auto b = static_cast<double>(expected[i]);
    ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= slack * (1 + std::abs(b) / 64))
        << i << ": " << a << " " << b;
  }
}

// Runs `kernel`, whose pointers are set here, on both devices. A second run must give equal bits.
template <class T, class Out>
void compare(Reduce kernel, std::vector<T> in, std::int64_t in_offset, std::vector<Out> out, std::int64_t out_offset,
             bool with_indices, double slack) {
  const DeviceArray<T> gpu_in(in);
  const DeviceArray<Out> gpu_out(out), again(out);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(kernel.kept.numel()), -7);
  const DeviceArray<std::int64_t> gpu_indices(indices);
  const auto run = [&](Context& context, T* from, Out* to, std::int64_t* at) {
    kernel.in.data = kernel.in_reduced.data = from + in_offset;
    kernel.out.data = to + out_offset;
    kernel.indices = with_indices ? at : nullptr;
    launch(context, kernel);
  };
  run(test::cpu(), in.data(), out.data(), indices.data());
  run(test::gpu(), gpu_in.data(), gpu_out.data(), gpu_indices.data());
  run(test::gpu(), gpu_in.data(), again.data(), gpu_indices.data());
  expect_close(gpu_out.download(), out, slack);
  EXPECT_EQ(gpu_indices.download(), indices);
  const std::vector<Out> first = gpu_out.download(), second = again.download();
  EXPECT_TRUE(first.empty() || std::memcmp(first.data(), second.data(), first.size() * sizeof(Out)) == 0);
}

template <class T, class Out>
void compare_any(Rng& rng, const Shape& sizes, std::uint64_t mask, ReduceOp op, bool dense) {
  constexpr bool kWhole = std::is_integral_v<T>;
  const Layout in_layout = dense ? Layout{.strides = contiguous_strides(sizes), .extent = sizes.numel()}
                                 : test::random_layout(rng, sizes, true);
  std::vector<T> in;
  for (const double value : test::random_values<double>(rng, in_layout.extent, kWhole ? 0 : -2, kWhole ? 3 : 2))
    in.push_back(static_cast<T>(static_cast<ComputeType<T>>(rng() % 5 == 0 ? 0 : value)));
  if (rng() % 8 == 0 && !in.empty() && !kWhole) in[rng() % in.size()] = T(NAN);
  const Shape kept = part(sizes, mask, false);
  const Layout out_layout = test::random_layout(rng, kept, false);
  const std::vector<Out> out(static_cast<std::size_t>(out_layout.extent), Out(5));
  Reduce kernel{
      .op = op,
      .dtype = dtype_of<T>,
      .accumulate = op != ReduceOp::max && op != ReduceOp::min && rng() % 2 == 0 ? Accumulate::yes : Accumulate::no,
      .kept = test::loop_of(kept),
      .reduced = test::loop_of(part(sizes, mask, true)),
      .out = {},
      .in = {},
      .in_reduced = {},
      .scale = op == ReduceOp::sum && !kWhole ? 0.5 : 1};
  std::vector<T> none(1);
  std::vector<Out> nowhere(1);
  kernel.out = test::operand_of(nowhere, {out_layout.strides});
  kernel.in = test::operand_of(none, {part(in_layout.strides, mask, false)});
  kernel.in_reduced = test::operand_of(none, {part(in_layout.strides, mask, true)});
  if (rng() % 4 != 0) {
    simplify(kernel.kept, {&kernel.out, &kernel.in});
    simplify(kernel.reduced, {&kernel.in_reduced});
  }
  const bool with_indices = op >= ReduceOp::max && kernel.reduced.ndim == 1 && rng() % 2 == 0;
  SCOPED_TRACE(to_string(sizes) + " mask " + std::to_string(mask) + " op " + std::to_string(static_cast<int>(op)) +
               (dense ? " dense" : ""));
  compare<T, Out>(kernel, in, in_layout.offset, out, out_layout.offset, with_indices, slack<T>(sizes, op));
}

template <class T>
class GpuReduceOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Float16, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(GpuReduceOf, Types);

TYPED_TEST(GpuReduceOf, EqualsTheCpuOverAnyDimensions) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  Rng rng(5);
  std::vector<Shape> shapes = test::awkward_shapes();
  shapes.insert(shapes.end(),
                {{40, 64}, {64, 40}, {3000, 24}, {9, 50, 16}, {16, 5, 8}, {33, 1000}, {1024, 33}, {6, 3}});
  for (const Shape& sizes : shapes) {
    const std::uint64_t masks = std::uint64_t{1} << std::min(sizes.ndim(), 4);
    for (std::uint64_t mask = 0; mask < masks; ++mask) {
      for (const bool dense : {true, false}) {
        const auto op = static_cast<ReduceOp>(rng() % 2);
        if (op == ReduceOp::sum) {
          compare_any<T, SumOf<T>>(rng, sizes, mask, op, dense);
        } else {
          compare_any<T, std::int64_t>(rng, sizes, mask, op, dense);
        }
        if (part(sizes, mask, true).numel() > 0)
          compare_any<T, T>(rng, sizes, mask, rng() % 2 == 0 ? ReduceOp::max : ReduceOp::min, dense);
      }
    }
  }
}

// One row or one column, at every alignment, with every tail.
TYPED_TEST(GpuReduceOf, EqualsTheCpuAtAnyAlignment) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  Rng rng(6);
  for (std::int64_t offset = 0; offset < 9; ++offset) {
    for (const std::int64_t size : {1, 3, 8, 9, 31, 32, 33, 255, 1025, 40'001}) {
      std::vector<T> in;
      for (const double value : test::random_values<double>(rng, size + offset, -2, 100))
        in.push_back(static_cast<T>(static_cast<ComputeType<T>>(std::abs(value))));
      Reduce kernel{.op = ReduceOp::sum,
                    .dtype = dtype_of<T>,
                    .kept = test::loop_of({}),
                    .reduced = test::loop_of({size}),
                    .out = {nullptr, {1}},
                    .in = {nullptr, {1}},
                    .in_reduced = {nullptr, {1}}};
      const double total = 50.0 * static_cast<double>(size);
      const double unit = std::is_integral_v<T> ? 0 : std::is_same_v<T, double> ? 1e-14 : is_16_bit<T> ? 0x1p-8 : 1e-6;
      compare<T, SumOf<T>>(kernel, in, offset, std::vector<SumOf<T>>(1), 0, false, unit * total);
      kernel.op = ReduceOp::max;
      compare<T, T>(kernel, in, offset, std::vector<T>(1), 0, true, 0);
    }
  }
}

TEST(GpuSum, LongOnesLoseNoDigits) {
  TANDEM_NEEDS_GPU();
  for (const auto& [rows, columns] : {std::pair{1'000'003, 1}, std::pair{1, 1'000'003}, std::pair{300'000, 3}}) {
    const DeviceArray<float> in(std::vector<float>(static_cast<std::size_t>(rows * columns), 0.1F));
    const DeviceArray<float> out(std::vector<float>(static_cast<std::size_t>(columns)));
    launch(test::gpu(), Reduce{.op = ReduceOp::sum,
                               .dtype = DType::f32,
                               .kept = test::loop_of({columns}),
                               .reduced = test::loop_of({rows}),
                               .out = {out.data(), {1}},
                               .in = {in.data(), {1}},
                               .in_reduced = {in.data(), {columns}}});
    const double exact = static_cast<double>(0.1F) * rows;
    for (const float sum : out.download())
      ASSERT_NEAR(sum / exact, 1, 1e-6);
  }
}

TEST(GpuExtreme, TakesTheFirstOfEqualsAndOfNaNs) {
  TANDEM_NEEDS_GPU();
  for (const std::int64_t columns : {1, 64}) {
    for (const float found : {7.0F, std::nanf("")}) {
      std::vector<float> in(static_cast<std::size_t>(100'000 * columns), 1.0F);
      for (std::int64_t i = 0; i < columns; ++i) {
        in[static_cast<std::size_t>(54'321 * columns + i)] = found;
        in[static_cast<std::size_t>(54'322 * columns + i)] = found;
        in[static_cast<std::size_t>(99'999 * columns + i)] = found;
        in[static_cast<std::size_t>(60'000 * columns + i)] = std::isnan(found) ? INFINITY : 7.0F;
      }
      const DeviceArray<float> gpu_in(in);
      const DeviceArray<float> out(std::vector<float>(static_cast<std::size_t>(columns)));
      const DeviceArray<std::int64_t> indices(std::vector<std::int64_t>(static_cast<std::size_t>(columns)));
      launch(test::gpu(), Reduce{.op = ReduceOp::max,
                                 .dtype = DType::f32,
                                 .kept = test::loop_of({columns}),
                                 .reduced = test::loop_of({100'000}),
                                 .out = {out.data(), {1}},
                                 .in = {gpu_in.data(), {1}},
                                 .in_reduced = {gpu_in.data(), {columns}},
                                 .indices = indices.data()});
      for (const std::int64_t at : indices.download())
        ASSERT_EQ(at, 54'321);
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
