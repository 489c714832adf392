#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/message.h"

// Tensors print the way PyTorch and NumPy users expect.

namespace tandem {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string text(const Tensor& tensor) { return test::as_on_cpu(to_string(tensor)); }

TEST(Print, Scalars) {
  EXPECT_EQ(text(tensor(3.25)), "tensor(3.2500)");
  EXPECT_EQ(text(tensor(3.0)), "tensor(3.)");
  EXPECT_EQ(text(tensor(-0.5)), "tensor(-0.5000)");
  EXPECT_EQ(text(full({}, 7, {.dtype = DType::i64})), "tensor(7)");
  EXPECT_EQ(text(full({}, 1, {.dtype = DType::boolean})), "tensor(true)");
  EXPECT_EQ(text(tensor(0.00012345)), "tensor(1.2345e-04)");
  EXPECT_EQ(text(tensor(kNaN)), "tensor(nan)");
}

TEST(Print, OneDimension) {
  EXPECT_EQ(text(tensor({1.5, 2.0, 3.25})), "tensor([1.5000, 2.0000, 3.2500])");
  EXPECT_EQ(text(tensor({1.0, 2.0, 3.0})), "tensor([1., 2., 3.])");
  EXPECT_EQ(text(tensor({7})), "tensor([7])");
  EXPECT_EQ(text(zeros({2})), "tensor([0., 0.])");
}

TEST(Print, TwoDimensions) {
  EXPECT_EQ(text(tensor({1.0, 2.5, 3.0, 4.0}).reshape({2, 2})),
            "tensor([[1.0000, 2.5000],\n"
            "        [3.0000, 4.0000]])");
  EXPECT_EQ(text(arange(6).reshape({2, 3}).t()),
            "tensor([[0, 3],\n"
            "        [1, 4],\n"
            "        [2, 5]])");
  EXPECT_EQ(text(tensor({5}).reshape({1, 1})), "tensor([[5]])");
}

TEST(Print, ThreeDimensions) {
  EXPECT_EQ(text(arange(8).reshape({2, 2, 2})),
            "tensor([[[0, 1],\n"
            "         [2, 3]],\n"
            "\n"
            "        [[4, 5],\n"
            "         [6, 7]]])");
}

TEST(Print, FourDimensions) {
  EXPECT_EQ(text(arange(4).reshape({2, 1, 1, 2})),
            "tensor([[[[0, 1]]],\n"
            "\n"
            "\n"
            "        [[[2, 3]]]])");
}

TEST(Print, IntegersAreAligned) {
  EXPECT_EQ(text(tensor({1, -20, 300})), "tensor([  1, -20, 300])");
  EXPECT_EQ(text(tensor({1, -20, 300, 4}).reshape({2, 2})),
            "tensor([[  1, -20],\n"
            "        [300,   4]])");
}

TEST(Print, LargeIntegersKeepTheirDigits) {
  EXPECT_EQ(text(tensor({std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()})),
            "tensor([ 9223372036854775807, -9223372036854775808])");
  EXPECT_EQ(text(tensor({9007199254740993})), "tensor([9007199254740993])");
}

TEST(Print, Bools) {
  EXPECT_EQ(text(tensor({true, false})), "tensor([ true, false])");
  EXPECT_EQ(text(tensor({true, true})), "tensor([true, true])");
  EXPECT_EQ(text(tensor({true, false, false, true}).reshape({2, 2})),
            "tensor([[ true, false],\n"
            "        [false,  true]])");
}

TEST(Print, NegativeNumbersAreAligned) {
  EXPECT_EQ(text(tensor({-1.5, 2.0})), "tensor([-1.5000,  2.0000])");
  EXPECT_EQ(text(tensor({-1.0, 20.0})), "tensor([-1., 20.])");
}

TEST(Print, MixedMagnitudes) {
  EXPECT_EQ(text(tensor({1.0, 1000.0, 123456.0})), "tensor([     1.,   1000., 123456.])");
  EXPECT_EQ(text(tensor({0.5, 123.25})), "tensor([  0.5000, 123.2500])");
  EXPECT_EQ(text(tensor({0.5, 1234.5})), "tensor([5.0000e-01, 1.2345e+03])");
  EXPECT_EQ(text(tensor({12345.5, 54321.25})), "tensor([12345.5000, 54321.2500])");
  EXPECT_EQ(text(tensor({1e10, 1.0})), "tensor([1.0000e+10, 1.0000e+00])");
  EXPECT_EQ(text(tensor({0.0, 0.00025, 0.0005})), "tensor([0.0000e+00, 2.5000e-04, 5.0000e-04])");
  EXPECT_EQ(text(tensor({1e-10, -1e-10})), "tensor([ 1.0000e-10, -1.0000e-10])");
  EXPECT_EQ(text(tensor({0.0, 0.25, 0.5})), "tensor([0.0000, 0.2500, 0.5000])") << "zeros don't count";
}

TEST(Print, NaNAndInfinity) {
  EXPECT_EQ(text(tensor({1.0f, kNaN, -kInf})), "tensor([  1.,  nan, -inf])");
  EXPECT_EQ(text(tensor({0.5f, kInf})), "tensor([0.5000,    inf])");
  EXPECT_EQ(text(tensor({kNaN, kNaN})), "tensor([nan, nan])");
}

TEST(Print, NegativeZeroKeepsItsSign) { EXPECT_EQ(text(tensor({-0.0, 1.0})), "tensor([-0.,  1.])"); }

TEST(Print, Empty) {
  EXPECT_EQ(text(zeros({0})), "tensor([])");
  EXPECT_EQ(text(zeros({0, 3})), "tensor([], shape=[0, 3])");
  EXPECT_EQ(text(zeros({2, 0, 4})), "tensor([], shape=[2, 0, 4])");
  EXPECT_EQ(text(zeros({1'000'000'000, 0})), "tensor([], shape=[1000000000, 0])") << "and at once";
  EXPECT_EQ(text(zeros({0}, {.dtype = DType::u8})), "tensor([], dtype=u8)");
}

TEST(Print, LongDimensionsAreShortened) {
  EXPECT_EQ(text(arange(1001)), "tensor([   0,    1,    2, ...,  998,  999, 1000])");
  EXPECT_EQ(text(arange(40 * 40).reshape({40, 40})),
            "tensor([[   0,    1,    2, ...,   37,   38,   39],\n"
            "        [  40,   41,   42, ...,   77,   78,   79],\n"
            "        [  80,   81,   82, ...,  117,  118,  119],\n"
            "        ...,\n"
            "        [1480, 1481, 1482, ..., 1517, 1518, 1519],\n"
            "        [1520, 1521, 1522, ..., 1557, 1558, 1559],\n"
            "        [1560, 1561, 1562, ..., 1597, 1598, 1599]])");
  EXPECT_EQ(text(arange(1200).reshape({600, 2}).slice(0, 0, 600)),
            "tensor([[   0,    1],\n"
            "        [   2,    3],\n"
            "        [   4,    5],\n"
            "        ...,\n"
            "        [1194, 1195],\n"
            "        [1196, 1197],\n"
            "        [1198, 1199]])");
}

// A number that is not shown must not affect the format of the others.
TEST(Print, WhatIsLeftOutHasNoSay) {
  Tensor x = ones({2000});
  x[1000].fill_(1e20);
  EXPECT_EQ(text(x), "tensor([1., 1., 1., ..., 1., 1., 1.])");
}

TEST(Print, LongRowsAreWrapped) {
  EXPECT_EQ(text(arange(30)),
            "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
            "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])");
  EXPECT_EQ(text((arange(24).to(DType::f32) / 8.0).reshape({2, 12})),
            "tensor([[0.0000, 0.1250, 0.2500, 0.3750, 0.5000, 0.6250, 0.7500, 0.8750, 1.0000,\n"
            "         1.1250, 1.2500, 1.3750],\n"
            "        [1.5000, 1.6250, 1.7500, 1.8750, 2.0000, 2.1250, 2.2500, 2.3750, 2.5000,\n"
            "         2.6250, 2.7500, 2.8750]])");
}

TEST(Print, SaysWhatIsNotTheDefault) {
  EXPECT_EQ(text(tensor({1.5}).to(DType::f64)), "tensor([1.5000], dtype=f64)");
  EXPECT_EQ(text(tensor({1}).to(DType::i32)), "tensor([1], dtype=i32)");
  EXPECT_EQ(text(full({2}, 200, {.dtype = DType::u8})), "tensor([200, 200], dtype=u8)");
  EXPECT_EQ(text(zeros({1}, {.device = "cpu:1"})), "tensor([0.], device=cpu:1)");
  EXPECT_EQ(text(zeros({1}, {.requires_grad = true})), "tensor([0.], requires_grad=true)");
  EXPECT_EQ(text(zeros({1}, {.dtype = DType::f64, .device = "cpu:2", .requires_grad = true})),
            "tensor([0.], dtype=f64, device=cpu:2, requires_grad=true)");
}

TEST(Print, Undefined) { EXPECT_EQ(text(Tensor()), "tensor(undefined)"); }

TEST(Print, GoesToStreams) {
  std::ostringstream out;
  out << tensor({1.0, 2.0}) << '\n' << Tensor();
  EXPECT_EQ(test::as_on_cpu(out.str()), "tensor([1., 2.])\ntensor(undefined)");
}

// x86 computes 0 / 0 with the sign bit set.
TEST(Print, NaNHasNoSign) {
  const Tensor x = tensor({-kNaN, kNaN});
  EXPECT_EQ(text(x), "tensor([nan, nan])");
  EXPECT_EQ(text(x.to(DType::bf16)), "tensor([nan, nan], dtype=bf16)");
  EXPECT_EQ(text(tensor({-std::numeric_limits<double>::quiet_NaN()}, {.dtype = DType::f64})),
            "tensor([nan], dtype=f64)");
}

TEST(Messages, NaNHasNoSign) {
  using test::message_of;
  const double minus_nan = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(message_of<DTypeError>([&] { full({1}, minus_nan, {.dtype = DType::i32}); }),
            "fill: nan does not fit into i32");
  EXPECT_EQ(message_of<ValueError>([&] { tensor(-kNaN).item<std::int64_t>(); }),
            message_of<ValueError>([&] { tensor(kNaN).item<std::int64_t>(); }));
}

}  // namespace
}  // namespace tandem
