#include <cstdint>
#include <type_traits>

#include <gtest/gtest.h>

#include <tandem/kernels/fill.h>

#include "cuda/values.h"

namespace tandem::kernels {
namespace {

using test::Layout;
using test::Rng;
using test::Twin;

template <class T>
class CudaFillOf : public testing::Test {};
using Types = testing::Types<float, double, BFloat16, Float16, std::int64_t, std::int32_t, std::uint8_t, bool>;
TYPED_TEST_SUITE(CudaFillOf, Types);

TYPED_TEST(CudaFillOf, Fill) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  Rng rng(1);
  for (const Shape& sizes : test::awkward_shapes()) {
    for (const bool simple : {false, true}) {
      const Layout layout = test::random_layout(rng, sizes, false);
      Twin<T> out(rng, layout.extent);
      Fill kernel{.dtype = dtype_of<T>,
                  .loop = test::loop_of(sizes),
                  .out = out.operand_on_host(layout),
                  .value = std::is_same_v<T, bool> ? 0.5 : 3.7};
      if (simple) simplify(kernel.loop, {&kernel.out});
      launch(test::cpu(), kernel);
      kernel.out.data = out.on_gpu(layout.offset);
      launch(test::gpu(), kernel);
      ASSERT_TRUE(out.agree()) << fmt::format("{}", fmt::join(sizes, " "));
    }
  }
}

TYPED_TEST(CudaFillOf, ArangeAndLinspace) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  Rng rng(3);
  for (const std::int64_t count : {0, 1, 2, 3, 15, 16, 17, 1023, 70001}) {
    for (const std::int64_t offset : {0, 1}) {
      Twin<T> out(rng, count + offset);
      Arange arange{.dtype = dtype_of<T>,
                    .out = out.on_host(offset),
                    .count = count,
                    .start = 0.1,
                    .step = count > 1000 ? 0.0007 : 0.3};
      launch(test::cpu(), arange);
      arange.out = out.on_gpu(offset);
      launch(test::gpu(), arange);
      ASSERT_TRUE(out.agree()) << "arange " << count << " " << offset;

      Linspace linspace{.dtype = dtype_of<T>, .out = out.on_host(offset), .count = count, .start = 0.1, .end = 97};
      launch(test::cpu(), linspace);
      linspace.out = out.on_gpu(offset);
      launch(test::gpu(), linspace);
      ASSERT_TRUE(out.agree()) << "linspace " << count << " " << offset;
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
