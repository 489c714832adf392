#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/gradcheck.h>
#include <tandem/autograd/ops.h>

#include "property.h"
#include "random_tensor.h"

// Gradients of random compositions, compared with central differences and, where one is known, with a formula.

namespace tandem {
namespace {

using test::check_property;
using test::for_each_index;
using test::Grid;
using test::grid_of;
using test::Index;
using test::once_in;
using test::pick;
using test::pick_broadcast;
using test::pick_dtype;
using test::pick_order;
using test::pick_sample;
using test::pick_sizes;
using test::places_of;
using test::require_equal;
using test::Sample;
using test::to_shape;
using test::Values;
using test::view_of;
using enum DType;

using SmoothStep = std::function<Tensor(const Tensor& x, const Tensor& y)>;

// Smooth functions of the previous result and a second input, with results of about 1. Their parameters are drawn here.
SmoothStep pick_step(int ndim) {
  const auto dim = static_cast<int>(ndim > 0 ? pick(0, ndim - 1) : 0);
  const std::int64_t which = pick(0, ndim > 0 ? 15 : 7);
  switch (which) {
    case 0: return [](const Tensor& x, const Tensor& y) { return x * y; };
    case 1: return [](const Tensor& x, const Tensor& y) { return x + y; };
    case 2: return [](const Tensor& x, const Tensor& y) { return y - x * 0.5; };
    case 3: return [](const Tensor& x, const Tensor& y) { return x / (y * y + 1); };
    case 4: return [](const Tensor& x, const Tensor&) { return x.tanh(); };
    case 5: return [](const Tensor& x, const Tensor&) { return x.sigmoid() * x; };
    case 6: return [](const Tensor& x, const Tensor&) { return gelu(x * 0.5); };
    case 7: return [](const Tensor& x, const Tensor&) { return (x * x + 1).log(); };
    case 8: return [dim](const Tensor& x, const Tensor&) { return x.softmax(dim); };
    case 9: return [dim](const Tensor& x, const Tensor&) { return x.logsumexp({dim}, true).expand(x.shape()); };
    case 10: return [dim](const Tensor& x, const Tensor&) { return x - x.mean(dim, true); };
    case 11: return [dim](const Tensor& x, const Tensor&) { return (x * x + 1).sum(dim, true).sqrt() + x; };
    case 12:
      return [dim](const Tensor& x, const Tensor& y) {
        return cat({x, x * y}, dim).narrow(dim, x.shape()[dim] / 2, x.shape()[dim]);
      };
    case 13:
      return [dim](const Tensor& x, const Tensor&) {
        return x.slice(dim, 0, x.shape()[dim], 2).sum(dim, true).expand(x.shape()) + x;
      };
    case 14: {
      const Shape order = to_shape(pick_order(ndim));
      return [order](const Tensor& x, const Tensor&) { return x.permute(order).sin().reshape(x.shape()); };
    }
    default: return [](const Tensor& x, const Tensor&) { return (x.flatten() * 0.5).cos().reshape(x.shape()); };
  }
}

Index pick_small_sizes() {
  Index sizes(static_cast<std::size_t>(pick(0, 3)));
  for (std::int64_t& size : sizes) {
    size = pick(1, 3);
  }
  return sizes;
}

TEST(GradientProperty, CompositionsEqualCentralDifferences) {
  check_property(1500, [] {
    const Index sizes = pick_small_sizes();
    const Sample x = pick_sample(sizes, f64, Values::any, false);
    const Sample y = pick_sample(pick_broadcast(sizes), f64, Values::any, false);
    std::vector<SmoothStep> steps;
    for (std::int64_t count = pick(1, 4); count > 0; --count) {
      steps.push_back(pick_step(static_cast<int>(sizes.size())));
    }
    const auto composed = [x_layout = x.layout, y_layout = y.layout, steps](const std::vector<Tensor>& leaves) {
      Tensor value = view_of(leaves[0], x_layout);
      const Tensor other = view_of(leaves[1], y_layout).expand(value.shape());
      for (const SmoothStep& step : steps) {
        value = step(value, other);
      }
      return value;
    };
    autograd::gradcheck(composed, {(x.whole / 8).requires_grad_(), (y.whole / 8).requires_grad_()});
  });
}

TEST(GradientProperty, ElementsOfAViewAddUpWhereTheyLie) {
  check_property(5000, [] {
    const Sample x = pick_sample(pick_sizes(4), pick_dtype({f64, f32}));
    const Sample g = pick_sample(x.grid.sizes, x.tensor.dtype());
    const Tensor leaf = x.whole.clone().requires_grad_();
    view_of(leaf, x.layout).backward(g.tensor);
    Grid expected{Index(leaf.shape().begin(), leaf.shape().end()),
                  std::vector<double>(static_cast<std::size_t>(leaf.numel()))};
    const Grid places = places_of(x.layout);
    for (std::size_t i = 0; i < places.values.size(); ++i) {
      expected.values[static_cast<std::size_t>(places.values[i])] += g.grid.values[i];
    }
    require_equal(leaf.grad(), expected, "gradient of a view");
  });
}

// The sum of `grid` over the dimensions along which `sizes` broadcasts to it.
Grid summed_to(const Index& sizes, const Grid& grid) {
  Grid sums = grid_of(sizes, [](const Index&) { return 0.0; });
  for_each_index(grid.sizes, [&](const Index& index) {
    const std::size_t missing = index.size() - sizes.size();
    std::int64_t position = 0;
    for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
      position = position * sizes[dim] + (sizes[dim] == 1 ? 0 : index[missing + dim]);
    }
    sums.values[static_cast<std::size_t>(position)] += grid.at(index);
  });
  return sums;
}

TEST(GradientProperty, BroadcastOperandsGetTheSum) {
  check_property(6000, [] {
    const Index sizes = pick_sizes(4);
    const DType dtype = pick_dtype({f64, f32});
    const Sample a = pick_sample(sizes, dtype, Values::positive);
    const Sample b = pick_sample(pick_broadcast(sizes), dtype, Values::positive);
    const Sample g = pick_sample(sizes, dtype, Values::positive);
    const Tensor x = a.tensor.clone().requires_grad_();
    const Tensor y = b.tensor.clone().requires_grad_();
    const bool divide = once_in(2);
    const bool swap = once_in(2) && !divide;
    (divide ? x / y : swap ? y * x : x * y).backward(g.tensor);
    require_equal(x.grad(),
                  grid_of(sizes,
                          [&](const Index& i) {
                            const double other = b.grid.at_broadcast(i);
                            return g.grid.at(i) * (divide ? 1 / other : other);
                          }),
                  "gradient of the larger");
    require_equal(y.grad(),
                  summed_to(b.grid.sizes, grid_of(sizes,
                                                  [&](const Index& i) {
                                                    const double other = b.grid.at_broadcast(i);
                                                    return g.grid.at(i) * a.grid.at(i) *
                                                           (divide ? -1 / other / other : 1);
                                                  })),
                  "gradient of the one that broadcasts");
  });
}

}  // namespace
}  // namespace tandem
