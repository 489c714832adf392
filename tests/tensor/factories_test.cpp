#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;
using Ints = std::vector<std::int64_t>;
using Floats = std::vector<float>;

constexpr DType kAllTypes[] = {DType::f32, DType::f64, DType::i64, DType::i32, DType::u8, DType::boolean};
constexpr std::int64_t kBig = std::int64_t{1} << 61;

TEST(Factories, PlaceWhatWasAskedFor) {
  for (const DType dtype : kAllTypes) {
    for (const Shape& sizes : {Shape{}, Shape{0}, Shape{3}, Shape{2, 0, 5}, Shape{2, 3, 4}}) {
      for (const char* device : {"cpu:0", "cpu:3"}) {
        const Tensor tensor = empty(sizes, {.dtype = dtype, .device = device});
        EXPECT_EQ(tensor.shape(), sizes);
        EXPECT_EQ(tensor.strides(), contiguous_strides(sizes));
        EXPECT_EQ(tensor.dtype(), dtype);
        EXPECT_EQ(tensor.device(), Device(device));
        EXPECT_EQ(tensor.numel(), sizes.numel());
        EXPECT_TRUE(tensor.is_contiguous());
        EXPECT_FALSE(tensor.requires_grad());
      }
    }
  }
}

TEST(Factories, FillInEveryType) {
  for (const DType dtype : kAllTypes) {
    EXPECT_EQ(zeros({2, 3}, {.dtype = dtype}).to_vector<double>(), std::vector<double>(6, 0));
    EXPECT_EQ(ones({2, 3}, {.dtype = dtype}).to_vector<double>(), std::vector<double>(6, 1));
    EXPECT_EQ(full({}, 1, {.dtype = dtype}).item(), 1);
  }
  EXPECT_EQ(full({2}, 0.1).to_vector<float>(), (Floats{0.1f, 0.1f}));
  EXPECT_EQ(full({2}, 0.1, {.dtype = DType::f64}).to_vector<double>(), (std::vector<double>{0.1, 0.1}));
  EXPECT_EQ(full({1}, -7, {.dtype = DType::i32}).item<std::int32_t>(), -7);
  EXPECT_TRUE(std::isnan(full({1}, NAN).item()));
}

TEST(Factories, IntegersTakeWhatFits) {
  EXPECT_EQ(full({1}, 2.75, {.dtype = DType::i64}).item(), 2) << "the fraction is dropped";
  EXPECT_EQ(full({1}, 255.9, {.dtype = DType::u8}).item(), 255);
  EXPECT_EQ(full({1}, -0x1p63, {.dtype = DType::i64}).item<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(message_of<DTypeError>([] { full({2}, 1e30, {.dtype = DType::i64}); }),
            "fill: 1e+30 does not fit into i64");
  EXPECT_THROW(full({1}, 0x1p63, {.dtype = DType::i64}), DTypeError);
  EXPECT_THROW(full({1}, NAN, {.dtype = DType::i32}), DTypeError);
  EXPECT_THROW(full({1}, 256, {.dtype = DType::u8}), DTypeError);
  EXPECT_THROW(full({1}, -1, {.dtype = DType::u8}), DTypeError);
  Tensor x = zeros({1}, {.dtype = DType::i32});
  EXPECT_THROW(x.fill_(3e9), DTypeError);
}

TEST(Factories, NumbersHaveTheTypeThatPyTorchGivesThem) {
  EXPECT_EQ(arange(0, 10, 1).dtype(), DType::i64);
  EXPECT_EQ(arange(0, 10).dtype(), DType::i64);
  EXPECT_EQ(arange(10.0).dtype(), DType::f32);
  EXPECT_EQ(arange(0, 1, 0.25).dtype(), DType::f32);
  EXPECT_EQ(arange(3, {.dtype = DType::f64}).dtype(), DType::f64);
  EXPECT_EQ(tensor(3).dtype(), DType::i64);
  EXPECT_EQ(tensor(3.0).dtype(), DType::f32);
  EXPECT_EQ(tensor(true).dtype(), DType::boolean);
  EXPECT_EQ(tensor(0.1, {.dtype = DType::f64}).item(), 0.1);
  EXPECT_EQ(tensor({0.1, 0.2}, {.dtype = DType::f64}).to_vector<double>(), (std::vector<double>{0.1, 0.2}));
  EXPECT_TRUE(tensor(1.0, {.requires_grad = true}).is_leaf());
  EXPECT_EQ(tensor(1.0).dim(), 0);
  EXPECT_EQ(full({2}, 3).dtype(), DType::i64);
  EXPECT_EQ(full({2}, true).dtype(), DType::boolean);
  EXPECT_EQ(full({2}, 3.F).dtype(), DType::f32);
}

TEST(Factories, WhatOptionsSayCounts) {
  const Tensor x = from_data(std::vector<std::int64_t>{1, 2}, {2}, {.dtype = DType::f64, .requires_grad = true});
  EXPECT_EQ(x.dtype(), DType::f64);
  EXPECT_TRUE(x.is_leaf() && x.requires_grad());
  EXPECT_EQ(randint(0, 4, {3}, {.device = "cpu:1"}).dtype(), DType::i64);
}

TEST(Factories, IntegersBeyondWhatADoubleCountsAreRefused) {
  EXPECT_THROW(arange(std::int64_t{1} << 60, (std::int64_t{1} << 60) + 3), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([] { full({1}, (std::int64_t{1} << 53) + 1); }),
            "9007199254740993 is beyond 2^53, what is counted exactly");
  EXPECT_EQ(tensor((std::int64_t{1} << 60) + 1).item<std::int64_t>(), (std::int64_t{1} << 60) + 1);
}

TEST(Factories, EmptyShapesHaveNoElements) {
  EXPECT_TRUE(zeros({0}).to_vector<float>().empty());
  EXPECT_TRUE(ones({4, 0, 2}).to_vector<float>().empty());
  EXPECT_EQ(zeros({kBig, 0, kBig}).numel(), 0) << "whatever the other sizes are";
  EXPECT_EQ(zeros({0, kBig, kBig}).numel(), 0);
}

TEST(Factories, RefuseImpossibleShapes) {
  EXPECT_EQ(message_of<ShapeError>([] { zeros({2, -1}); }), "zeros: shape [2, -1] has a negative size");
  EXPECT_THROW(zeros({kBig, 8}), ShapeError);
  EXPECT_THROW(zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
}

// Sizes whose bytes, with or without the header in front of them, overflow the range of a pointer.
TEST(Factories, BytesDoNotWrapAround) {
  EXPECT_THROW(empty({kBig}, {.dtype = DType::f64}), OutOfMemory);
  EXPECT_THROW(empty({(kBig << 1) - 1}, {.dtype = DType::f32}), OutOfMemory);
  EXPECT_THROW(empty({kBig - 1}, {.dtype = DType::f64}), OutOfMemory);
  EXPECT_THROW(empty({std::numeric_limits<std::int64_t>::max()}, {.dtype = DType::u8}), OutOfMemory);
}

TEST(Factories, RefuseDevicesThatAreNotThere) {
  EXPECT_EQ(message_of<DeviceError>([] { zeros({2}, {.device = "cpu:99"}); }),
            "device 'cpu:99': there are 8 logical CPU devices (cpu:0 to cpu:7); set TANDEM_CPU_DEVICES for more");
  EXPECT_EQ(message_of<DeviceError>([] { zeros({2}, {.device = "cuda:64"}); }), test::gpu_refusal("cuda:64"));
  EXPECT_THROW(zeros({2}, {.device = Device(DeviceType::cpu, -1)}), DeviceError);
}

TEST(Factories, UseTheThreadsDeviceUnlessTold) {
  const core::DeviceScope scope("cpu:2");
  EXPECT_EQ(zeros({1}).device(), Device("cpu:2"));
  EXPECT_EQ(randperm(3).device(), Device("cpu:2"));
  EXPECT_EQ(tensor({1.0, 2.0}).device(), Device("cpu:2"));
  EXPECT_EQ(zeros({1}, {.device = "cpu:1"}).device(), Device("cpu:1"));
}

TEST(Factories, GradientsAreForFloatingPoint) {
  EXPECT_TRUE(ones({2}, {.requires_grad = true}).requires_grad());
  EXPECT_TRUE(rand({2}, {.dtype = DType::f64, .requires_grad = true}).is_leaf());
  EXPECT_EQ(message_of<DTypeError>([] { zeros({2}, {.dtype = DType::i64, .requires_grad = true}); }),
            "requires_grad_: only floating point tensors have gradients, got i64");
}

TEST(Factories, LikeTakesShapeTypeAndDevice) {
  const Tensor model = zeros({3, 2}, {.dtype = DType::f64, .device = "cpu:1", .requires_grad = true}).t();
  for (const Tensor& like : {empty_like(model), zeros_like(model), ones_like(model)}) {
    EXPECT_EQ(like.shape(), (Shape{2, 3}));
    EXPECT_EQ(like.dtype(), DType::f64);
    EXPECT_EQ(like.device(), Device("cpu:1"));
    EXPECT_TRUE(like.is_contiguous());
    EXPECT_FALSE(like.requires_grad()) << "as in PyTorch";
  }
  EXPECT_EQ(ones_like(model).to_vector<double>(), std::vector<double>(6, 1));
}

TEST(Factories, EyeIsTheIdentity) {
  EXPECT_EQ(eye(3).to_vector<float>(), (Floats{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(eye(1, {.dtype = DType::i64}).to_vector<std::int64_t>(), (Ints{1}));
  EXPECT_EQ(eye(0).shape(), (Shape{0, 0}));
  EXPECT_THROW(eye(-1), ShapeError);
}

TEST(Arange, CountsUp) {
  EXPECT_EQ(arange(4).dtype(), DType::i64);
  EXPECT_EQ(arange(4).to_vector<std::int64_t>(), (Ints{0, 1, 2, 3}));
  EXPECT_EQ(arange(0).numel(), 0);
  EXPECT_EQ(arange(1, 3, 0.5).to_vector<float>(), (Floats{1, 1.5, 2, 2.5})) << "the end is not included";
  EXPECT_EQ(arange(2, 5).to_vector<std::int64_t>(), (Ints{2, 3, 4}));
  EXPECT_EQ(arange(5, 0, -2).to_vector<float>(), (Floats{5, 3, 1}));
  EXPECT_EQ(arange(3, 3, 1).numel(), 0);
  EXPECT_EQ(arange(2, 8, 3, {.dtype = DType::u8}).to_vector<std::int64_t>(), (Ints{2, 5}));
}

TEST(Arange, RefusesWhatNeverEnds) {
  EXPECT_EQ(message_of<ConfigError>([] { arange(0, 3, -1); }), "arange: 0 to 3 by -1 never ends");
  EXPECT_THROW(arange(0, 3, 0), ConfigError);
  EXPECT_THROW(arange(3, 0, 1), ConfigError);
  EXPECT_THROW(arange(0, INFINITY, 1), ConfigError);
  EXPECT_THROW(arange(NAN, 1, 1), ConfigError);
  EXPECT_THROW(arange(-1), ConfigError);
  EXPECT_THROW(arange(0, 1e30, 1), ConfigError);
  EXPECT_THROW(arange(0, 1e18, 1), OutOfMemory);
}

TEST(TensorFromValues, TakesItsTypeFromThem) {
  EXPECT_EQ(tensor({1.5, 2.0}).dtype(), DType::f32);
  EXPECT_EQ(tensor({1.5f, 2.0f}).dtype(), DType::f32);
  EXPECT_EQ(tensor({1, 2}).dtype(), DType::i64);
  EXPECT_EQ(tensor({1L, 2L}).dtype(), DType::i64);
  EXPECT_EQ(tensor({true, false}).dtype(), DType::boolean);
  EXPECT_EQ(tensor({1.5, -2.0}).to_vector<float>(), (Floats{1.5f, -2}));
  EXPECT_EQ(tensor({3, -4}).to_vector<std::int64_t>(), (Ints{3, -4}));
  EXPECT_EQ(tensor({true, false}).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(tensor({std::numeric_limits<std::int64_t>::max()}).item<std::int64_t>(),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(tensor({7}).shape(), (Shape{1})) << "a list of one is no scalar";
}

TEST(TensorFromValues, OneNumberIsAScalar) {
  EXPECT_EQ(tensor(1.5).shape(), Shape());
  EXPECT_EQ(tensor(1.5).dtype(), DType::f32);
  EXPECT_EQ(tensor(1.5).item(), 1.5);
}

TEST(FromData, CopiesTheValuesInTheirType) {
  std::vector<double> values{1, 2, 3, 4, 5, 6};
  const Tensor made = from_data(values, {2, 3});
  values[0] = 99;
  EXPECT_EQ(made.dtype(), DType::f64);
  EXPECT_EQ(made.to_vector<double>(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(from_data(Ints{1, 2}).shape(), (Shape{2}));
  EXPECT_EQ(from_data(std::vector<std::uint8_t>{1, 255}).to_vector<std::int64_t>(), (Ints{1, 255}));
  EXPECT_EQ(from_data(std::vector<std::int32_t>{-1}, {}).shape(), Shape());
  const bool flags[] = {true, false};
  EXPECT_EQ(from_data(std::span<const bool>(flags), {2}).dtype(), DType::boolean);
  EXPECT_EQ(from_data(Floats{}, {0, 3}).numel(), 0);
  EXPECT_EQ(from_data(Floats{1}, {1}, {.device = "cpu:1"}).device(), Device("cpu:1"));
  EXPECT_TRUE(from_data(Floats{1}, {1}, {.requires_grad = true}).requires_grad());
}

TEST(FromData, NeedsAsManyValuesAsElements) {
  EXPECT_EQ(message_of<ShapeError>([] { from_data(Floats{1, 2, 3}, {2, 2}); }),
            "from_data: shape [2, 2] has 4 elements, got 3 values");
  EXPECT_THROW(from_data(Floats{1, 2, 3}, {2}), ShapeError);
  EXPECT_THROW(from_data(Floats{}, {}), ShapeError);
  EXPECT_THROW(from_data(Floats{1}, {-1}), ShapeError);
  EXPECT_THROW(from_data(Floats{}, {kBig, 8}), ShapeError);
}

TEST(TensorFromValues, ANumberThatAnIntegerTypeDoesNotHoldIsRefused) {
  EXPECT_EQ(message_of<DTypeError>([] { tensor({7, 300}, {.dtype = DType::u8}); }),
            "tensor: 300 does not fit into u8 (element 1)");
  EXPECT_EQ(message_of<DTypeError>([] { tensor(-1, {.dtype = DType::u8}); }), "tensor: -1 does not fit into u8");
  EXPECT_EQ(message_of<DTypeError>([] { tensor({3'000'000'000}, {.dtype = DType::i32}); }),
            "tensor: 3000000000 does not fit into i32 (element 0)");
  EXPECT_EQ(message_of<DTypeError>([] { tensor(NAN, {.dtype = DType::i64}); }), "tensor: nan does not fit into i64");
  EXPECT_THROW(tensor({1e30}, {.dtype = DType::i64}), DTypeError);
  EXPECT_EQ(tensor({0.0, 255.9}, {.dtype = DType::u8}).to_vector<std::int64_t>(), (Ints{0, 255}));
  EXPECT_EQ(tensor({INT32_MIN, INT32_MAX}, {.dtype = DType::i32}).to_vector<std::int64_t>(),
            (Ints{INT32_MIN, INT32_MAX}));
  EXPECT_TRUE(tensor(300, {.dtype = DType::boolean}).item<bool>());
}

TEST(FromData, ANumberThatAnIntegerTypeDoesNotHoldIsRefused) {
  EXPECT_EQ(message_of<DTypeError>([] { from_data(std::vector<int>{300}, {1}, {.dtype = DType::u8}); }),
            "from_data: 300 does not fit into u8 (element 0)");
  const Ints values{1, 2, -1};
  EXPECT_EQ(message_of<DTypeError>([&] { from_data(values, {3}, {.dtype = DType::u8}); }),
            "from_data: -1 does not fit into u8 (element 2)");
  EXPECT_EQ(message_of<DTypeError>([] { from_data(Floats{1, -INFINITY}, {2}, {.dtype = DType::i32}); }),
            "from_data: -inf does not fit into i32 (element 1)");
  EXPECT_EQ(from_data(Floats{-0.5F, 1.5F}, {2}, {.dtype = DType::i64}).to_vector<std::int64_t>(), (Ints{0, 1}));
  EXPECT_EQ(from_data(std::vector<std::uint8_t>{0, 200}, {2}, {.dtype = DType::f32}).to_vector<float>(),
            (Floats{0, 200}));
  EXPECT_TRUE(from_data(std::vector<double>{1}, {1}, {.dtype = DType::f32, .requires_grad = true}).is_leaf());
}

TEST(Linspace, ANumberThatAnIntegerTypeDoesNotHoldIsRefused) {
  EXPECT_EQ(message_of<DTypeError>([] { linspace(0, 300, 2, {.dtype = DType::u8}); }),
            "linspace: 300 does not fit into u8");
  EXPECT_EQ(message_of<DTypeError>([] { linspace(-1, 5, 2, {.dtype = DType::u8}); }),
            "linspace: -1 does not fit into u8");
  EXPECT_EQ(linspace(300, 0, 0, {.dtype = DType::u8}).numel(), 0);
}

TEST(Arange, ANumberThatAnIntegerTypeDoesNotHoldIsRefused) {
  EXPECT_EQ(message_of<DTypeError>([] { arange(250, 260, 2, {.dtype = DType::u8}); }),
            "arange: 258 does not fit into u8");
  EXPECT_THROW(arange(0, -2, -1, {.dtype = DType::u8}), DTypeError);
  EXPECT_EQ(arange(256, {.dtype = DType::u8}).numel(), 256);
}

TEST(FromData, TakesAVectorOfBools) {
  const std::vector<bool> flags{true, false, false, true};
  const Tensor mask = from_data(flags, {2, 2});
  EXPECT_EQ(mask.dtype(), DType::boolean);
  EXPECT_EQ(mask.to_vector<bool>(), flags);
  EXPECT_EQ(from_data(mask.to_vector<bool>()).shape(), (Shape{4}));
  EXPECT_EQ(from_data(flags, {4}, {.dtype = DType::f32}).to_vector<float>(), (Floats{1, 0, 0, 1}));
  EXPECT_TRUE(from_data(std::vector<bool>{true}, {}, {.dtype = DType::f64, .requires_grad = true}).requires_grad());
  EXPECT_THROW(from_data(flags, {3}), ShapeError);
}

TEST(Factories, AShapeThatCannotBeNamesTheFunction) {
  EXPECT_EQ(message_of<ShapeError>([] { full({-1}, 2); }), "full: shape [-1] has a negative size");
  EXPECT_EQ(message_of<ShapeError>([] { ones({2, -3}); }), "ones: shape [2, -3] has a negative size");
  EXPECT_EQ(message_of<ShapeError>([] { empty({-1}); }), "empty: shape [-1] has a negative size");
  EXPECT_EQ(message_of<ShapeError>([] { rand({-1}); }), "rand: shape [-1] has a negative size");
  EXPECT_EQ(message_of<ShapeError>([] { randn({-1}); }), "randn: shape [-1] has a negative size");
  EXPECT_EQ(message_of<ShapeError>([] { randint(0, 2, {-1}); }), "randint: shape [-1] has a negative size");
  EXPECT_EQ(message_of<ShapeError>([] { eye(-1); }), "eye: shape [-1, -1] has a negative size");
}

}  // namespace
}  // namespace tandem
