#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/message.h"

// Tensors on memory provided by the user.

namespace tandem {
namespace {

using test::message_of;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

TEST(FromBlob, LooksAtTheMemoryInBothDirections) {
  Floats memory{1, 2, 3, 4, 5, 6};
  Tensor x = from_blob(memory.data(), {2, 3});
  EXPECT_EQ(x.dtype(), DType::f32);
  EXPECT_EQ(x.data<float>(), memory.data());
  memory[4] = 50;
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 2, 3, 4, 50, 6}));
  x.mul_(2);
  EXPECT_EQ(memory, (Floats{2, 4, 6, 8, 100, 12}));
  x[1].zero_();
  EXPECT_EQ(memory, (Floats{2, 4, 6, 0, 0, 0}));
}

TEST(FromBlob, TypeIsThatOfThePointer) {
  std::array<std::int64_t, 2> longs{7, 8};
  std::array<std::uint8_t, 2> bytes{7, 8};
  std::array<bool, 2> bits{true, false};
  EXPECT_EQ(from_blob(longs.data(), {2}).sum().item<std::int64_t>(), 15);
  EXPECT_EQ(from_blob(bytes.data(), {2}).dtype(), DType::u8);
  EXPECT_EQ(from_blob(bits.data(), {2}).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(message_of<DTypeError>([&] { from_blob(longs.data(), {2}, {.dtype = DType::f32}); }),
            "from_blob: the elements are i64, not f32; convert with .to()");
}

TEST(FromBlob, StridesReadColumnsAndParts) {
  Floats memory{1, 2, 3, 4, 5, 6};
  const Tensor columns = from_blob(memory.data(), {3, 2}, {1, 3}, nullptr);
  EXPECT_EQ(columns.to_vector<float>(), (Floats{1, 4, 2, 5, 3, 6}));
  EXPECT_FALSE(columns.is_contiguous());
  EXPECT_EQ(from_blob(memory.data(), {2, 2}, {0, 2}, nullptr).to_vector<float>(), (Floats{1, 3, 1, 3}));
  Tensor wide = from_blob(memory.data(), {2, 2}, {0, 2}, nullptr);
  EXPECT_THROW(wide.add_(1), ShapeError) << "rows share memory";
}

TEST(FromBlob, DeleterRunsOnceWhenTheLastHandleIsGone) {
  int deleted = 0;
  float memory[4] = {1, 2, 3, 4};
  Tensor view;
  {
    Tensor x = from_blob(memory, {4}, [&](void* data) {
      EXPECT_EQ(data, memory);
      ++deleted;
    });
    const Tensor copy = x;
    view = copy.narrow(0, 1, 2);
  }
  EXPECT_EQ(deleted, 0) << "a view still looks there";
  EXPECT_EQ(view.to_vector<float>(), (Floats{2, 3}));
  view = Tensor();
  EXPECT_EQ(deleted, 1);
}

TEST(FromBlob, DeleterWaitsForWhatBackwardSaved) {
  int deleted = 0;
  float memory[2] = {3, 4};
  const Tensor w = ones({2}, {.device = "cpu", .requires_grad = true});
  Tensor loss = (from_blob(memory, {2}, [&](void*) { ++deleted; }) * w).sum();
  EXPECT_EQ(deleted, 0);
  loss.backward();
  EXPECT_EQ(w.grad().to_vector<float>(), (Floats{3, 4}));
  EXPECT_EQ(deleted, 1) << "the graph let go of it";
}

TEST(FromBlob, CanBeALeaf) {
  Floats memory{1, 2};
  const Tensor x = from_blob(memory.data(), {2}, {.requires_grad = true});
  (x * x).sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{2, 4}));
}

TEST(FromBlob, EmptyNeedsNoMemory) {
  int deleted = 0;
  {
    const Tensor x = from_blob(static_cast<float*>(nullptr), {0, 3}, [&](void*) { ++deleted; });
  }
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(from_blob(static_cast<double*>(nullptr), {3, 0}).sum().item(), 0);
}

TEST(FromBlob, RefusesWhatCannotBeRightAndLeavesTheMemoryToTheCaller) {
  int deleted = 0;
  const auto deleter = [&](void*) { ++deleted; };
  alignas(8) std::array<std::byte, 64> memory{};
  auto* doubles = reinterpret_cast<double*>(memory.data());
  auto* crooked = reinterpret_cast<double*>(memory.data() + 4);
  EXPECT_EQ(message_of<ValueError>([&] { from_blob(static_cast<float*>(nullptr), {2, 3}, deleter); }),
            "from_blob: null has no room for [2, 3]");
  EXPECT_THAT(message_of<ValueError>([&] { from_blob(crooked, {2}, deleter); }),
              HasSubstr("is not a multiple of 8, as elements of f64 need"));
  EXPECT_EQ(message_of<ShapeError>([&] { from_blob(doubles, {2, 2}, {2}, deleter); }),
            "from_blob: strides [2] don't fit sizes [2, 2]: one each, not negative, and within what memory has");
  EXPECT_THROW(from_blob(doubles, {2}, {-1}, deleter), ShapeError);
  EXPECT_THROW(from_blob(doubles, {3, 2}, {std::int64_t{1} << 62, 1}, deleter), ShapeError);
  EXPECT_EQ(message_of<ShapeError>([&] { from_blob(std::span(doubles, 4), {3}); }),
            "from_blob: shape [3] has 3 elements, got 4 values");
  EXPECT_EQ(message_of<DeviceError>([&] { from_blob(doubles, {2}, deleter, {.device = "cuda:1"}); }),
            "from_blob: the memory is the host's, not that of cuda:1; copy it there with .to(\"cuda:1\")");
  EXPECT_EQ(deleted, 0);
}

TEST(FromBlob, SpanInAndSpanOutAreOneMemory) {
  Floats memory{1, 2, 3, 4};
  Tensor x = from_blob(std::span(memory), {2, 2});
  EXPECT_EQ(x.span<float>().data(), memory.data());
  for (float& value : x.mutable_span<float>()) {
    value += 1;
  }
  EXPECT_EQ(memory, (Floats{2, 3, 4, 5}));
}

TEST(FromData, TakesAVectorOverWithoutACopy) {
  TANDEM_SKIP_ON_GPU("a GPU cannot take over memory of the host");
  Floats values{1, 2, 3, 4};
  const float* memory = values.data();
  const Tensor x = from_data(std::move(values), {2, 2});
  EXPECT_EQ(x.data<float>(), memory);
  EXPECT_EQ((x * 2).to_vector<float>(), (Floats{2, 4, 6, 8}));
  Floats again{1, 2};
  EXPECT_EQ(from_data(std::move(again), {2}, {.dtype = DType::f64}).dtype(), DType::f64);
  EXPECT_EQ(message_of<ShapeError>([] { from_data(Floats{1, 2, 3}, {2, 2}); }),
            "from_data: shape [2, 2] has 4 elements, got 3 values");
  EXPECT_EQ(from_data(Floats{}).shape(), (Shape{0}));
}

TEST(Linspace, HasBothEndsExactly) {
  EXPECT_EQ(linspace(0, 1, 5).to_vector<float>(), (Floats{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(1, -1, 3).to_vector<float>(), (Floats{1, 0, -1}));
  EXPECT_EQ(linspace(3, 9, 1).to_vector<float>(), (Floats{3}));
  EXPECT_EQ(linspace(3, 9, 0).shape(), (Shape{0}));
  EXPECT_EQ(linspace(0, 9, 4, {.dtype = DType::i64}).to_vector<double>(), (std::vector<double>{0, 3, 6, 9}));
  for (const std::int64_t steps : {2, 3, 10, 999, 1000}) {
    const std::vector<double> x = linspace(0.1, 0.7, steps, {.dtype = DType::f64}).to_vector<double>();
    EXPECT_EQ(x.front(), 0.1);
    EXPECT_EQ(x.back(), 0.7);
    EXPECT_TRUE(std::is_sorted(x.begin(), x.end()));
  }
  EXPECT_EQ(message_of<ConfigError>([] { linspace(0, 1, -1); }),
            "linspace: the number of steps is -1, it must not be negative");
  EXPECT_THROW(linspace(0, INFINITY, 3), ConfigError);
  EXPECT_THROW(linspace(0, 1, 3, {.dtype = DType::boolean}), DTypeError);
}

TEST(Likes, TakeShapeTypeAndDevice) {
  const Tensor x = zeros({2, 3}, {.dtype = DType::f64, .device = "cpu:1"});
  for (const Tensor& made : {full_like(x, 2.5), rand_like(x), randn_like(x)}) {
    EXPECT_EQ(made.shape(), x.shape());
    EXPECT_EQ(made.dtype(), DType::f64);
    EXPECT_EQ(made.device(), Device("cpu:1"));
  }
  EXPECT_EQ(full_like(x, 2.5).sum().item(), 15);
  EXPECT_THROW(rand_like(tensor({1, 2})), DTypeError);
}

TEST(Randperm, NegativeNumberIsNamed) {
  EXPECT_EQ(message_of<ConfigError>([] { randperm(-1); }),
            "randperm: the number of elements is -1, it must not be negative");
}

TEST(FromBlob, GradientsOfIntegersAreRefusedBeforeTheMemoryIsTaken) {
  int deleted = 0;
  std::int64_t memory[2] = {};
  EXPECT_THROW(from_blob(memory, {2}, [&](void*) { ++deleted; }, {.requires_grad = true}), DTypeError);
  EXPECT_EQ(deleted, 0);
}

}  // namespace
}  // namespace tandem
