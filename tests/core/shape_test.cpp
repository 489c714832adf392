#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/shape.h>

#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kBig = std::int64_t{1} << 62;

TEST(Shape, ScalarHasNoSizesAndOneElement) {
  const Shape scalar;
  EXPECT_EQ(scalar.ndim(), 0);
  EXPECT_TRUE(scalar.empty());
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(to_string(scalar), "[]");
  EXPECT_EQ(scalar, Shape({}));
}

TEST(Shape, HoldsItsSizes) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.ndim(), 3);
  EXPECT_EQ(shape.size(), 3u);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape.back(), 4);
  EXPECT_EQ(std::vector<std::int64_t>(shape.begin(), shape.end()), (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(to_string(shape), "[2, 3, 4]");
}

TEST(Shape, EqualityNeedsTheSameDimensions) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  Shape shrunk{2, 3, 4};
  shrunk.erase(2);
  EXPECT_EQ(shrunk, (Shape{2, 3})) << "what was erased must not be compared";
}

TEST(Shape, FilledInsertedAndErased) {
  EXPECT_EQ(Shape::filled(3, 7), (Shape{7, 7, 7}));
  EXPECT_EQ(Shape::filled(0, 7), Shape());
  Shape shape{2, 3};
  shape.insert(0, 1);
  shape.insert(3, 4);
  shape.insert(2, 9);
  EXPECT_EQ(shape, (Shape{1, 2, 9, 3, 4}));
  shape.erase(2);
  shape.erase(0);
  EXPECT_EQ(shape, (Shape{2, 3, 4}));
}

TEST(Shape, EightDimensionsAreTheMost) {
  EXPECT_EQ((Shape{1, 2, 1, 2, 1, 2, 1, 2}).numel(), 16);
  EXPECT_EQ(message_of<ShapeError>([] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }),
            "a tensor has at most 8 dimensions, got 9");
  EXPECT_THROW(Shape::filled(9, 1), ShapeError);
  Shape full = Shape::filled(8, 1);
  EXPECT_EQ(message_of<ShapeError>([&] { full.push_back(1); }), "a tensor has at most 8 dimensions, got 9");
  EXPECT_THROW(full.insert(0, 1), ShapeError);
  EXPECT_EQ(full, Shape::filled(8, 1)) << "unchanged after an error";
}

TEST(Numel, IsTheProduct) {
  EXPECT_EQ((Shape{5}).numel(), 5);
  EXPECT_EQ((Shape{2, 3, 4}).numel(), 24);
  EXPECT_EQ((Shape{0}).numel(), 0);
  EXPECT_EQ((Shape{kMax}).numel(), kMax);
  EXPECT_EQ((Shape{1, kMax, 1}).numel(), kMax);
}

TEST(Numel, OfAnEmptyShapeIsZeroWhateverTheOthersAre) {
  EXPECT_EQ((Shape{0, kMax, kMax}).numel(), 0);
  EXPECT_EQ((Shape{kMax, kMax, 0}).numel(), 0);
  EXPECT_EQ((Shape{kBig, 4, 0, kBig}).numel(), 0);
}

TEST(Numel, RefusesWhatCannotBeCounted) {
  EXPECT_EQ(message_of<ShapeError>([] { Shape{kBig, 2}.numel(); }),
            "shape [4611686018427387904, 2] has more elements than can be counted");
  EXPECT_THROW((Shape{kMax, kMax}).numel(), ShapeError);
  EXPECT_THROW((Shape{1L << 32, 1L << 32}).numel(), ShapeError) << "2^64 must not become 0";
  EXPECT_THROW(Shape::filled(8, 1 << 20).numel(), ShapeError);
}

TEST(Numel, RefusesNegativeSizes) {
  EXPECT_EQ(message_of<ShapeError>([] { Shape{2, -1}.numel(); }), "shape [2, -1] has a negative size");
  EXPECT_THROW((Shape{-1, -1}).numel(), ShapeError) << "two negatives are no positive";
  EXPECT_THROW((Shape{0, -3}).numel(), ShapeError);
  EXPECT_THROW((Shape{-3, 0}).numel(), ShapeError);
  EXPECT_THROW((Shape{kBig, 4, -1}).numel(), ShapeError);
}

TEST(ContiguousStrides, CountElementsFromTheBack) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({5}), (Shape{1}));
  EXPECT_EQ(contiguous_strides({}), Shape());
  EXPECT_EQ(contiguous_strides({3, 1, 2}), (Shape{2, 2, 1}));
}

TEST(ContiguousStrides, OfEmptyShapesAreDefined) {
  EXPECT_EQ(contiguous_strides({2, 0, 3}), (Shape{3, 3, 1}));
  EXPECT_EQ(contiguous_strides({0, kMax, kMax}).ndim(), 3) << "and must not overflow";
}

TEST(WrapDim, CountsNegativeOnesFromTheEnd) {
  EXPECT_EQ(wrap_dim(0, 3, "op"), 0);
  EXPECT_EQ(wrap_dim(2, 3, "op"), 2);
  EXPECT_EQ(wrap_dim(-1, 3, "op"), 2);
  EXPECT_EQ(wrap_dim(-3, 3, "op"), 0);
}

TEST(WrapDim, ScalarsHaveOneImaginaryDimension) {
  EXPECT_EQ(wrap_dim(0, 0, "op"), 0);
  EXPECT_EQ(wrap_dim(-1, 0, "op"), 0);
  EXPECT_THROW(wrap_dim(1, 0, "op"), ShapeError);
}

TEST(WrapDim, NamesOpAndRange) {
  EXPECT_EQ(message_of<ShapeError>([] { wrap_dim(3, 3, "sum"); }),
            "sum: dimension 3 is out of range for a tensor with 3 dimensions (expected -3 to 2)");
  EXPECT_EQ(message_of<ShapeError>([] { wrap_dim(-4, 3, "softmax"); }),
            "softmax: dimension -4 is out of range for a tensor with 3 dimensions (expected -3 to 2)");
  EXPECT_THROW(wrap_dim(std::numeric_limits<int>::min(), 3, "op"), ShapeError);
  EXPECT_THROW(wrap_dim(std::numeric_limits<int>::max(), 3, "op"), ShapeError);
}

TEST(BroadcastShapes, FollowsNumPy) {
  EXPECT_EQ(broadcast_shapes({2, 3}, {2, 3}, "add"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({2, 3}, {3}, "add"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({3}, {2, 3}, "add"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({}, {2, 3}, "add"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({}, {}, "add"), Shape());
  EXPECT_EQ(broadcast_shapes({2, 1, 4}, {3, 1}, "add"), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shapes({1}, {5, 1, 1}, "add"), (Shape{5, 1, 1}));
  EXPECT_EQ(broadcast_shapes({8, 1, 6, 1}, {7, 1, 5}, "add"), (Shape{8, 7, 6, 5}));
}

TEST(BroadcastShapes, OneBecomesZero) {
  EXPECT_EQ(broadcast_shapes({1}, {0}, "add"), (Shape{0}));
  EXPECT_EQ(broadcast_shapes({0, 1}, {1, 3}, "add"), (Shape{0, 3}));
  EXPECT_THROW(broadcast_shapes({0}, {2}, "add"), ShapeError);
}

TEST(BroadcastShapes, SaysWhichDimensionDoesNotFit) {
  EXPECT_EQ(
      message_of<ShapeError>([] { broadcast_shapes({32, 784}, {64}, "add"); }),
      "add: shapes [32, 784] and [64] do not broadcast: sizes 784 and 64 at dimension -1 differ and neither is 1");
  EXPECT_EQ(message_of<ShapeError>([] { broadcast_shapes({5}, {2, 3}, "mul"); }),
            "mul: shapes [5] and [2, 3] do not broadcast: sizes 5 and 3 at dimension -1 differ and neither is 1");
  EXPECT_EQ(
      message_of<ShapeError>([] { broadcast_shapes({4, 3, 2}, {5, 1, 2}, "sub"); }),
      "sub: shapes [4, 3, 2] and [5, 1, 2] do not broadcast: sizes 4 and 5 at dimension -3 differ and neither is 1");
}

TEST(Shape, NegativeDimensionsCountFromTheEnd) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_THROW(shape[3], ShapeError);
  EXPECT_THROW(shape[-4], ShapeError);
  EXPECT_THROW(Shape{}[0], ShapeError);
}

}  // namespace
}  // namespace tandem
