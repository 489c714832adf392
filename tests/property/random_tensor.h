#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <tandem/tensor/tensor.h>

// Random tensors, and their values as plain numbers. The numbers are computed from index tuples and never read from the
// tensor, so an error in strides cannot affect both.

namespace tandem::test {

using Index = std::vector<std::int64_t>;

/// Numbers in row-major order.
struct Grid {
  Index sizes;
  std::vector<double> values;

  std::int64_t numel() const { return static_cast<std::int64_t>(values.size()); }
  int dim() const { return static_cast<int>(sizes.size()); }
  /// The value at an index tuple.
  double at(const Index& index) const;
  /// The value at an index tuple of a shape to which this grid broadcasts.
  double at_broadcast(const Index& index) const;
};

/// Calls body(index) for the index tuples of `sizes` in row-major order.
template <class Body>
void for_each_index(const Index& sizes, Body&& body) {
  Index index(sizes.size());
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    count *= size;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    body(static_cast<const Index&>(index));
    for (std::size_t dim = sizes.size(); dim-- > 0;) {
      if (++index[dim] < sizes[dim]) {
        break;
      }
      index[dim] = 0;
    }
  }
}

/// The grid with these sizes that holds value_at(index).
template <class ValueAt>
Grid grid_of(const Index& sizes, ValueAt&& value_at) {
  Grid grid{sizes, {}};
  for_each_index(sizes, [&](const Index& index) { grid.values.push_back(value_at(index)); });
  return grid;
}

/// The layout of a tensor in the memory of a larger, dense one.
struct Layout {
  Index sizes;
  std::vector<int> order;      // dimensions from the outermost in memory to the innermost
  Index steps;                 // step along each dimension, in elements of the larger tensor
  Index skipped;               // elements before the first one, along each dimension
  std::vector<bool> expanded;  // one element in memory represents the whole dimension
  std::uint32_t seed = 0;      // seed of the values
};
std::ostream& operator<<(std::ostream& out, const Layout& layout);
void showValue(const Layout& layout, std::ostream& out);

/// Ranges of values; all values are exact in every dtype and far from overflow.
enum class Values : std::uint8_t {
  any,       // multiples of 1/16 in [-8, 8); whole numbers for integers, at least 0 for u8
  positive,  // at least 1/4
  nonzero,   // at least 1/4 away from 0
  distinct,  // pairwise different, for up to 1000 elements
};

struct Sample {
  Layout layout;
  Tensor whole;   // the larger tensor, dense
  Tensor tensor;  // the view under test
  Grid grid;      // the values of the view
};

inline const std::vector<DType> kFloating{DType::f64, DType::f32, DType::bf16, DType::f16};
inline const std::vector<DType> kNumbers{DType::f64, DType::f32, DType::bf16, DType::f16,
                                         DType::i64, DType::i32, DType::u8};
inline const std::vector<DType> kAll{DType::f64, DType::f32, DType::bf16, DType::f16,
                                     DType::i64, DType::i32, DType::u8,   DType::boolean};

// ---- functions for use inside a property ----
/// Up to max_dims sizes of 0 to 7, with an occasional longer one.
Index pick_sizes(int max_dims = 5);
/// Sizes that broadcast to `sizes`: some are 1, and some leading ones are left out.
Index pick_broadcast(const Index& sizes);
/// With `may_expand`, elements may share memory.
Layout pick_layout(const Index& sizes, bool may_expand = true);
/// The position of each element in the larger tensor.
Grid places_of(const Layout& layout);
/// The view of the larger tensor that the layout describes. Differentiable.
Tensor view_of(const Tensor& whole, const Layout& layout);
/// Makes the tensor of a layout.
Sample make_sample(const Layout& layout, DType dtype, Values values);
Sample pick_sample(const Index& sizes, DType dtype, Values values = Values::any, bool may_expand = true);
DType pick_dtype(const std::vector<DType>& dtypes);

Shape to_shape(const Index& sizes);
Shape to_shape(const std::vector<int>& dims);
Index broadcast(const Index& a, const Index& b);

/// Fails the property unless `got` has the grid's sizes and values: max|a-b| <= tolerance * max|b|, or equality for
/// integers. The dtype determines the tolerance; `times` multiplies it.
void require_equal(const Tensor& got, const Grid& expected, const std::string& what, double times = 1);

}  // namespace tandem::test
