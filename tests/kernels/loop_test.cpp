#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/loop.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Layout;
using test::Rng;

Loop simplified(const Shape& sizes, const Shape& strides, Operand& operand) {
  Loop loop = test::loop_of(sizes);
  for (int dim = 0; dim < strides.ndim(); ++dim)
    operand.strides[dim] = strides[dim];
  simplify(loop, {&operand});
  return loop;
}

TEST(Simplify, ADenseLoopHasOneDimension) {
  Operand operand;
  const Loop loop = simplified({2, 3, 4}, {12, 4, 1}, operand);
  EXPECT_EQ(loop.ndim, 1);
  EXPECT_EQ(loop.sizes[0], 24);
  EXPECT_EQ(operand.strides[0], 1);
}

TEST(Simplify, DropsSizesOfOneWhateverTheirStride) {
  Operand operand;
  const Loop loop = simplified({1, 5, 1, 2}, {77, 2, 99, 1}, operand);
  EXPECT_EQ(loop.ndim, 1);
  EXPECT_EQ(loop.sizes[0], 10);
}

TEST(Simplify, KeepsWhatIsNotWalkedAsOne) {
  Operand transposed;
  EXPECT_EQ(simplified({3, 4}, {1, 3}, transposed).ndim, 2);
  Operand padded;
  EXPECT_EQ(simplified({3, 4}, {5, 1}, padded).ndim, 2);
}

TEST(Simplify, MergesBroadcastDimensions) {
  Operand operand;
  const Loop loop = simplified({3, 4}, {0, 0}, operand);
  EXPECT_EQ(loop.ndim, 1);
  EXPECT_EQ(loop.sizes[0], 12);
  EXPECT_EQ(operand.strides[0], 0);
}

TEST(Simplify, MergesOnlyWhatAllOperandsAllow) {
  Operand dense{nullptr, {12, 4, 1}};
  Operand row{nullptr, {0, 4, 1}};
  Loop loop = test::loop_of({2, 3, 4});
  simplify(loop, {&dense, &row});
  EXPECT_EQ(loop.ndim, 2);
  EXPECT_EQ(loop.sizes[0], 2);
  EXPECT_EQ(loop.sizes[1], 12);
  EXPECT_EQ(row.strides[0], 0);
  EXPECT_EQ(row.strides[1], 1);
}

TEST(Simplify, OneElementLeavesOneDimension) {
  Operand operand;
  for (const Shape& sizes : {Shape{}, Shape{1}, Shape{1, 1, 1}}) {
    const Loop loop = simplified(sizes, Shape::filled(sizes.ndim(), 5), operand);
    EXPECT_EQ(loop.ndim, 1);
    EXPECT_EQ(loop.sizes[0], 1);
  }
}

TEST(Simplify, EmptyStaysEmpty) {
  Operand operand;
  EXPECT_EQ(simplified({3, 0, 2}, {0, 2, 1}, operand).numel(), 0);
  EXPECT_EQ(simplified({0}, {1}, operand).numel(), 0);
}

// Visits every element once, with the same positions in the same order, simplified or not.
TEST(ForEachRow, VisitsEveryElementOnce) {
  Rng rng(3);
  for (int round = 0; round < 300; ++round) {
    Shape sizes;
    for (std::int64_t dims = test::whole_between(rng, 0, 6); dims > 0; --dims) {
      sizes.push_back(test::whole_between(rng, rng() % 8 == 0 ? 0 : 1, 5));
    }
    const Layout layout = test::random_layout(rng, sizes, false);
    std::vector<int> visits(static_cast<std::size_t>(layout.extent));
    std::vector<int> expected = visits;
    test::for_each_element(sizes, [&](std::size_t at) { ++expected[at]; }, layout);
    Loop loop = test::loop_of(sizes);
    Operand operand = test::operand_of(visits, layout);
    if (round % 2 == 0) simplify(loop, {&operand});
    cpu::for_each_row<int>(loop, {&operand}, [&](int* const(&p)[1], std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i)
        ++p[0][i * operand.strides[loop.ndim - 1]];
    });
    ASSERT_EQ(visits, expected) << to_string(sizes) << " strides " << to_string(layout.strides);
  }
}

}  // namespace
}  // namespace tandem::kernels
