#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "support/memory.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::memory_of;
using test::message_of;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

Tensor counted(const Shape& sizes) { return arange(sizes.numel()).reshape(sizes); }
Ints values(const Tensor& tensor) { return tensor.to_vector<std::int64_t>(); }

// A write through the view shows in the whole tensor, so no copy was made.
void expect_alias(const Tensor& view, const Tensor& whole) {
  Tensor first = view;
  while (first.dim() > 0) {
    first = first[0];
  }
  first.fill_(-7);
  const Ints all = values(whole);
  EXPECT_NE(std::find(all.begin(), all.end(), -7), all.end());
  EXPECT_EQ(view.version(), whole.version());
}

TEST(Permute, ReordersDimensions) {
  const Tensor x = counted({2, 3, 4});
  const Tensor y = x.permute({2, 0, 1});
  EXPECT_EQ(y.shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(y.strides(), (Shape{1, 12, 4}));
  EXPECT_EQ(y[3][1][2].item<std::int64_t>(), x[1][2][3].item<std::int64_t>());
  EXPECT_EQ(x.permute({-1, 0, 1}).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(tensor(1.0).permute({}).shape(), Shape());
  expect_alias(y, x);
}

TEST(Permute, NeedsEachDimensionOnce) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(message_of<ShapeError>([&] { x.permute({0}); }),
            "permute: the order [0] has 1 entries, the tensor 2 dimensions");
  EXPECT_EQ(message_of<ShapeError>([&] { x.permute({0, 0}); }), "permute: dimension 0 appears twice in [0, 0]");
  EXPECT_THROW(x.permute({0, 2}), ShapeError);
  EXPECT_THROW(x.permute({std::int64_t{1} << 32, 1}), ShapeError) << "not dimension 0 of 32 bits";
}

TEST(Transpose, SwapsTwoDimensions) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(values(x.t()), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(values(x.transpose(0, -1)), values(x.t()));
  EXPECT_EQ(values(x.transpose(1, 1)), values(x));
  EXPECT_FALSE(x.t().is_contiguous());
  EXPECT_EQ(counted({4}).t().shape(), (Shape{4}));
  EXPECT_EQ(message_of<ShapeError>([] { zeros({1, 2, 3}).t(); }),
            "t: expected at most 2 dimensions, got [1, 2, 3]; use transpose()");
  EXPECT_THROW(x.transpose(0, 2), ShapeError);
  expect_alias(x.t(), x);
}

TEST(Slice, TakesStepsAndClipsItsBounds) {
  const Tensor x = counted({6});
  EXPECT_EQ(values(x.slice(0, 1, 4)), (Ints{1, 2, 3}));
  EXPECT_EQ(values(x.slice(0, 0, 6, 2)), (Ints{0, 2, 4}));
  EXPECT_EQ(values(x.slice(0, 1, 6, 3)), (Ints{1, 4}));
  EXPECT_EQ(values(x.slice(0, -2, 6)), (Ints{4, 5}));
  EXPECT_EQ(values(x.slice(0, 0, -1)), (Ints{0, 1, 2, 3, 4}));
  EXPECT_EQ(values(x.slice(0, -100, 100)), values(x));
  EXPECT_EQ(x.slice(0, 4, 2).shape(), (Shape{0}));
  EXPECT_EQ(x.slice(0, 6, 6).numel(), 0);
  EXPECT_EQ(values(counted({3, 4}).slice(-1, 1, 4, 2)), (Ints{1, 3, 5, 7, 9, 11}));
  expect_alias(x.slice(0, 2, 6, 2), x);
}

TEST(Slice, ExtremeBoundsAndStepsDoNotOverflow) {
  const Tensor x = counted({6, 2});
  EXPECT_EQ(values(x.slice(0, kMin, kMax)), values(x));
  EXPECT_EQ(values(x.slice(0, 1, kMax, kMax)), (Ints{2, 3}));
  EXPECT_EQ(values(x.slice(0, 0, 6, kMax - 1)), (Ints{0, 1}));
  EXPECT_EQ(x.slice(0, kMax, kMin).numel(), 0);
  EXPECT_EQ(message_of<ShapeError>([&] { x.slice(0, 0, 3, 0); }), "slice: the step must be at least 1, got 0");
  EXPECT_THROW(x.slice(0, 0, 3, -1), ShapeError);
  EXPECT_THROW(x.slice(2, 0, 1), ShapeError);
}

TEST(Narrow, StaysInside) {
  const Tensor x = counted({4, 3});
  EXPECT_EQ(values(x.narrow(0, 1, 2)), (Ints{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(values(x.narrow(1, 2, 1)), (Ints{2, 5, 8, 11}));
  EXPECT_EQ(x.narrow(0, 4, 0).shape(), (Shape{0, 3}));
  EXPECT_EQ(message_of<ShapeError>([&] { x.narrow(0, 3, 2); }),
            "narrow: start 3 and length 2 leave dimension 0 of [4, 3]");
  EXPECT_THROW(x.narrow(0, -1, 2), ShapeError);
  EXPECT_THROW(x.narrow(0, 0, -1), ShapeError);
  EXPECT_THROW(x.narrow(0, 1, kMax), ShapeError);
  EXPECT_THROW(x.narrow(0, kMax, 1), ShapeError);
  EXPECT_THROW(x.narrow(0, 5, 0), ShapeError);
  EXPECT_THROW(tensor(1.0).narrow(0, 0, 1), ShapeError);
}

TEST(Select, DropsADimension) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(values(x[1]), (Ints{3, 4, 5}));
  EXPECT_EQ(values(x.select(1, -1)), (Ints{2, 5}));
  EXPECT_EQ(x[0][0].shape(), Shape());
  EXPECT_EQ(message_of<ShapeError>([&] { x[2]; }),
            "select: index 2 is out of range for dimension 0 of [2, 3]: expected -2 to 1");
  EXPECT_THROW(x[-3], ShapeError);
  EXPECT_THROW(x.select(0, kMin), ShapeError);
  EXPECT_EQ(message_of<ShapeError>([] { tensor(1.0)[0]; }), "select: a scalar has no dimension to select from");
  expect_alias(x[1], x);
}

TEST(Squeeze, DropsSizesOfOne) {
  const Tensor x = counted({1, 3, 1, 2});
  EXPECT_EQ(x.squeeze().shape(), (Shape{3, 2}));
  EXPECT_EQ(x.squeeze(0).shape(), (Shape{3, 1, 2}));
  EXPECT_EQ(x.squeeze(-2).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(x.squeeze(1).shape(), x.shape()) << "3 is not 1";
  EXPECT_EQ(ones({1, 1}).squeeze().shape(), Shape());
  EXPECT_EQ(tensor(1.0).squeeze().shape(), Shape());
  EXPECT_EQ(tensor(1.0).squeeze(0).shape(), Shape());
  EXPECT_THROW(x.squeeze(4), ShapeError);
}

TEST(Unsqueeze, AddsOne) {
  const Tensor x = counted({3, 2});
  EXPECT_EQ(x.unsqueeze(0).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(x.unsqueeze(-1).shape(), (Shape{3, 2, 1}));
  EXPECT_EQ(x.unsqueeze(1).shape(), (Shape{3, 1, 2}));
  EXPECT_TRUE(x.unsqueeze(1).is_contiguous());
  EXPECT_EQ(tensor(1.0).unsqueeze(0).shape(), (Shape{1}));
  EXPECT_THROW(x.unsqueeze(3), ShapeError);
  EXPECT_EQ(message_of<ShapeError>([] { zeros({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0); }),
            "a tensor has at most 8 dimensions, got 9");
}

TEST(Expand, RepeatsWithoutMemory) {
  const Tensor x = counted({3, 1});
  const Tensor y = x.expand({2, 3, 4});
  EXPECT_EQ(y.strides(), (Shape{0, 1, 0}));
  EXPECT_EQ(values(y[1]), (Ints{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(x.expand({-1, 5}).shape(), (Shape{3, 5}));
  EXPECT_EQ(zeros({1}).expand({0}).numel(), 0);
  EXPECT_EQ(tensor(2.0).expand({2, 2}).to_vector<float>(), (std::vector<float>{2, 2, 2, 2}));
  expect_alias(y, x);
}

TEST(Expand, SaysWhatDoesNotFit) {
  const Tensor x = zeros({3, 1});
  EXPECT_EQ(message_of<ShapeError>([&] { x.expand({4, 2}); }),
            "expand: [3, 1] cannot become [4, 2]: size 3 at dimension 0 is neither 1 nor 4");
  EXPECT_EQ(message_of<ShapeError>([&] { x.expand({3}); }),
            "expand: [3] has fewer dimensions than the tensor's [3, 1]");
  EXPECT_EQ(message_of<ShapeError>([&] { x.expand({-1, 3, 1}); }),
            "expand: [3, 1] cannot become [-1, 3, 1]: there is no size to keep at dimension 0");
  EXPECT_THROW(x.expand({3, -2}), ShapeError);
  EXPECT_THROW(zeros({0}).expand({3}), ShapeError);
  EXPECT_THROW(zeros({1}).expand({std::int64_t{1} << 40, std::int64_t{1} << 40}), ShapeError)
      << "more elements than can be counted";
}

// Several elements share memory: a write to one would also change others, in an undefined order.
TEST(Expand, ResultIsNotForWriting) {
  Tensor y = zeros({1}).expand({3});
  EXPECT_EQ(message_of<ShapeError>([&] { y.add_(1); }),
            "add_: the tensor [3] is expanded, several of its elements share memory; call .clone() first");
  EXPECT_THROW(y.fill_(1), ShapeError);
  EXPECT_THROW(y.copy_(ones({3})), ShapeError);
  EXPECT_THROW(y.uniform_(), ShapeError);
  EXPECT_THROW(y.normal_(), ShapeError);
  EXPECT_EQ(y.clone().add_(1).to_vector<float>(), (std::vector<float>{1, 1, 1}));
}

TEST(Reshape, IsAViewWherePossible) {
  const Tensor x = counted({2, 6});
  EXPECT_EQ(x.reshape({3, 4}).shape(), (Shape{3, 4}));
  EXPECT_EQ(x.reshape({-1}).shape(), (Shape{12}));
  EXPECT_EQ(x.reshape({4, -1}).shape(), (Shape{4, 3}));
  EXPECT_EQ(zeros({0, 4}).reshape({-1, 4}).shape(), (Shape{0, 4}));
  EXPECT_EQ(zeros({0, 4}).reshape({7, 0}).shape(), (Shape{7, 0}));
  EXPECT_EQ(tensor(1.0).reshape({1, 1}).shape(), (Shape{1, 1}));
  EXPECT_EQ(counted({1}).reshape({}).shape(), Shape());
  expect_alias(x.reshape({3, 4}), x);
  expect_alias(x.view({4, 3}), x);
  expect_alias(x.flatten(), x);
}

TEST(Reshape, CopiesWhereItMust) {
  const Tensor x = counted({2, 3}).t();
  EXPECT_EQ(values(x.reshape({6})), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(message_of<ShapeError>([&] { x.view({6}); }),
            "view: [3, 2] with strides [1, 3] cannot become [6] without a copy; use reshape() or contiguous()");
  x.reshape({6}).fill_(99);
  EXPECT_EQ(x[0][0].item<std::int64_t>(), 0);
}

TEST(Reshape, SaysWhatDoesNotFit) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(message_of<ShapeError>([&] { x.reshape({4}); }), "reshape: [2, 3] with 6 elements cannot become [4]");
  EXPECT_EQ(message_of<ShapeError>([&] { x.reshape({-1, 4}); }),
            "reshape: [2, 3] with 6 elements cannot become [-1, 4]");
  EXPECT_EQ(message_of<ShapeError>([&] { x.reshape({-1, -1}); }), "reshape: only one size of [-1, -1] can be -1");
  EXPECT_EQ(message_of<ShapeError>([&] { x.reshape({-2, 3}); }), "reshape: [-2, 3] has a negative size");
  EXPECT_THROW(zeros({0}).reshape({-1, 0}), ShapeError) << "any size would do";
  EXPECT_THROW(x.reshape({kMax, kMax}), ShapeError);
  EXPECT_THROW(x.reshape({std::int64_t{1} << 32, std::int64_t{1} << 32, 6}), ShapeError) << "2^64 must not become 0";
}

TEST(Flatten, MergesARange) {
  const Tensor x = counted({2, 3, 4});
  EXPECT_EQ(x.flatten().shape(), (Shape{24}));
  EXPECT_EQ(x.flatten(1).shape(), (Shape{2, 12}));
  EXPECT_EQ(x.flatten(0, 1).shape(), (Shape{6, 4}));
  EXPECT_EQ(x.flatten(-2, -1).shape(), (Shape{2, 12}));
  EXPECT_EQ(x.flatten(1, 1).shape(), x.shape());
  EXPECT_EQ(tensor(1.0).flatten().shape(), (Shape{1}));
  EXPECT_EQ(message_of<ShapeError>([&] { x.flatten(2, 1); }), "flatten: start_dim 2 is after end_dim 1");
}

TEST(Contiguous, CopiesOnlyWhatIsNot) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(memory_of(x.contiguous()), memory_of(x));
  const Tensor y = x.t().contiguous();
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_EQ(values(y), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_TRUE(x.slice(0, 0, 1).is_contiguous());
  EXPECT_TRUE(x.slice(1, 0, 1).slice(0, 0, 1).is_contiguous()) << "one element";
  EXPECT_FALSE(x.slice(1, 0, 1).is_contiguous());
}

// Images on GPUs can be channels-last; on a CPU the format changes nothing.
TEST(Contiguous, IsByRowsInBothFormatsOnACpu) {
  const Tensor x = arange(24, {.dtype = DType::f32}).reshape({1, 2, 3, 4});
  EXPECT_EQ(x.contiguous(MemoryFormat::channels_last).data<float>(), x.data<float>());
  EXPECT_FALSE(x.contiguous(MemoryFormat::channels_last).is_contiguous(MemoryFormat::channels_last));
  const Tensor turned = x.permute({0, 3, 1, 2});
  EXPECT_FALSE(turned.is_contiguous(MemoryFormat::channels_last));
  EXPECT_TRUE(turned.contiguous(MemoryFormat::channels_last).is_contiguous());
  EXPECT_EQ(message_of<ShapeError>([&] { x[0].contiguous(MemoryFormat::channels_last); }),
            "contiguous: channels_last is for images [batch, channels, height, width], got [2, 3, 4]");
}

TEST(Clone, IsDenseAndApart) {
  const Tensor x = counted({2, 3});
  Tensor y = x.t().clone();
  EXPECT_TRUE(y.is_contiguous());
  y.fill_(50);
  EXPECT_EQ(values(x), (Ints{0, 1, 2, 3, 4, 5}));
}

TEST(Narrow, CountsFromTheEnd) {
  const Tensor x = counted({5});
  EXPECT_EQ(values(x.narrow(0, -2, 2)), (Ints{3, 4}));
  EXPECT_EQ(values(x.narrow(0, -5, 5)), (Ints{0, 1, 2, 3, 4}));
  EXPECT_EQ(message_of<ShapeError>([&] { x.narrow(0, -2, 3); }),
            "narrow: start -2 and length 3 leave dimension 0 of [5]");
  EXPECT_THROW(x.narrow(0, -6, 1), ShapeError);
  EXPECT_THROW(x.narrow(0, kMin, 1), ShapeError);
  const Tensor leaf = zeros({5}, {.requires_grad = true});
  leaf.narrow(0, -2, 1).sum().backward();
  EXPECT_EQ(leaf.grad().to_vector<float>(), (std::vector<float>{0, 0, 0, 1, 0}));
}

TEST(Unsqueeze, ErrorsNameTheDimensionsThatThereAre) {
  EXPECT_EQ(message_of<ShapeError>([] { zeros({1, 1, 1}).unsqueeze(4); }),
            "unsqueeze: dimension 4 is out of range for a tensor with 3 dimensions (expected -4 to 3)");
  EXPECT_EQ(message_of<ShapeError>([] { tensor(1.0).unsqueeze(1); }),
            "unsqueeze: dimension 1 is out of range for a tensor with 0 dimensions (expected -1 to 0)");
  EXPECT_EQ(message_of<ShapeError>([] { stack({zeros({2}), zeros({2})}, 2); }),
            "stack: dimension 2 is out of range for a tensor with 1 dimensions (expected -2 to 1)");
}

TEST(IndexSelect, TakesAnIndexWithoutDimensionsAndOneOf32Bits) {
  const Tensor x = counted({3, 2});
  EXPECT_EQ(x.index_select(0, tensor(2)).shape(), (Shape{1, 2}));
  EXPECT_EQ(values(x.index_select(0, tensor(2))), (Ints{4, 5}));
  EXPECT_EQ(values(x.index_select(1, tensor({1, 0}, {.dtype = DType::i32}))), (Ints{1, 0, 3, 2, 5, 4}));
  const Tensor leaf = zeros({3}, {.requires_grad = true});
  leaf.index_select(0, tensor(1, {.dtype = DType::i32})).sum().backward();
  EXPECT_EQ(leaf.grad().to_vector<float>(), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(message_of<DTypeError>([&] { x.index_select(0, tensor({1}, {.dtype = DType::u8})); }),
            "index_select: the index must be i64 or i32, got u8");
  EXPECT_EQ(message_of<ShapeError>([&] { x.index_select(0, tensor({1}).reshape({1, 1})); }),
            "index_select: the index must have at most one dimension, got [1, 1]");
}

TEST(Chunk, OfNothingIsAsManyEmptyParts) {
  const std::vector<Tensor> parts = empty({0}).chunk(2);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].shape(), (Shape{0}));
  EXPECT_EQ(empty({2, 0}).chunk(3, 1).size(), 3U);
  EXPECT_EQ(empty({0}).split(2).size(), 1U);
}

}  // namespace
}  // namespace tandem
