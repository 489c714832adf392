#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>

#include "property.h"
#include "random_tensor.h"

// Matrix products, compared with three loops in f64.

namespace tandem {
namespace {

using test::broadcast;
using test::check_property;
using test::Grid;
using test::grid_of;
using test::Index;
using test::kFloating;
using test::once_in;
using test::pick;
using test::pick_broadcast;
using test::pick_dtype;
using test::pick_sample;
using test::require_equal;
using test::Sample;
using test::Values;
using enum DType;

std::int64_t pick_size() { return once_in(12) ? pick(8, 40) : once_in(20) ? 0 : pick(1, 7); }

// Values are positive, because a sum near 0 has no relative accuracy.
Grid naive_product(const Grid& a, const Grid& b, const Index& batch, std::int64_t m, std::int64_t k, std::int64_t n) {
  Index sizes = batch;
  sizes.insert(sizes.end(), {m, n});
  return grid_of(sizes, [&](const Index& index) {
    Index left = index;
    Index right = index;
    double sum = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      left.back() = i;
      right[right.size() - 2] = i;
      sum += a.at_broadcast(left) * b.at_broadcast(right);
    }
    return sum;
  });
}

TEST(MatmulProperty, BatchesBroadcast) {
  check_property(10000, [] {
    const DType dtype = pick_dtype(kFloating);
    const std::int64_t m = pick_size();
    const std::int64_t k = pick_size();
    const std::int64_t n = pick_size();
    Index batch(static_cast<std::size_t>(pick(0, 3)));
    for (std::int64_t& size : batch) {
      size = once_in(20) ? 0 : pick(1, 3);
    }
    Index left = batch;
    Index right = pick_broadcast(batch);
    if (once_in(2)) {
      std::swap(left, right);
    }
    left.insert(left.end(), {m, k});
    right.insert(right.end(), {k, n});
    const Sample a = pick_sample(left, dtype, Values::positive);
    const Sample b = pick_sample(right, dtype, Values::positive);
    // Sizes of 1 in both operands broadcast to 1.
    Index full = broadcast(Index(left.begin(), left.end() - 2), Index(right.begin(), right.end() - 2));
    require_equal(a.tensor.matmul(b.tensor), naive_product(a.grid, b.grid, full, m, k, n), "matmul");
  });
}

TEST(MatmulProperty, VectorsAreRowsOrColumns) {
  check_property(4000, [] {
    const DType dtype = pick_dtype(kFloating);
    const std::int64_t m = pick_size();
    const std::int64_t k = pick_size();
    const Sample matrix = pick_sample({m, k}, dtype, Values::positive);
    const Sample right = pick_sample({k}, dtype, Values::positive);
    const Sample left = pick_sample({m}, dtype, Values::positive);
    const Grid column{{k, 1}, right.grid.values};
    const Grid row{{1, m}, left.grid.values};
    Grid times_column = naive_product(matrix.grid, column, {}, m, k, 1);
    times_column.sizes = {m};
    Grid row_times = naive_product(row, matrix.grid, {}, 1, m, k);
    row_times.sizes = {k};
    require_equal(matrix.tensor.matmul(right.tensor), times_column, "matrix times vector");
    require_equal(left.tensor.matmul(matrix.tensor), row_times, "vector times matrix");
    if (m == k) {
      Grid dot = naive_product(row, column, {}, 1, k, 1);
      dot.sizes = {};
      require_equal(left.tensor.matmul(right.tensor), dot, "vector times vector");
    }
  });
}

TEST(MatmulProperty, LinearIsAProductAndABias) {
  check_property(4000, [] {
    const DType dtype = pick_dtype(kFloating);
    const std::int64_t in = pick_size();
    const std::int64_t out = pick_size();
    Index sizes(static_cast<std::size_t>(pick(0, 3)));
    for (std::int64_t& size : sizes) {
      size = once_in(20) ? 0 : pick(1, 5);
    }
    Index result = sizes;
    sizes.push_back(in);
    result.push_back(out);
    const Sample x = pick_sample(sizes, dtype, Values::positive);
    const Sample weight = pick_sample({out, in}, dtype, Values::positive);
    const Sample bias = pick_sample({out}, dtype, Values::positive);
    const bool with_bias = once_in(2);
    const Grid expected = grid_of(result, [&](const Index& index) {
      Index at = index;
      double sum = with_bias ? bias.grid.at({index.back()}) : 0;
      for (std::int64_t i = 0; i < in; ++i) {
        at.back() = i;
        sum += x.grid.at(at) * weight.grid.at({index.back(), i});
      }
      return sum;
    });
    require_equal(linear(x.tensor, weight.tensor, with_bias ? bias.tensor : Tensor()), expected, "linear");
  });
}

}  // namespace
}  // namespace tandem
