#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/kernels/matmul.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Rng;

struct Sizes {
  std::int64_t m, n, k;
};

enum class Order { rows, columns };  // which dimension is dense

struct Case {
  Sizes sizes{};
  Order a = Order::rows, b = Order::rows;
  Accumulate accumulate = Accumulate::no;
  bool bias = false, relu = false;
  std::int64_t gap = 0;  // between rows (or columns) of each matrix
};

// A matrix whose element (i, j) is at i * row_stride + j * col_stride.
template <class T>
struct Stored {
  std::vector<T> memory;
  std::int64_t row_stride, col_stride;
  Stored(Rng& rng, std::int64_t rows, std::int64_t cols, Order order, std::int64_t gap)
      : row_stride(order == Order::rows ? cols + gap : 1), col_stride(order == Order::rows ? 1 : rows + gap) {
    const std::int64_t lines = order == Order::rows ? rows : cols;
    memory = test::random_values<T>(rng, lines * std::max(row_stride, col_stride) + 1);
  }
  double at(std::int64_t i, std::int64_t j) const {
    return static_cast<double>(memory[static_cast<std::size_t>(i * row_stride + j * col_stride)]);
  }
  Matrix matrix() const { return {memory.data(), row_stride, col_stride}; }
};

template <class T>
void expect_right(const Case& c, Rng& rng) {
  const auto [m, n, k] = c.sizes;
  const Stored<T> a(rng, m, k, c.a, c.gap);
  const Stored<T> b(rng, k, n, c.b, c.gap);
  const std::int64_t out_stride = n + c.gap;
  std::vector<T> out = test::random_values<T>(rng, m * out_stride + 1);
  const std::vector<T> bias = test::random_values<T>(rng, n);
  std::vector<double> expected(out.begin(), out.end());
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < k; ++p)
        sum += a.at(i, p) * b.at(p, j);
      double& value = expected[static_cast<std::size_t>(i * out_stride + j)];
      value = sum + (c.accumulate == Accumulate::yes ? value : 0) +
              (c.bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0);
      if (c.relu && value < 0) value = 0;
    }
  }
  launch(test::cpu(), Matmul{.dtype = dtype_of<T>,
                             .accumulate = c.accumulate,
                             .m = m,
                             .n = n,
                             .k = k,
                             .a = a.matrix(),
                             .b = b.matrix(),
                             .out = out.data(),
                             .out_stride = out_stride,
                             .after = {.bias = c.bias ? bias.data() : nullptr, .relu = c.relu}});
  ASSERT_LE(test::difference(out, expected, std::sqrt(static_cast<double>(k)) / 3), 2 * test::tolerance<T>())
      << m << " x " << n << " x " << k << (c.a == Order::rows ? " a by rows" : " a by columns")
      << (c.b == Order::rows ? " b by rows" : " b by columns") << " accumulate " << (c.accumulate == Accumulate::yes)
      << " bias " << c.bias << " relu " << c.relu << " gap " << c.gap;
}

template <class T>
class MatmulOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(MatmulOf, Types);

// Plain loops end and blocked ones begin at 4096 multiply-adds. 64 columns are one strip of a small product, 16 rows
// one step of a cut.
const Sizes kSizes[] = {{1, 1, 1},     {1, 1, 7},     {1, 9, 1},     {11, 1, 1},    {3, 5, 7},      {2, 64, 3},
                        {2, 65, 3},    {3, 127, 2},   {16, 16, 16},  {17, 16, 16},  {16, 17, 16},   {16, 16, 17},
                        {4096, 1, 1},  {1, 4097, 1},  {1, 1, 4096},  {1, 1, 4097},  {1, 5000, 3},   {5000, 1, 3},
                        {33, 65, 129}, {1, 300, 300}, {300, 1, 300}, {300, 300, 1}, {130, 70, 200}, {257, 131, 63}};

TYPED_TEST(MatmulOf, AgreesWithTheDoubleLoopInAllStorageOrders) {
  Rng rng(17);
  for (const Sizes& sizes : kSizes) {
    for (const Order a : {Order::rows, Order::columns}) {
      for (const Order b : {Order::rows, Order::columns}) {
        expect_right<TypeParam>({.sizes = sizes, .a = a, .b = b}, rng);
        expect_right<TypeParam>({.sizes = sizes, .a = a, .b = b, .accumulate = Accumulate::yes, .gap = 5}, rng);
        expect_right<TypeParam>({.sizes = sizes, .a = a, .b = b, .bias = true, .relu = true, .gap = 1}, rng);
      }
    }
  }
}

TYPED_TEST(MatmulOf, AgreesWithTheDoubleLoopOnRandomSizes) {
  Rng rng(19);
  for (int round = 0; round < 150; ++round) {
    const std::int64_t most = round % 3 == 0 ? 90 : 20;
    expect_right<TypeParam>({.sizes = {test::whole_between(rng, 1, most), test::whole_between(rng, 1, most),
                                       test::whole_between(rng, 1, most)},
                             .a = static_cast<Order>(rng() % 2),
                             .b = static_cast<Order>(rng() % 2),
                             .accumulate = static_cast<Accumulate>(rng() % 2),
                             .bias = rng() % 2 == 0,
                             .relu = rng() % 2 == 0,
                             .gap = test::whole_between(rng, 0, 3)},
                            rng);
  }
}

TYPED_TEST(MatmulOf, WorksAtSeveralHundred) {
  Rng rng(23);
  expect_right<TypeParam>({.sizes = {320, 450, 517}, .bias = true}, rng);
  expect_right<TypeParam>({.sizes = {450, 320, 301}, .a = Order::columns, .b = Order::columns}, rng);
}

TYPED_TEST(MatmulOf, NothingToSumGivesZerosAndTheEpilogue) {
  Rng rng(29);
  for (const Sizes& sizes : {Sizes{3, 4, 0}, Sizes{1, 1, 0}, Sizes{200, 300, 0}}) {
    for (const bool bias : {false, true}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        expect_right<TypeParam>({.sizes = sizes, .accumulate = accumulate, .bias = bias, .relu = bias}, rng);
      }
    }
  }
}

TYPED_TEST(MatmulOf, EmptyResultsAreLeftAlone) {
  Rng rng(31);
  for (const Sizes& sizes : {Sizes{0, 4, 3}, Sizes{4, 0, 3}, Sizes{0, 0, 0}, Sizes{0, 5000, 5000}}) {
    expect_right<TypeParam>({.sizes = sizes, .bias = true}, rng);
  }
}

// Without accumulate the destination must not be read: it may hold a NaN of uninitialised memory.
TYPED_TEST(MatmulOf, OverwritesNaN) {
  for (const std::int64_t size : {5, 40}) {
    const std::vector<TypeParam> ones(static_cast<std::size_t>(size * size), 1);
    std::vector<TypeParam> out(ones.size(), std::numeric_limits<TypeParam>::quiet_NaN());
    launch(test::cpu(), Matmul{.dtype = dtype_of<TypeParam>,
                               .m = size,
                               .n = size,
                               .k = size,
                               .a = {ones.data(), size, 1},
                               .b = {ones.data(), size, 1},
                               .out = out.data(),
                               .out_stride = size});
    EXPECT_EQ(out, std::vector<TypeParam>(ones.size(), static_cast<TypeParam>(size)));
  }
}

TYPED_TEST(MatmulOf, PassesNaNOnThroughRelu) {
  for (const std::int64_t size : {5, 40}) {
    std::vector<TypeParam> a(static_cast<std::size_t>(size * size), 1);
    const std::vector<TypeParam> b = a;
    a[0] = std::numeric_limits<TypeParam>::quiet_NaN();
    std::vector<TypeParam> out(a.size());
    launch(test::cpu(), Matmul{.dtype = dtype_of<TypeParam>,
                               .m = size,
                               .n = size,
                               .k = size,
                               .a = {a.data(), size, 1},
                               .b = {b.data(), size, 1},
                               .out = out.data(),
                               .out_stride = size,
                               .after = {.relu = true}});
    for (std::int64_t j = 0; j < size; ++j)
      EXPECT_TRUE(std::isnan(out[static_cast<std::size_t>(j)])) << size;
    EXPECT_EQ(out[static_cast<std::size_t>(size)], static_cast<TypeParam>(size)) << "rows do not mix";
  }
}

// A NaN from a ReLU is not <= 0, in its bits either, so the gradient passes, like in PyTorch's threshold_backward.
TYPED_TEST(MatmulOf, NotANumberInAMaskLetsTheGradientThrough) {
  for (const std::int64_t size : {3, 5, 40}) {
    const std::vector<TypeParam> ones(static_cast<std::size_t>(size * size), 1);
    std::vector<TypeParam> mask(ones.size(), 0);
    mask[1] = std::numeric_limits<TypeParam>::quiet_NaN();
    mask[2] = 1;
    std::vector<TypeParam> out(ones.size());
    const auto stride = static_cast<std::size_t>(relu_bits_stride(size));
    std::vector<std::uint8_t> bits(stride * static_cast<std::size_t>(size));
    Matmul kernel{.dtype = dtype_of<TypeParam>,
                  .m = size,
                  .n = size,
                  .k = size,
                  .a = {ones.data(), size, 1},
                  .b = {ones.data(), size, 1},
                  .out = out.data(),
                  .out_stride = size,
                  .after = {.relu_mask = mask.data()}};
    launch(test::cpu(), kernel);
    std::vector<TypeParam> expected(ones.size(), 0);
    expected[1] = expected[2] = static_cast<TypeParam>(size);
    EXPECT_EQ(out, expected) << size;

    std::vector<TypeParam> a = ones;
    a[0] = std::numeric_limits<TypeParam>::quiet_NaN();
    kernel.a.data = a.data();
    kernel.after.relu = true;
    kernel.after.relu_mask = nullptr;
    kernel.after.relu_bits = bits.data();
    launch(test::cpu(), kernel);
    EXPECT_TRUE(std::isnan(out[0])) << size;
    EXPECT_EQ(bits[0] & 7, 7) << size;
  }
}

TEST(Matmul, RefusesIntegers) {
  const std::int64_t value = 1;
  std::int64_t out = 0;
  EXPECT_THROW(launch(test::cpu(), Matmul{.dtype = DType::i64,
                                          .m = 1,
                                          .n = 1,
                                          .k = 1,
                                          .a = {&value, 1, 1},
                                          .b = {&value, 1, 1},
                                          .out = &out,
                                          .out_stride = 1}),
               DTypeError);
}

}  // namespace
}  // namespace tandem::kernels
