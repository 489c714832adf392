#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/scan.h>

#include "cuda/device_array.h"
#include "cuda/near.h"
#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::DeviceArray;
using test::Rng;

struct Around {
  std::int64_t outer, size, inner;
};

constexpr Around kArounds[] = {{1, 1, 1},      {1, 7, 1},     {3, 5, 1},   {2, 3, 4},    {1, 2, 63},
                               {2, 3, 65},     {1, 9, 200},   {0, 3, 2},   {2, 0, 2},    {2, 3, 0},
                               {3, 33, 1},     {5, 64, 1},    {7, 999, 1}, {2, 1024, 1}, {3, 1025, 1},
                               {2, 40'000, 1}, {1, 9'001, 1}, {2, 700, 7}, {1, 5000, 2}};

template <class T>
void compare(Rng& rng, const Around& around, bool reverse, Accumulate accumulate, std::size_t offset) {
  using Out = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
  SCOPED_TRACE(std::to_string(around.outer) + " " + std::to_string(around.size) + " " + std::to_string(around.inner) +
               (reverse ? " reversed" : "") + " at " + std::to_string(offset));
  std::vector<T> in;
  std::vector<Out> out;
  for (const double value : test::random_values<double>(rng, around.outer * around.size * around.inner, 0, 4)) {
    in.push_back(static_cast<T>(static_cast<ComputeType<T>>(value)));
    out.push_back(static_cast<Out>(static_cast<ComputeType<Out>>(value)));
  }
  const DeviceArray<T> gpu_in(in, offset);
  const DeviceArray<Out> gpu_out(out, offset);
  CumSum kernel{.dtype = dtype_of<T>,
                .reverse = reverse,
                .accumulate = accumulate,
                .outer = around.outer,
                .size = around.size,
                .inner = around.inner,
                .in = in.data(),
                .out = out.data()};
  launch(test::cpu(), kernel);
  kernel.in = gpu_in.data();
  kernel.out = gpu_out.data();
  launch(test::gpu(), kernel);
  test::expect_near(gpu_out.download(), out, "sums");
}

template <class T>
class GpuCumSumOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Float16, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(GpuCumSumOf, Types);

TYPED_TEST(GpuCumSumOf, EqualsTheCpu) {
  TANDEM_NEEDS_GPU();
  Rng rng(3);
  for (const Around& around : kArounds) {
    for (const bool reverse : {false, true}) {
      compare<TypeParam>(rng, around, reverse, rng() % 2 == 0 ? Accumulate::yes : Accumulate::no, 0);
      compare<TypeParam>(rng, around, reverse, rng() % 2 == 0 ? Accumulate::yes : Accumulate::no, rng() % 8);
    }
  }
}

TEST(GpuCumSum, KeepsInfinitiesWhereTheyAre) {
  TANDEM_NEEDS_GPU();
  std::vector<float> in(20'000, 1.0F);
  in[15'000] = INFINITY;
  const DeviceArray<float> gpu_in(in), out(in);
  launch(test::gpu(),
         CumSum{.dtype = DType::f32, .outer = 1, .size = 20'000, .inner = 1, .in = gpu_in.data(), .out = out.data()});
  const std::vector<float> sums = out.download();
  EXPECT_EQ(sums[14'999], 15'000.0F);
  EXPECT_EQ(sums[15'000], INFINITY);
  EXPECT_EQ(sums[19'999], INFINITY);
}

}  // namespace
}  // namespace tandem::kernels
