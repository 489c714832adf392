#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <tandem/tensor/tensor.h>

// Random tensors, and what they hold as plain numbers. The numbers are found by index tuples alone, and never read from
// the tensor, so that a mistake in strides cannot hide in both.

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
  /// The same where this is broadcast to more dimensions, or from sizes of 1.
  double at_broadcast(const Index& index) const;
};

/// The index tuples of `sizes` in row-major order.
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

/// The grid of these sizes that holds value_at(index).
template <class ValueAt>
Grid grid_of(const Index& sizes, ValueAt&& value_at) {
  Grid grid{sizes, {}};
  for_each_index(sizes, [&](const Index& index) { grid.values.push_back(value_at(index)); });
  return grid;
}

/// How a tensor lies in the memory of a larger, dense one.
struct Layout {
  Index sizes;
  std::vector<int> order;      // which dimension is the outermost in memory, and so on
  Index steps;                 // in elements of the larger tensor, along each dimension
  Index skipped;               // elements before the first, likewise
  std::vector<bool> expanded;  // one element in memory stands for the whole dimension
  std::uint32_t seed = 0;      // of the values
};
std::ostream& operator<<(std::ostream& out, const Layout& layout);
void showValue(const Layout& layout, std::ostream& out);

/// What values are drawn from; all are exact in every dtype and far from overflow.
enum class Values : std::uint8_t {
  any,       // multiples of 1/16 in [-8, 8); whole numbers for integers, 0 or more for u8
  positive,  // from 1/4 on
  nonzero,   // at least 1/4 from 0
  distinct,  // of any two of up to 1000 elements, neither equal
};

struct Sample {
  Layout layout;
  Tensor whole;   // the larger tensor, dense
  Tensor tensor;  // the view that is tested
  Grid grid;      // what it holds
};

// ---- to be called within a property ----
/// 0 to max_dims sizes of 0 to 7, now and then a long one.
Index pick_sizes(int max_dims = 5);
/// Sizes that broadcast to `sizes`: some are 1, some are left out in front.
Index pick_broadcast(const Index& sizes);
/// `may_expand`: elements may share memory.
Layout pick_layout(const Index& sizes, bool may_expand = true);
/// The place of each element in the larger tensor.
Grid places_of(const Layout& layout);
/// A view of a larger tensor. Differentiable.
Tensor view_of(const Tensor& whole, const Layout& layout);
/// The tensor of a layout.
Sample make_sample(const Layout& layout, DType dtype, Values values);
Sample pick_sample(const Index& sizes, DType dtype, Values values = Values::any, bool may_expand = true);
DType pick_dtype(const std::vector<DType>& dtypes);

Shape to_shape(const Index& sizes);
Index broadcast(const Index& a, const Index& b);

/// Fails the property unless `got` has the grid's sizes and values: max|a-b| <= tolerance * max|b|, or equal for
/// integers; what the tolerance is says the dtype, unless more is allowed.
void require_equal(const Tensor& got, const Grid& expected, const std::string& what, double times = 1);

}  // namespace tandem::test
