#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/launch/queue.h>

// Sorts a list by its indices, for sorted_sum.h.

namespace tandem::inline v0::kernels {

/// Keys on a GPU and the memory to sort them in, which is all of a call's workspace.
struct KeySort {
  static constexpr std::int64_t kMost = std::int64_t{1} << 24;  // longer lists are cut: workspaces stay allocated

  std::int64_t count;
  std::uint64_t* keys;          // filled by the caller
  std::uint32_t* positions;     // the result: ascending keys, equal ones in the order of the list
  std::uint32_t* spare;         // as many as positions
  std::uint32_t* digit_counts;  // per tile
  std::uint32_t* totals;        // over all tiles
};

/// Allocates memory for `count` keys, at most KeySort::kMost.
KeySort room_to_sort(const Queue& queue, std::int64_t count);

/// Computes `positions`, for keys up to `largest`. The sort is stable, and its result does not depend on timing.
void sort_positions(const Queue& queue, const char* name, KeySort& sort, std::uint64_t largest);

}  // namespace tandem::inline v0::kernels
