#include <cmath>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/index.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Rng;

struct Cube {
  std::int64_t outer, size, count, inner;
};
const Cube kCubes[] = {{1, 1, 1, 1}, {1, 5, 7, 1}, {3, 4, 2, 5}, {2, 9, 0, 3},
                       {0, 3, 2, 2}, {2, 3, 4, 0}, {1, 2, 9, 8}, {1, 64, 5000, 33}};

TEST(IndexSelect, TakesRowsOfAnySize) {
  Rng rng(73);
  for (const auto& [outer, size, count, inner] : kCubes) {
    std::vector<float> in(static_cast<std::size_t>(outer * size * inner));
    std::iota(in.begin(), in.end(), 0.0f);
    std::vector<std::int64_t> index(static_cast<std::size_t>(count));
    for (std::int64_t& i : index)
      i = test::whole_between(rng, 0, size - 1);
    std::vector<float> out(static_cast<std::size_t>(outer * count * inner), -1);
    launch(test::cpu(), IndexSelect{.out = out.data(),
                                    .in = in.data(),
                                    .index = index.data(),
                                    .outer = outer,
                                    .size = size,
                                    .count = count,
                                    .inner_bytes = inner * 4});
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t k = 0; k < inner; ++k) {
          ASSERT_EQ(out[static_cast<std::size_t>((o * count + i) * inner + k)],
                    in[static_cast<std::size_t>((o * size + index[static_cast<std::size_t>(i)]) * inner + k)]);
        }
      }
    }
  }
}

template <class T>
class IndexAddOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(IndexAddOf, Types);

TYPED_TEST(IndexAddOf, AddsRepeatedIndices) {
  using T = TypeParam;
  Rng rng(79);
  for (const auto& [outer, size, count, inner] : kCubes) {
    std::vector<T> in = test::random_values<T>(rng, outer * count * inner, 0, 3);
    std::vector<std::int64_t> index(static_cast<std::size_t>(count));
    for (std::int64_t& i : index)
      i = test::whole_between(rng, 0, size - 1);
    std::vector<T> out(static_cast<std::size_t>(outer * size * inner), T(1));
    std::vector<double> expected(out.begin(), out.end());
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t k = 0; k < inner; ++k) {
          expected[static_cast<std::size_t>((o * size + index[static_cast<std::size_t>(i)]) * inner + k)] +=
              static_cast<double>(in[static_cast<std::size_t>((o * count + i) * inner + k)]);
        }
      }
    }
    if (std::is_same_v<T, std::uint8_t>) {
      for (double& value : expected)
        value = std::fmod(value, 256);
    }
    launch(test::cpu(), IndexAdd{.dtype = dtype_of<T>,
                                 .out = out.data(),
                                 .in = in.data(),
                                 .index = index.data(),
                                 .outer = outer,
                                 .size = size,
                                 .count = count,
                                 .inner = inner});
    EXPECT_LE(test::difference(out, expected), std::is_floating_point_v<T> ? 2 * test::tolerance<T>() : 0);
  }
}

TYPED_TEST(IndexAddOf, LeavesOutWhatItIsToSkip) {
  using T = TypeParam;
  const std::vector<T> in{1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<std::int64_t> index{2, 0, 2, 1};
  std::vector<T> out(6, T(1));
  launch(test::cpu(), IndexAdd{.dtype = dtype_of<T>,
                               .out = out.data(),
                               .in = in.data(),
                               .index = index.data(),
                               .outer = 1,
                               .size = 3,
                               .count = 4,
                               .inner = 2,
                               .skip = 2});
  EXPECT_EQ(out, (std::vector<T>{4, 5, 8, 9, 1, 1}));
}

}  // namespace
}  // namespace tandem::kernels
