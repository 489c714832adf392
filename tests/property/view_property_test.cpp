#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>
#include <tandem/tensor/view.h>

#include "property.h"
#include "support/memory.h"

// Random chains of views, compared with an oracle that stores the memory position of every element.

namespace tandem {
namespace {

using test::check_property;
using test::memory_of;
using test::once_in;
using test::pick;
using test::pick_order;
using Places = std::vector<std::int64_t>;

/// A tensor as a list of positions in row-major order, the simplest representation of a view.
struct Oracle {
  Shape sizes;
  Places places;
};

// The oracle's elements rearranged: `place_of` maps an index in the new shape to an old position.
template <class PlaceOf>
Oracle gathered(const Shape& sizes, PlaceOf&& place_of) {
  Oracle result{sizes, {}};
  std::vector<std::int64_t> index(sizes.size());
  const std::int64_t count = sizes.numel();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    for (std::size_t dim = sizes.size(); dim-- > 0;) {
      index[dim] = rest % sizes[static_cast<int>(dim)];
      rest /= sizes[static_cast<int>(dim)];
    }
    result.places.push_back(place_of(index));
  }
  return result;
}

std::int64_t at(const Oracle& oracle, const std::vector<std::int64_t>& index) {
  std::int64_t position = 0;
  for (std::size_t dim = 0; dim < index.size(); ++dim) {
    position = position * oracle.sizes[static_cast<int>(dim)] + index[dim];
  }
  return oracle.places[static_cast<std::size_t>(position)];
}

struct Pair {
  Tensor tensor;
  Oracle oracle;
};

Pair permuted(const Pair& x) {
  const std::vector<int> chosen = pick_order(x.oracle.sizes.ndim());
  const std::vector<std::int64_t> order(chosen.begin(), chosen.end());
  Shape sizes;
  for (const std::int64_t dim : order)
    sizes.push_back(x.oracle.sizes[static_cast<int>(dim)]);
  return {x.tensor.permute(Shape(std::span<const std::int64_t>(order))),
          gathered(sizes, [&](const std::vector<std::int64_t>& index) {
            std::vector<std::int64_t> old(index.size());
            for (std::size_t i = 0; i < index.size(); ++i)
              old[static_cast<std::size_t>(order[i])] = index[i];
            return at(x.oracle, old);
          })};
}

Pair sliced(const Pair& x) {
  if (x.oracle.sizes.empty()) return x;
  const auto dim = static_cast<int>(pick(0, x.oracle.sizes.ndim() - 1));
  const std::int64_t size = x.oracle.sizes[dim];
  const std::int64_t start = pick(0, size);
  const std::int64_t end = pick(start, size);
  const std::int64_t step = pick(1, 3);
  Shape sizes = x.oracle.sizes;
  sizes[dim] = (end - start + step - 1) / step;
  return {x.tensor.slice(dim, start, end, step), gathered(sizes, [&](std::vector<std::int64_t> index) {
            index[static_cast<std::size_t>(dim)] = start + step * index[static_cast<std::size_t>(dim)];
            return at(x.oracle, index);
          })};
}

Pair selected(const Pair& x) {
  if (x.oracle.sizes.empty()) return x;
  const auto dim = static_cast<int>(pick(0, x.oracle.sizes.ndim() - 1));
  if (x.oracle.sizes[dim] == 0) return x;
  const std::int64_t chosen = pick(0, x.oracle.sizes[dim] - 1);
  Shape sizes = x.oracle.sizes;
  sizes.erase(dim);
  return {x.tensor.select(dim, chosen), gathered(sizes, [&](std::vector<std::int64_t> index) {
            index.insert(index.begin() + dim, chosen);
            return at(x.oracle, index);
          })};
}

Pair unsqueezed(const Pair& x) {
  if (x.oracle.sizes.ndim() >= 6) return x;
  const auto dim = static_cast<int>(pick(0, x.oracle.sizes.ndim()));
  Shape sizes = x.oracle.sizes;
  sizes.insert(dim, 1);
  return {x.tensor.unsqueeze(dim), {sizes, x.oracle.places}};
}

Pair squeezed(const Pair& x) {
  Shape sizes;
  for (const std::int64_t size : x.oracle.sizes) {
    if (size != 1) sizes.push_back(size);
  }
  return {x.tensor.squeeze(), {sizes, x.oracle.places}};
}

Pair expanded(const Pair& x) {
  Shape sizes = x.oracle.sizes;
  for (int dim = 0; dim < sizes.ndim(); ++dim) {
    if (sizes[dim] == 1) sizes[dim] = pick(0, 3);
  }
  const bool longer = sizes.ndim() < 6 && once_in(2);
  if (longer) sizes.insert(0, pick(1, 2));
  return {x.tensor.expand(sizes), gathered(sizes, [&](std::vector<std::int64_t> index) {
            if (longer) index.erase(index.begin());
            for (std::size_t dim = 0; dim < index.size(); ++dim) {
              if (x.oracle.sizes[static_cast<int>(dim)] == 1) index[dim] = 0;
            }
            return at(x.oracle, index);
          })};
}

// A random shape with the same number of elements.
Shape random_cut(std::int64_t count) {
  Shape sizes;
  if (count == 0) return Shape{pick(0, 3), 0};
  while (count > 1 && sizes.ndim() < 5) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= count; ++d) {
      if (count % d == 0) divisors.push_back(d);
    }
    const std::int64_t size = test::one_of(divisors);
    sizes.push_back(size);
    count /= size;
  }
  if (count > 1) sizes.push_back(count);
  if (sizes.ndim() < 6 && once_in(3)) sizes.insert(static_cast<int>(pick(0, sizes.ndim())), 1);
  return sizes;
}

/// Whether strides exist under which `places` are the elements of `sizes` in row-major order.
bool is_strided(const Places& places, const Shape& sizes) {
  const Shape dense = contiguous_strides(sizes);
  Shape strides = Shape::filled(sizes.ndim(), 0);
  for (int dim = 0; dim < sizes.ndim(); ++dim) {
    if (sizes[dim] > 1) strides[dim] = places[static_cast<std::size_t>(dense[dim])] - places[0];
  }
  const Oracle expected = gathered(sizes, [&](const std::vector<std::int64_t>& index) {
    std::int64_t place = places[0];
    for (std::size_t dim = 0; dim < index.size(); ++dim)
      place += index[dim] * strides[static_cast<int>(dim)];
    return place;
  });
  return expected.places == places;
}

Pair reshaped(const Pair& x) {
  const Shape sizes = random_cut(x.oracle.sizes.numel());
  const std::optional<detail::View> view = detail::try_reshape(x.tensor.raw(), sizes);
  if (x.oracle.sizes.numel() > 0 && view.has_value() != is_strided(x.oracle.places, sizes)) {
    RC_FAIL(to_string(x.tensor.shape()) + " strides " + to_string(x.tensor.strides()) + " to " + to_string(sizes));
  }
  const Tensor copy = x.tensor.reshape(sizes);
  RC_ASSERT(copy.shape() == sizes);
  RC_ASSERT(copy.to_vector<std::int64_t>() == x.oracle.places);
  if (!view) return x;  // a copy would have separate memory
  return {x.tensor.view(sizes), {sizes, x.oracle.places}};
}

TEST(ViewProperty, AnyChainOfViewsShowsTheElementsOfTheOracle) {
  using Step = Pair (*)(const Pair&);
  static const std::vector<Step> steps{permuted, sliced,   selected, unsqueezed, squeezed,
                                       expanded, reshaped, reshaped, permuted};
  check_property(5000, [] {
    Shape sizes;
    for (std::int64_t dims = pick(0, 5); dims > 0; --dims)
      sizes.push_back(pick(1, 4));
    Pair x{arange(sizes.numel()).reshape(sizes), {sizes, {}}};
    x.oracle.places.resize(static_cast<std::size_t>(sizes.numel()));
    std::iota(x.oracle.places.begin(), x.oracle.places.end(), 0);
    const auto* memory = static_cast<const std::int64_t*>(memory_of(x.tensor));
    const detail::Storage* storage = x.tensor.raw().storage.get();
    for (std::int64_t left = pick(1, 8); left > 0; --left) {
      x = test::one_of(steps)(x);
      RC_ASSERT(x.tensor.shape() == x.oracle.sizes);
      RC_ASSERT(x.tensor.raw().storage.get() == storage);
      // Walks the elements from the first one with strides(), as a user would.
      const auto* first = static_cast<const std::int64_t*>(memory_of(x.tensor));
      const Oracle walked = gathered(x.oracle.sizes, [&](const std::vector<std::int64_t>& index) {
        const std::int64_t* element = first;
        for (std::size_t dim = 0; dim < index.size(); ++dim) {
          element += index[dim] * x.tensor.strides()[static_cast<int>(dim)];
        }
        return static_cast<std::int64_t>(element - memory);
      });
      RC_ASSERT(walked.places == x.oracle.places);
      RC_ASSERT(x.tensor.to_vector<std::int64_t>() == x.oracle.places);
      const bool dense = x.oracle.places.empty() || is_strided(x.oracle.places, {x.oracle.sizes.numel()});
      RC_ASSERT(dense || !x.tensor.is_contiguous());
    }
  });
}

}  // namespace
}  // namespace tandem
