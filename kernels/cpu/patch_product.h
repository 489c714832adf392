#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tandem/kernels/cpu/patches.h>
#include <tandem/kernels/kernel.h>

// Products of patches on several threads. All cuts follow from sizes.

namespace tandem::inline v0::kernels::cpu {

/// Multiply-adds of a chunk of work, at the least.
inline constexpr std::int64_t kChunkWork = 500'000;

constexpr std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

template <class T>
const T* offset(const void* data, std::int64_t elements) {
  return static_cast<const T*>(data) + elements;
}
template <class T>
T* offset(void* data, std::int64_t elements) {
  return static_cast<T*>(data) + elements;
}

/// Whether products are tandem's own, see patches.h.
template <class T>
bool has_own_product() {
  return std::is_same_v<T, float> && core::isa() != core::Isa::baseline;
}

/// The elements that an array of weights may have.
inline constexpr std::int64_t kMostWeights = std::int64_t{1} << 24;

/// Calls body(group, groups, row, rows) for some groups at a time, or for some rows of one, so that an array of their
/// weights has at most kMostWeights elements.
template <class Body>
void for_some_weights(std::int64_t groups, std::int64_t rows, std::int64_t depth, Body&& body) {
  const bool all = groups * rows * depth <= kMostWeights;
  const std::int64_t some_groups = all ? groups : 1;
  const std::int64_t some_rows = all ? rows : std::clamp<std::int64_t>(kMostWeights / depth, 1, rows);
  for (std::int64_t group = 0; group < groups; group += some_groups) {
    for (std::int64_t row = 0; row < rows; row += some_rows) {
      body(group, some_groups, row, std::min(some_rows, rows - row));
    }
  }
}

/// Computes the product of each group. `product` is that of group 0; T is float or double.
template <class T>
void multiply_groups(Context& context, PatchProduct product, std::int64_t groups);

}  // namespace tandem::inline v0::kernels::cpu
