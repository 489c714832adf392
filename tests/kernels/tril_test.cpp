#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/tril.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Rng;

struct Sizes {
  std::int64_t outer, rows, columns;
};

constexpr Sizes kSizes[] = {{1, 1, 1}, {1, 3, 3}, {2, 3, 5}, {3, 7, 2}, {0, 3, 2}, {2, 0, 2}, {2, 3, 0}, {2, 300, 257}};

template <class T>
void expect_equals_naive(const Sizes& sizes, std::int64_t diagonal, Accumulate accumulate) {
  SCOPED_TRACE(std::to_string(sizes.outer) + " " + std::to_string(sizes.rows) + " " + std::to_string(sizes.columns) +
               " diagonal " + std::to_string(diagonal));
  Rng rng(3);
  const std::int64_t count = sizes.outer * sizes.rows * sizes.columns;
  const auto in = test::random_values<T>(rng, count, -4, 4);
  auto out = test::random_values<T>(rng, count, -4, 4);
  std::vector<T> expected = out;
  for (std::int64_t o = 0; o < sizes.outer; ++o) {
    for (std::int64_t i = 0; i < sizes.rows; ++i) {
      for (std::int64_t j = 0; j < sizes.columns; ++j) {
        const auto at = static_cast<std::size_t>((o * sizes.rows + i) * sizes.columns + j);
        const T kept = j - i <= diagonal ? in[at] : T(0);
        expected[at] = accumulate == Accumulate::yes ? static_cast<T>(expected[at] + kept) : kept;
      }
    }
  }
  launch(test::cpu(), Tril{.dtype = dtype_of<T>,
                           .accumulate = accumulate,
                           .outer = sizes.outer,
                           .rows = sizes.rows,
                           .columns = sizes.columns,
                           .diagonal = diagonal,
                           .in = in.data(),
                           .out = out.data()});
  EXPECT_EQ(out, expected);
}

TEST(TrilKernel, EqualsTheNaiveLoop) {
  for (const Sizes& sizes : kSizes) {
    for (const std::int64_t diagonal :
         {-sizes.rows, std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, sizes.columns}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        expect_equals_naive<float>(sizes, diagonal, accumulate);
        expect_equals_naive<double>(sizes, diagonal, accumulate);
      }
      expect_equals_naive<std::int64_t>(sizes, diagonal, Accumulate::no);
      expect_equals_naive<std::uint8_t>(sizes, diagonal, Accumulate::no);
    }
  }
}

TEST(TrilKernel, DropsWhatIsNotANumber) {
  const std::vector<float> in{1, NAN, INFINITY, NAN};
  std::vector<float> out(4, 7);
  launch(test::cpu(),
         Tril{.dtype = DType::f32, .outer = 1, .rows = 2, .columns = 2, .in = in.data(), .out = out.data()});
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[1], 0);
  EXPECT_EQ(out[2], INFINITY);
  EXPECT_TRUE(std::isnan(out[3]));
}

}  // namespace
}  // namespace tandem::kernels
