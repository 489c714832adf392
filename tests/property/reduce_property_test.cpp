#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>

#include "property.h"
#include "random_tensor.h"

// Reductions and softmax, compared with sums over index tuples in f64.

namespace tandem {
namespace {

using test::check_property;
using test::for_each_index;
using test::Grid;
using test::grid_of;
using test::Index;
using test::kFloating;
using test::kNumbers;
using test::once_in;
using test::one_of;
using test::pick;
using test::pick_dtype;
using test::pick_order;
using test::pick_sample;
using test::pick_sizes;
using test::require_equal;
using test::Sample;
using test::to_shape;
using test::Values;
using enum DType;

// Some dimensions in any order, some of them counted from the end. An empty list means all dimensions.
std::vector<int> pick_dims(int ndim) {
  std::vector<int> dims = pick_order(ndim);
  dims.resize(static_cast<std::size_t>(pick(0, ndim)));
  for (int& dim : dims) {
    dim -= once_in(3) ? ndim : 0;
  }
  return dims;
}

// The input of the naive reductions: for each result, its elements in row-major order.
struct Groups {
  Index sizes;  // sizes of the result
  std::vector<std::vector<double>> values;
};

Groups grouped(const Grid& grid, const std::vector<int>& dims, bool keepdim) {
  std::vector<bool> reduced(grid.sizes.size(), dims.empty());
  for (const int dim : dims) {
    reduced[static_cast<std::size_t>(dim < 0 ? dim + grid.dim() : dim)] = true;
  }
  Index kept = grid.sizes;
  Index inner = grid.sizes;
  Groups groups;
  for (std::size_t dim = 0; dim < kept.size(); ++dim) {
    (reduced[dim] ? kept : inner)[dim] = 1;
    if (!reduced[dim] || keepdim) {
      groups.sizes.push_back(reduced[dim] ? 1 : grid.sizes[dim]);
    }
  }
  for_each_index(kept, [&](const Index& outer) {
    groups.values.emplace_back();
    for_each_index(inner, [&](const Index& at) {
      Index index = outer;
      for (std::size_t dim = 0; dim < index.size(); ++dim) {
        index[dim] += at[dim];
      }
      groups.values.back().push_back(grid.at(index));
    });
  });
  return groups;
}

template <class Naive>
Grid reduced_by(const Groups& groups, Naive&& naive) {
  Grid grid{groups.sizes, {}};
  for (const std::vector<double>& values : groups.values) {
    grid.values.push_back(naive(values));
  }
  return grid;
}

double total(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
double mean(const std::vector<double>& values) { return total(values) / static_cast<double>(values.size()); }

double variance(const std::vector<double>& values, double correction) {
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) {
    sum += (value - middle) * (value - middle);
  }
  return sum / std::max(0.0, static_cast<double>(values.size()) - correction);
}

TEST(ReduceProperty, SumsAndMeansOverAnyDimensions) {
  check_property(9000, [] {
    const DType dtype = pick_dtype(kNumbers);
    const Sample x = pick_sample(pick_sizes(), dtype, Values::positive);  // a sum near 0 has no relative accuracy
    const std::vector<int> dims = pick_dims(x.grid.dim());
    const bool keepdim = once_in(2);
    const Groups groups = grouped(x.grid, dims, keepdim);
    const Tensor sum = x.tensor.sum(to_shape(dims), keepdim);
    RC_ASSERT(sum.dtype() == (is_floating_point(dtype) ? dtype : i64));
    require_equal(sum, reduced_by(groups, total), "sum");
    if (is_floating_point(dtype)) {
      require_equal(x.tensor.mean(to_shape(dims), keepdim), reduced_by(groups, mean), "mean");
    }
  });
}

TEST(ReduceProperty, DeviationsAndNorms) {
  check_property(6000, [] {
    const DType dtype = pick_dtype(kFloating);
    const Sample x = pick_sample(pick_sizes(4), dtype, Values::nonzero);
    const std::vector<int> dims = pick_dims(x.grid.dim());
    const bool keepdim = once_in(2);
    const Groups groups = grouped(x.grid, dims, keepdim);
    switch (pick(0, 3)) {
      case 0: {
        const std::int64_t correction = pick(0, 1);
        require_equal(
            x.tensor.var(to_shape(dims), correction, keepdim),
            reduced_by(groups, [&](const auto& values) { return variance(values, static_cast<double>(correction)); }),
            "var");
        break;
      }
      case 1: {
        const auto naive = [](const auto& values) { return std::sqrt(variance(values, 0)); };
        require_equal(x.tensor.std(to_shape(dims), 0, keepdim), reduced_by(groups, naive), "std");
        break;
      }
      case 2: {
        const double p = one_of<double>({1, 2, 3});
        const auto naive = [&](const auto& values) {
          double sum = 0;
          for (const double value : values) {
            sum += std::pow(std::abs(value), p);
          }
          return std::pow(sum, 1 / p);
        };
        require_equal(x.tensor.norm(p, to_shape(dims), keepdim), reduced_by(groups, naive), "norm");
        break;
      }
      default: {
        const auto naive = [](const auto& values) {
          double sum = 0;
          for (const double value : values) {
            sum += std::exp(value);
          }
          return std::log(sum);
        };
        require_equal(x.tensor.logsumexp(to_shape(dims), keepdim), reduced_by(groups, naive), "logsumexp");
      }
    }
  });
}

TEST(ReduceProperty, ExtremesAndWhereTheyAre) {
  check_property(7000, [] {
    const DType dtype = pick_dtype(kNumbers);
    Index sizes = pick_sizes();
    for (std::int64_t& size : sizes) {
      size = std::max<std::int64_t>(size, 1);  // an empty tensor has no extreme values
    }
    const Sample x = pick_sample(sizes, dtype);  // with equal values among them
    const bool keepdim = once_in(2);
    const bool max = once_in(2);
    const auto extreme = [&](const std::vector<double>& values) {
      return max ? std::max_element(values.begin(), values.end()) : std::min_element(values.begin(), values.end());
    };
    const std::vector<int> dims = pick_dims(x.grid.dim());
    require_equal(max ? x.tensor.amax(to_shape(dims), keepdim) : x.tensor.amin(to_shape(dims), keepdim),
                  reduced_by(grouped(x.grid, dims, keepdim), [&](const auto& values) { return *extreme(values); }),
                  "amax or amin");
    if (x.grid.dim() > 0) {
      const auto dim = pick(-x.grid.dim(), x.grid.dim() - 1);
      const Groups along = grouped(x.grid, {static_cast<int>(dim)}, keepdim);
      require_equal(
          max ? x.tensor.argmax(dim, keepdim) : x.tensor.argmin(dim, keepdim),
          reduced_by(along, [&](const auto& values) { return static_cast<double>(extreme(values) - values.begin()); }),
          "argmax or argmin");
      require_equal(max ? x.tensor.max(dim, keepdim) : x.tensor.min(dim, keepdim),
                    reduced_by(along, [&](const auto& values) { return *extreme(values); }), "max or min");
    }
    require_equal(max ? x.tensor.argmax() : x.tensor.argmin(),
                  Grid{{}, {static_cast<double>(extreme(x.grid.values) - x.grid.values.begin())}}, "position");
    require_equal(
        x.tensor.any(),
        Grid{
            {},
            {double(std::any_of(x.grid.values.begin(), x.grid.values.end(), [](double value) { return value != 0; }))}},
        "any");
  });
}

TEST(ReduceProperty, SoftmaxAlongAnyDimension) {
  check_property(7000, [] {
    const DType dtype = pick_dtype(kFloating);
    Index sizes = pick_sizes(4);
    if (sizes.empty()) {
      sizes.push_back(pick(0, 7));
    }
    const Sample x = pick_sample(sizes, dtype);
    const int ndim = x.grid.dim();
    const auto dim = static_cast<int>(pick(-ndim, ndim - 1));
    const auto along = static_cast<std::size_t>(dim < 0 ? dim + ndim : dim);
    const bool log = once_in(2);
    const Groups groups = grouped(x.grid, {dim}, true);
    const Grid sums = reduced_by(groups, [](const auto& values) {
      double sum = 0;
      for (const double value : values) {
        sum += std::exp(value);
      }
      return sum;
    });
    const Grid expected = grid_of(sizes, [&](const Index& i) {
      Index group = i;
      group[along] = 0;
      const double share = std::exp(x.grid.at(i)) / sums.at(group);
      return log ? std::log(share) : share;
    });
    require_equal(log ? x.tensor.log_softmax(dim) : x.tensor.softmax(dim), expected, log ? "log_softmax" : "softmax");
  });
}

}  // namespace
}  // namespace tandem
