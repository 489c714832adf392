#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/float16.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/loop.h>

// Helpers shared by the tests of kernels: memory with awkward geometry, naive walks over it, and tolerances.

namespace tandem::test {

using Rng = std::mt19937_64;

inline kernels::Context& cpu() { return kernels::context_for(Device()); }

inline double real_between(Rng& rng, double low, double high) {
  return low + (high - low) * (static_cast<double>(rng() >> 11) * 0x1p-53);
}
inline std::int64_t whole_between(Rng& rng, std::int64_t low, std::int64_t high) {  // inclusive
  return low + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(high - low + 1));
}

/// `count` values from [low, high), rounded to T.
template <class T>
std::vector<T> random_values(Rng& rng, std::int64_t count, double low = -1, double high = 1) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) {
    value = static_cast<T>(static_cast<ComputeType<T>>(real_between(rng, low, high)));
  }
  return values;
}

/// max|got - expected| / max|expected|. Infinite when `got` has a NaN or an infinity where `expected` has none or a
/// different one. If terms cancel, `least_scale` is a lower bound of the denominator.
template <class A, class B>
double difference(const std::vector<A>& got, const std::vector<B>& expected, double least_scale = 0) {
  double largest = 0;
  double scale = least_scale;
  if (got.size() != expected.size()) return INFINITY;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto a = static_cast<double>(got[i]);
    const auto b = static_cast<double>(expected[i]);
    if (!std::isfinite(a) || !std::isfinite(b)) {
      if (!(a == b || (std::isnan(a) && std::isnan(b)))) return INFINITY;
      continue;
    }
    largest = std::max(largest, std::abs(a - b));
    scale = std::max(scale, std::abs(b));
  }
  return largest == 0 ? 0 : largest / scale;
}

/// The largest distance allowed between a kernel in T and the double loop.
template <class T>
constexpr double tolerance() {
  return std::is_same_v<T, float> ? 1e-6 : 1e-12;
}

/// The positions of an operand's elements in its buffer.
struct Layout {
  Shape strides;
  std::int64_t offset = 0;
  std::int64_t extent = 1;  // number of elements of the buffer
};

/// A layout with dimensions in random order, random gaps and a random offset. With `broadcast`, some strides are 0.
inline Layout random_layout(Rng& rng, const Shape& sizes, bool broadcast) {
  Layout layout{.strides = Shape::filled(sizes.ndim(), 0), .offset = whole_between(rng, 0, 3)};
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  if (rng() % 2 == 0) std::shuffle(order.begin(), order.end(), rng);
  std::int64_t stride = rng() % 3 == 0 ? 2 : 1;
  std::int64_t last = layout.offset;
  for (std::size_t i = order.size(); i-- > 0;) {
    const int dim = order[i];
    if (broadcast && rng() % 3 == 0) continue;
    layout.strides[dim] = stride;
    const std::int64_t size = std::max<std::int64_t>(sizes[dim], 1);
    last += stride * (size - 1);
    stride *= size + (rng() % 3 == 0 ? 1 : 0);
  }
  layout.extent = last + 1;
  return layout;
}

inline kernels::Loop loop_of(const Shape& sizes) {
  kernels::Loop loop;
  for (const std::int64_t size : sizes)
    loop.sizes[loop.ndim++] = size;
  if (loop.ndim == 0) loop.sizes[loop.ndim++] = 1;
  return loop;
}

template <class T>
kernels::Operand operand_of(std::vector<T>& buffer, const Layout& layout) {
  kernels::Operand operand{.data = buffer.data() + layout.offset};
  for (int dim = 0; dim < layout.strides.ndim(); ++dim)
    operand.strides[dim] = layout.strides[dim];
  return operand;
}

/// Calls body(position of the element in each layout's buffer...), in row-major order.
template <class Body, class... Layouts>
void for_each_element(const Shape& sizes, Body&& body, const Layouts&... layouts) {
  for (const std::int64_t size : sizes) {
    if (size == 0) return;
  }
  Shape index = Shape::filled(sizes.ndim(), 0);
  const auto position = [&](const Layout& layout) {
    std::int64_t at = layout.offset;
    for (int dim = 0; dim < index.ndim(); ++dim)
      at += index[dim] * layout.strides[dim];
    return static_cast<std::size_t>(at);
  };
  for (;;) {
    body(position(layouts)...);
    int dim = sizes.ndim() - 1;
    while (dim >= 0 && ++index[dim] == sizes[dim])
      index[dim--] = 0;
    if (dim < 0) return;
  }
}

/// Shapes that break loops: empty, one element, odd, prime, many dimensions, long enough for two chunks.
inline const std::vector<Shape>& awkward_shapes() {
  static const std::vector<Shape> shapes{
      {},      {1},        {0},       {7},       {64},         {1, 1, 1},      {3, 0, 5},
      {5, 3},  {1, 9},     {2, 3, 5}, {4, 1, 6}, {2, 3, 2, 3}, {13, 17, 1, 3}, {2, 1, 2, 3, 1, 2, 2, 2},
      {70001}, {257, 131}, {3, 40000}};
  return shapes;
}

}  // namespace tandem::test
