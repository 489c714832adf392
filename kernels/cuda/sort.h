#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/queue.h>

// Internal: the order that indices bring a list into.

namespace tandem::inline v0::kernels {

/// Keys of a GPU, and room to sort them in: all of a call's workspace.
struct KeySort {
  static constexpr std::int64_t kMost = std::int64_t{1} << 24;  // longer lists are cut: workspaces are kept

  std::int64_t count;
  std::uint64_t* keys;          // filled by the caller
  std::uint32_t* positions;     // the result: ascending keys, equal ones in the order of the list
  std::uint32_t* spare;         // as many
  std::uint32_t* digit_counts;  // of each tile
  std::uint32_t* totals;        // of all
};

/// Room for up to KeySort::kMost keys.
KeySort room_to_sort(const Queue& queue, std::int64_t count);

/// Finds `positions`, of keys up to `largest`. Stable, and without any order of events in it.
void sort_positions(const Queue& queue, const char* name, KeySort& sort, std::uint64_t largest);

}  // namespace tandem::inline v0::kernels
