#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/tensor/factories.h>

#include "property.h"
#include "random_tensor.h"

// Selecting by index, joining and splitting, compared with loops over index tuples.

namespace tandem {
namespace {

using test::check_property;
using test::for_each_index;
using test::Grid;
using test::grid_of;
using test::Index;
using test::kAll;
using test::once_in;
using test::pick;
using test::pick_dtype;
using test::pick_sample;
using test::pick_sizes;
using test::require_equal;
using test::Sample;
using enum DType;

const std::vector<DType> kSummed{f64, f32, i64, i32};

// A tensor with at least one dimension, and a selected dimension: `dim` as passed to an op, `along` counted from the
// front.
struct Target {
  Sample x;
  int dim;
  std::size_t along;
};

Target pick_target(const std::vector<DType>& dtypes, std::int64_t smallest = 0) {
  Index sizes = pick_sizes(4);
  if (sizes.empty()) {
    sizes.push_back(pick(0, 7));
  }
  const auto ndim = static_cast<int>(sizes.size());
  const auto dim = static_cast<int>(pick(-ndim, ndim - 1));
  const auto along = static_cast<std::size_t>(dim < 0 ? dim + ndim : dim);
  sizes[along] = std::max(sizes[along], smallest);
  return {pick_sample(sizes, pick_dtype(dtypes)), dim, along};
}

// i64 numbers in [0, end), in any layout.
Sample pick_indices(const Index& sizes, std::int64_t end) {
  Sample index = pick_sample(sizes, i64);
  for (double& value : index.grid.values) {
    value = std::abs(value) - static_cast<double>(static_cast<std::int64_t>(std::abs(value)) / end * end);
  }
  // Values are brought into range in place, because the layout's own memory keeps its strides.
  std::vector<std::int64_t> numbers = index.whole.to_vector<std::int64_t>();
  for (std::int64_t& number : numbers) {
    number = std::abs(number) % end;
  }
  index.whole.copy_(from_data(numbers, index.whole.shape()));
  return index;
}

TEST(IndexProperty, IndexSelect) {
  check_property(5000, [] {
    const Target t = pick_target(kAll, 1);
    const Sample index = pick_indices({pick(0, 9)}, t.x.grid.sizes[t.along]);
    Index sizes = t.x.grid.sizes;
    sizes[t.along] = index.grid.numel();
    const Grid expected = grid_of(sizes, [&](const Index& i) {
      Index from = i;
      from[t.along] = static_cast<std::int64_t>(index.grid.at({i[t.along]}));
      return t.x.grid.at(from);
    });
    require_equal(t.x.tensor.index_select(t.dim, index.tensor), expected, "index_select");
  });
}

// The sizes of an index: at most those of the tensor, except along the dimension.
Index pick_index_sizes(const Target& t) {
  Index sizes = t.x.grid.sizes;
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    sizes[dim] = dim == t.along ? pick(0, 7) : sizes[dim] - (once_in(4) && sizes[dim] > 0 ? 1 : 0);
  }
  return sizes;
}

TEST(IndexProperty, Gather) {
  check_property(5000, [] {
    const Target t = pick_target(kAll, 1);
    const Sample index = pick_indices(pick_index_sizes(t), t.x.grid.sizes[t.along]);
    const Grid expected = grid_of(index.grid.sizes, [&](const Index& i) {
      Index from = i;
      from[t.along] = static_cast<std::int64_t>(index.grid.at(i));
      return t.x.grid.at(from);
    });
    require_equal(t.x.tensor.gather(t.dim, index.tensor), expected, "gather");
  });
}

TEST(IndexProperty, ScatterAdd) {
  check_property(5000, [] {
    const Target t = pick_target(kSummed, 1);
    const Sample index = pick_indices(pick_index_sizes(t), t.x.grid.sizes[t.along]);
    Index larger = index.grid.sizes;
    for (std::int64_t& size : larger) {
      size += once_in(4) ? 1 : 0;
    }
    const Sample source = pick_sample(larger, t.x.tensor.dtype());
    Grid expected = t.x.grid;
    for_each_index(index.grid.sizes, [&](const Index& i) {
      Index to = i;
      to[t.along] = static_cast<std::int64_t>(index.grid.at(i));
      std::int64_t position = 0;
      for (std::size_t dim = 0; dim < to.size(); ++dim) {
        position = position * expected.sizes[dim] + to[dim];
      }
      expected.values[static_cast<std::size_t>(position)] += source.grid.at(i);
    });
    require_equal(t.x.tensor.scatter_add(t.dim, index.tensor, source.tensor), expected, "scatter_add");
  });
}

TEST(JoinProperty, CatAndItsPartsBack) {
  check_property(5000, [] {
    const Target first = pick_target(kAll);
    std::vector<Sample> parts{first.x};
    for (std::int64_t more = pick(0, 3); more > 0; --more) {
      Index sizes = first.x.grid.sizes;
      sizes[first.along] = pick(0, 5);
      parts.push_back(pick_sample(sizes, first.x.tensor.dtype()));
    }
    std::vector<Tensor> tensors;
    std::vector<std::int64_t> lengths;
    Index sizes = first.x.grid.sizes;
    sizes[first.along] = 0;
    for (const Sample& part : parts) {
      tensors.push_back(part.tensor);
      lengths.push_back(part.grid.sizes[first.along]);
      sizes[first.along] += lengths.back();
    }
    const Tensor whole = cat(tensors, first.dim);
    require_equal(whole,
                  grid_of(sizes,
                          [&](const Index& i) {
                            Index at = i;
                            std::size_t part = 0;
                            while (at[first.along] >= lengths[part]) {
                              at[first.along] -= lengths[part++];
                            }
                            return parts[part].grid.at(at);
                          }),
                  "cat");
    const std::vector<Tensor> again = whole.split(lengths, first.dim);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      require_equal(again[i], parts[i].grid, "split");
    }
  });
}

TEST(JoinProperty, StackAndSelectBack) {
  check_property(4000, [] {
    const Index sizes = pick_sizes(4);
    const DType dtype = pick_dtype(kAll);
    const auto ndim = static_cast<int>(sizes.size());
    const auto dim = static_cast<int>(pick(-ndim - 1, ndim));
    std::vector<Sample> rows;
    std::vector<Tensor> tensors;
    for (std::int64_t count = pick(1, 4); count > 0; --count) {
      rows.push_back(pick_sample(sizes, dtype));
      tensors.push_back(rows.back().tensor);
    }
    const std::ptrdiff_t along = dim < 0 ? dim + ndim + 1 : dim;
    Index stacked = sizes;
    stacked.insert(stacked.begin() + along, static_cast<std::int64_t>(rows.size()));
    const Tensor whole = stack(tensors, dim);
    require_equal(whole,
                  grid_of(stacked,
                          [&](const Index& i) {
                            Index at = i;
                            at.erase(at.begin() + along);
                            return rows[static_cast<std::size_t>(i[static_cast<std::size_t>(along)])].grid.at(at);
                          }),
                  "stack");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      require_equal(whole.select(dim, static_cast<std::int64_t>(i)), rows[i].grid, "select");
    }
  });
}

TEST(JoinProperty, MaskedSelectAndNonzeroKeepTheOrder) {
  check_property(4000, [] {
    const Sample x = pick_sample(pick_sizes(4), pick_dtype(kAll));
    const Sample mask = pick_sample(test::pick_broadcast(x.grid.sizes), boolean);
    Grid chosen{{0}, {}};
    Grid positions{{0, x.grid.dim()}, {}};
    for_each_index(x.grid.sizes, [&](const Index& i) {
      if (mask.grid.at_broadcast(i) != 0) {
        chosen.values.push_back(x.grid.at(i));
        ++chosen.sizes[0];
      }
      if (x.grid.at(i) != 0) {
        positions.values.insert(positions.values.end(), i.begin(), i.end());
        ++positions.sizes[0];
      }
    });
    require_equal(x.tensor.masked_select(mask.tensor), chosen, "masked_select");
    require_equal(x.tensor.nonzero(), positions, "nonzero");
  });
}

}  // namespace
}  // namespace tandem
