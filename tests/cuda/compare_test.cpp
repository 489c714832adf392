#include <cstdint>
#include <limits>
#include <type_traits>

#include <gtest/gtest.h>

#include <tandem/kernels/compare.h>

#include "cuda/values.h"

namespace tandem::kernels {
namespace {

using test::Layout;
using test::Rng;
using test::Twin;

// Few different values: many are equal, 0 or NaN.
template <class T>
Twin<T> truths(Rng& rng, std::int64_t count) {
  std::vector<test::Stored<T>> values(static_cast<std::size_t>(count));
  for (auto& value : values) {
    const std::uint64_t draw = rng() % 4;
    value = static_cast<test::Stored<T>>(static_cast<float>(std::is_same_v<T, bool> ? draw % 2 : draw));
    if constexpr (is_floating_point(dtype_of<T>)) {
      if (draw == 3) value = T(std::numeric_limits<float>::quiet_NaN());
      if (draw == 2 && rng() % 2 == 0) value = T(-0.0F);
    }
  }
  return Twin<T>(values);
}

template <class T>
class CudaCompareOf : public testing::Test {};
using Types = testing::Types<float, double, BFloat16, Float16, std::int64_t, std::int32_t, std::uint8_t, bool>;
TYPED_TEST_SUITE(CudaCompareOf, Types);

TYPED_TEST(CudaCompareOf, EveryOp) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  using enum CompareOp;
  Rng rng(7);
  for (const Shape& sizes : {Shape{}, Shape{0}, Shape{7}, Shape{64}, Shape{5, 3}, Shape{2, 3, 5}, Shape{31, 64}}) {
    for (const CompareOp op : {eq, ne, lt, le, gt, ge, logical_and, logical_or, logical_xor}) {
      const Layout to = test::random_layout(rng, sizes, false);
      const Layout at_a = test::random_layout(rng, sizes, true);
      const Layout at_b = test::random_layout(rng, sizes, true);
      Twin<bool> out(rng, to.extent);
      Twin<T> a = truths<T>(rng, at_a.extent);
      Twin<T> b = truths<T>(rng, at_b.extent);
      Compare kernel{.op = op,
                     .dtype = dtype_of<T>,
                     .loop = test::loop_of(sizes),
                     .out = out.operand_on_host(to),
                     .a = a.operand_on_host(at_a),
                     .b = b.operand_on_host(at_b)};
      launch(test::cpu(), kernel);
      kernel.out = out.operand_on_gpu(to);
      kernel.a = a.operand_on_gpu(at_a);
      kernel.b = b.operand_on_gpu(at_b);
      launch(test::gpu(), kernel);
      ASSERT_TRUE(out.agree()) << fmt::format("{} op {}", fmt::join(sizes, " "), static_cast<int>(op));
    }
  }
}

TYPED_TEST(CudaCompareOf, Where) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  Rng rng(11);
  for (const Shape& sizes : test::awkward_shapes()) {
    const Layout to = test::random_layout(rng, sizes, false);
    const Layout at_condition = test::random_layout(rng, sizes, true);
    const Layout at_a = test::random_layout(rng, sizes, true);
    const Layout at_b = test::random_layout(rng, sizes, true);
    Twin<T> out(rng, to.extent);
    Twin<bool> condition = truths<bool>(rng, at_condition.extent);
    Twin<T> a = truths<T>(rng, at_a.extent);
    Twin<T> b = truths<T>(rng, at_b.extent);
    Where kernel{.item_size = sizeof(T),
                 .loop = test::loop_of(sizes),
                 .out = out.operand_on_host(to),
                 .condition = condition.operand_on_host(at_condition),
                 .a = a.operand_on_host(at_a),
                 .b = b.operand_on_host(at_b)};
    launch(test::cpu(), kernel);
    kernel.out = out.operand_on_gpu(to);
    kernel.condition = condition.operand_on_gpu(at_condition);
    kernel.a = a.operand_on_gpu(at_a);
    kernel.b = b.operand_on_gpu(at_b);
    launch(test::gpu(), kernel);
    ASSERT_TRUE(out.agree()) << fmt::format("{}", fmt::join(sizes, " "));
  }
}

}  // namespace
}  // namespace tandem::kernels
