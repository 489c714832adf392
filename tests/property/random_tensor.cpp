#include "random_tensor.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/tensor/factories.h>

#include "property.h"

namespace tandem::test {

double Grid::at(const Index& index) const {
  std::int64_t position = 0;
  for (std::size_t dim = 0; dim < index.size(); ++dim) {
    position = position * sizes[dim] + index[dim];
  }
  return values.at(static_cast<std::size_t>(position));
}

double Grid::at_broadcast(const Index& index) const {
  Index own(index.end() - static_cast<std::ptrdiff_t>(sizes.size()), index.end());
  for (std::size_t dim = 0; dim < own.size(); ++dim) {
    own[dim] = sizes[dim] == 1 ? 0 : own[dim];
  }
  return at(own);
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << fmt::format("sizes {}, memory order {}, steps {}, skipped {}, expanded {}, seed {}", layout.sizes,
                            layout.order, layout.steps, layout.skipped, layout.expanded, layout.seed);
}

void showValue(const Layout& layout, std::ostream& out) { out << layout; }

Index pick_sizes(int max_dims) {
  Index sizes(static_cast<std::size_t>(pick(0, max_dims)));
  const std::int64_t largest = sizes.size() > 3 ? 4 : 7;
  for (std::int64_t& size : sizes) {
    size = once_in(20) ? 0 : pick(1, largest);
  }
  if (!sizes.empty() && sizes.size() <= 2 && once_in(12)) {
    sizes[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(sizes.size()) - 1))] = pick(100, 1500);
  }
  return sizes;
}

Index pick_broadcast(const Index& sizes) {
  Index some = sizes;
  for (std::int64_t& size : some) {
    size = once_in(3) ? 1 : size;
  }
  if (once_in(4)) {
    some.erase(some.begin(), some.begin() + pick(0, static_cast<std::int64_t>(some.size())));
  }
  return some;
}

Layout pick_layout(const Index& sizes, bool may_expand) {
  const auto draw = [sizes, may_expand] {  // by value, because the function is called again while a case is reduced
    Layout layout{.sizes = sizes, .order = {}, .steps = {}, .skipped = {}, .expanded = {}, .seed = 0};
    layout.order = pick_order(static_cast<int>(sizes.size()));
    for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
      layout.steps.push_back(once_in(4) ? pick(2, 3) : 1);
      layout.skipped.push_back(once_in(4) ? pick(1, 2) : 0);
      layout.expanded.push_back(may_expand && once_in(6));
    }
    layout.seed = static_cast<std::uint32_t>(pick(0, 1 << 20));
    return layout;
  };
  return *rc::gen::exec(draw);
}

namespace {

std::uint32_t mixed(std::uint32_t h) {
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

double value_of(Values values, DType dtype, std::uint32_t seed, std::int64_t position) {
  const std::uint32_t h = mixed(seed * 0x9E3779B9u + static_cast<std::uint32_t>(position));
  if (dtype == DType::boolean) {
    return h & 1;
  }
  const double sign = (h & 1) != 0 && dtype != DType::u8 ? -1 : 1;
  const double size = static_cast<double>((h >> 1) & 127);
  const bool whole = !is_floating_point(dtype);
  switch (values) {
    case Values::any: return whole ? sign * std::floor(size / 8) : sign * size / 16;
    case Values::positive: return whole ? std::floor(size / 8) + 1 : size / 16 + 0.25;
    case Values::nonzero: return sign * (whole ? std::floor(size / 8) + 1 : size / 16 + 0.25);
    case Values::distinct: return static_cast<double>((position * 389 + seed) % 1009) - 500;
  }
  return 0;
}

}  // namespace

namespace {

// Along a dimension of the larger tensor: the number of elements that the view uses, and the total number, with an
// occasional extra element at the end.
std::int64_t used_along(const Layout& layout, std::size_t dim) { return layout.expanded[dim] ? 1 : layout.sizes[dim]; }
std::int64_t end_along(const Layout& layout, std::size_t dim) {
  const std::int64_t used = used_along(layout, dim);
  return layout.skipped[dim] + (used == 0 ? 0 : (used - 1) * layout.steps[dim] + 1);
}
std::int64_t whole_along(const Layout& layout, std::size_t dim) {
  return end_along(layout, dim) + used_along(layout, dim) % 2;
}

// The sizes of the larger tensor, in memory order.
Shape whole_sizes(const Layout& layout) {
  Shape sizes;
  for (const int dim : layout.order) {
    sizes.push_back(whole_along(layout, static_cast<std::size_t>(dim)));
  }
  return sizes;
}

}  // namespace

Grid places_of(const Layout& layout) {
  Index strides(layout.sizes.size());
  std::int64_t count = 1;
  for (std::size_t k = layout.order.size(); k-- > 0;) {
    const auto dim = static_cast<std::size_t>(layout.order[k]);
    strides[dim] = count;
    count *= whole_along(layout, dim);
  }
  return grid_of(layout.sizes, [&](const Index& index) {
    std::int64_t place = 0;
    for (std::size_t dim = 0; dim < index.size(); ++dim) {
      const std::int64_t along = layout.expanded[dim] ? 0 : index[dim] * layout.steps[dim];
      place += (layout.skipped[dim] + along) * strides[dim];
    }
    return static_cast<double>(place);
  });
}

Tensor view_of(const Tensor& whole, const Layout& layout) {
  Tensor view = whole;
  Shape back = Shape::filled(static_cast<int>(layout.sizes.size()), 0);
  for (std::size_t k = 0; k < layout.order.size(); ++k) {
    const auto dim = static_cast<std::size_t>(layout.order[k]);
    view = view.slice(static_cast<int>(k), layout.skipped[dim], end_along(layout, dim), layout.steps[dim]);
    back[static_cast<int>(dim)] = static_cast<std::int64_t>(k);
  }
  return view.permute(back).expand(to_shape(layout.sizes));
}

Sample make_sample(const Layout& layout, DType dtype, Values values) {
  const Shape dense = whole_sizes(layout);
  std::vector<double> numbers(static_cast<std::size_t>(dense.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = value_of(values, dtype, layout.seed, static_cast<std::int64_t>(i));
  }
  const Tensor whole = from_data(numbers, dense).to(dtype);
  Grid grid = places_of(layout);
  for (double& place : grid.values) {
    place = numbers[static_cast<std::size_t>(place)];
  }
  return {layout, whole, view_of(whole, layout), std::move(grid)};
}

Sample pick_sample(const Index& sizes, DType dtype, Values values, bool may_expand) {
  return make_sample(pick_layout(sizes, may_expand), dtype, values);
}

DType pick_dtype(const std::vector<DType>& dtypes) { return one_of(dtypes); }

Shape to_shape(const Index& sizes) { return Shape(sizes); }
Shape to_shape(const std::vector<int>& dims) { return Shape(Index(dims.begin(), dims.end())); }

Index broadcast(const Index& a, const Index& b) {
  Index result = a.size() >= b.size() ? a : b;
  const Index& shorter = a.size() >= b.size() ? b : a;
  for (std::size_t i = 1; i <= shorter.size(); ++i) {
    std::int64_t& size = result[result.size() - i];
    size = size == 1 ? shorter[shorter.size() - i] : size;
  }
  return result;
}

void require_equal(const Tensor& got, const Grid& expected, const std::string& what, double times) {
  if (got.shape() != to_shape(expected.sizes)) {
    RC_FAIL(fmt::format("{}: shape {}, expected {}", what, to_string(got.shape()), expected.sizes));
  }
  const std::vector<double> values = got.to_vector<double>();
  double largest = 0;
  for (const double value : expected.values) {
    largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  }
  double share = 0;
  switch (got.dtype()) {
    case DType::f64: share = 1e-12; break;
    case DType::f32: share = 1e-6; break;
    case DType::bf16: share = 0x1p-8; break;  // at least half a unit in the last place
    case DType::f16: share = 0x1p-11; break;
    default: break;
  }
  double allowed = times * share * (largest > 0 ? largest : 1);
  if (got.dtype() != DType::f64 && is_floating_point(got.dtype())) {
    allowed = std::max(allowed, got.dtype() == DType::f16 ? 0x1p-25 : 0x1p-126);  // smallest numbers
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double wanted = expected.values[i];
    const bool same = values[i] == wanted || (std::isnan(values[i]) && std::isnan(wanted));
    if (!same && !(std::abs(values[i] - wanted) <= allowed)) {
      RC_FAIL(
          fmt::format("{}: element {} is {}, expected {}; {} away is allowed", what, i, values[i], wanted, allowed));
    }
  }
}

}  // namespace tandem::test
