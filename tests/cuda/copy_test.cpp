#include <cstdint>
#include <type_traits>

#include <gtest/gtest.h>

#include <tandem/kernels/copy.h>

#include "cuda/values.h"

namespace tandem::kernels {
namespace {

using test::Layout;
using test::Rng;
using test::Twin;

template <class T>
class CudaCopyOf : public testing::Test {};
using Types = testing::Types<float, double, BFloat16, Float16, std::int64_t, std::int32_t, std::uint8_t, bool>;
TYPED_TEST_SUITE(CudaCopyOf, Types);

TYPED_TEST(CudaCopyOf, FromEveryType) {
  TANDEM_NEEDS_GPU();
  using Out = TypeParam;
  Rng rng(5);
  for (const Shape& sizes : {Shape{}, Shape{0}, Shape{7}, Shape{64}, Shape{5, 3}, Shape{2, 3, 5}, Shape{31, 64}}) {
    test::for_every_type([&]<class In>() {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        if (accumulate == Accumulate::yes && std::is_same_v<Out, bool>) continue;
        const Layout to = test::random_layout(rng, sizes, false);
        const Layout from = test::random_layout(rng, sizes, true);
        Twin<In> in(rng, from.extent);
        Twin<Out> out(rng, to.extent);
        Copy kernel{.in_dtype = dtype_of<In>,
                    .out_dtype = dtype_of<Out>,
                    .accumulate = accumulate,
                    .loop = test::loop_of(sizes),
                    .out = out.operand_on_host(to),
                    .in = in.operand_on_host(from)};
        launch(test::cpu(), kernel);
        kernel.out = out.operand_on_gpu(to);
        kernel.in = in.operand_on_gpu(from);
        launch(test::gpu(), kernel);
        ASSERT_TRUE(out.agree()) << fmt::format("{}", fmt::join(sizes, " "));
      }
    });
  }
}

}  // namespace
}  // namespace tandem::kernels
