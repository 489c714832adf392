#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/tril.h>

#include "cuda/device_array.h"
#include "cuda/near.h"
#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::DeviceArray;
using test::Rng;

struct Sizes {
  std::int64_t outer, rows, columns;
};

constexpr Sizes kSizes[] = {{1, 1, 1}, {1, 3, 3}, {2, 3, 5},  {3, 7, 2},     {0, 3, 2},
                            {2, 0, 2}, {2, 3, 0}, {5, 64, 1}, {1, 1, 1'025}, {2, 300, 257}};

template <class T>
void compare(Rng& rng, const Sizes& sizes, std::int64_t diagonal, Accumulate accumulate, std::size_t offset) {
  SCOPED_TRACE(std::to_string(sizes.outer) + " " + std::to_string(sizes.rows) + " " + std::to_string(sizes.columns) +
               " diagonal " + std::to_string(diagonal) + " at " + std::to_string(offset));
  std::vector<T> in, out;
  for (const double value : test::random_values<double>(rng, sizes.outer * sizes.rows * sizes.columns, 0, 4)) {
    in.push_back(static_cast<T>(static_cast<ComputeType<T>>(value)));
    out.push_back(static_cast<T>(static_cast<ComputeType<T>>(4 - value)));
  }
  const DeviceArray<T> gpu_in(in, offset), gpu_out(out, offset);
  Tril kernel{.dtype = dtype_of<T>,
              .accumulate = accumulate,
              .outer = sizes.outer,
              .rows = sizes.rows,
              .columns = sizes.columns,
              .diagonal = diagonal,
              .in = in.data(),
              .out = out.data()};
  launch(test::cpu(), kernel);
  kernel.in = gpu_in.data();
  kernel.out = gpu_out.data();
  launch(test::gpu(), kernel);
  test::expect_near(gpu_out.download(), out, "triangles");
}

template <class T>
class GpuTrilOf : public ::testing::Test {};
using TrilTypes = ::testing::Types<float, double, BFloat16, Half, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(GpuTrilOf, TrilTypes);

TYPED_TEST(GpuTrilOf, EqualsTheCpu) {
  TANDEM_NEEDS_GPU();
  Rng rng(3);
  for (const Sizes& sizes : kSizes) {
    for (const std::int64_t diagonal : {-sizes.rows, std::int64_t{-1}, std::int64_t{0}, sizes.columns}) {
      compare<TypeParam>(rng, sizes, diagonal, Accumulate::no, 0);
      compare<TypeParam>(rng, sizes, diagonal, Accumulate::no, rng() % 8);
      if (!std::is_integral_v<TypeParam>) {
        compare<TypeParam>(rng, sizes, diagonal, Accumulate::yes, 0);
        compare<TypeParam>(rng, sizes, diagonal, Accumulate::yes, rng() % 8);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
