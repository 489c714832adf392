#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/kernels/cuda/lane_groups.h>
#include <tandem/kernels/cuda/shared.h>

// Internal: how many threads rows get.

namespace tandem::inline v0::kernels::rows {

/// What a kernel over rows is launched with.
struct Plan {
  unsigned int blocks;
  int lanes;           // of a row that has no block of its own
  bool staged;         // whether a row is kept in shared memory between two passes
  std::size_t shared;  // bytes for that
};

/// body.operator()<kBlock>(), with 0 for groups of lanes.
template <class Body>
void for_row_size(std::int64_t size, Body&& body) {
  if (size <= kLongestOfLanes) {
    body.template operator()<0>();
  } else if (size <= kLong) {
    body.template operator()<kSmallBlock>();
  } else {
    body.template operator()<kLargeBlock>();
  }
}

/// For a row of `size` in shared memory, as far from 16 bytes as it is outside.
template <class T>
TANDEM_HD constexpr std::int64_t stage_bytes(std::int64_t size) noexcept {
  return (size * static_cast<std::int64_t>(sizeof(T)) + 31) / 16 * 16;
}

/// Where such a row, the k-th of its block, goes.
template <class T>
__device__ T* stage(const T* row, std::int64_t size, int k) {
  return reinterpret_cast<T*>(dynamic_shared<unsigned char>() + k * stage_bytes<T>(size) +
                              reinterpret_cast<std::uintptr_t>(row) % 16);
}

/// For kKernel, whose groups are Group<kBlock>s, over `rows` rows of `size` elements of T, of which `arrays` want to be
/// kept in shared memory. Blocks walk over rows: there are as many as the GPU has at once.
template <int kBlock, auto kKernel, class T>
Plan plan(const Queue& queue, std::int64_t rows, std::int64_t size, int arrays) {
  Plan plan{.blocks = 1, .lanes = lanes_for(size), .staged = false, .shared = 0};
  std::int64_t at_once = 2048 / Group<kBlock>::kThreads;
  if constexpr (kBlock == 0) {
    const int groups = kLaneThreads / plan.lanes;
    rows = (rows + groups - 1) / groups;
  } else if (arrays > 0) {
    const auto bytes = static_cast<std::size_t>(arrays * stage_bytes<T>(size));
    if (const std::size_t most = most_dynamic_shared(queue); bytes <= most) {
      plan.staged = true;
      plan.shared = bytes;
      allow_dynamic_shared<kKernel>(queue, plan.shared);
      const auto fit = static_cast<std::int64_t>(most / plan.shared);
      at_once = fit < 1 ? 1 : fit < at_once ? fit : at_once;
    }
  }
  at_once *= queue.gpu().multiprocessors;
  plan.blocks = static_cast<unsigned int>(rows < 1 ? 1 : rows < at_once ? rows : at_once);
  return plan;
}

}  // namespace tandem::inline v0::kernels::rows
