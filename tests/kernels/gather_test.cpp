#include <cstdint>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/gather.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Rng;

template <class T>
class ScatterAddOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(ScatterAddOf, Types);

TYPED_TEST(ScatterAddOf, AddsOneElementPerRow) {
  using T = TypeParam;
  Rng rng(83);
  for (const auto& [outer, size, inner] :
       std::vector<std::tuple<int, int, int>>{{1, 1, 1}, {1, 5, 1}, {3, 4, 5}, {0, 3, 2}, {2, 3, 0}, {400, 3, 101}}) {
    const std::vector<T> in = test::random_values<T>(rng, outer * inner, 0, 3);
    std::vector<std::int64_t> index(in.size());
    for (std::int64_t& i : index)
      i = test::whole_between(rng, 0, size - 1);
    std::vector<T> out(static_cast<std::size_t>(outer * size * inner), T(1));
    std::vector<T> expected = out;
    for (int o = 0; o < outer; ++o) {
      for (int i = 0; i < inner; ++i) {
        const auto row = static_cast<std::size_t>(o * inner + i);
        T& target = expected[static_cast<std::size_t>((o * size + index[row]) * inner + i)];
        target = static_cast<T>(target + in[row]);
      }
    }
    ScatterAdd kernel{.dtype = dtype_of<T>,
                      .dim_stride = inner,
                      .dim_size = size,
                      .loop = test::loop_of({outer, inner, 1}),
                      .out = {out.data(), {size * inner, 1, 0}},
                      .index = {index.data(), {inner, 1, 0}},
                      .in = {const_cast<T*>(in.data()), {inner, 1, 0}}};
    if (kernel.loop.numel() > 0) launch(test::cpu(), kernel);
    EXPECT_EQ(out, expected);
  }
}

}  // namespace
}  // namespace tandem::kernels
