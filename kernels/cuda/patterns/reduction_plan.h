#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/patterns/geometry.h>
#include <tandem/kernels/loop.h>

// The layout of threads over a reduction (reduction.h), decided on the host.

namespace tandem::inline v0::kernels {

class Queue;

/// A reduction. Strides are in elements of the source's operands, which all have the same strides. `alignment` is that
/// of the least aligned operand, and `item` the size of the largest operand's elements, both in bytes.
struct ReductionProblem {
  Loop kept;
  Loop reduced;
  const std::int64_t* kept_strides;
  const std::int64_t* reduced_strides;
  std::uintptr_t alignment;
  int item;
};

struct ReductionPlan {
  static constexpr int kThreads = 256;

  ReductionPlan(const Queue& queue, const ReductionProblem& problem, int packs_of);

  bool by_columns = false;
  int wide = 1;              // elements in a pack
  int across = 1;            // threads of a group side by side
  int down = 1;              // rows of a group, by columns
  int tail = 0;              // elements after the last pack, by rows
  int parts = 1;             // number of parts of the reduced loop
  unsigned int blocks = 1;   // blocks per part
  std::int64_t outputs = 0;  // positions of kept
  std::int64_t units = 0;    // groups of threads per part
  WideDivider tiles;         // units side by side, by columns
  std::int64_t columns = 0;  // packs side by side, by columns
  std::int64_t length = 0;   // positions of reduced; packs, by rows
  std::int64_t chunk = 0;    // share of length in a part
  Walk kept;                 // without the columns
  Walk reduced;

  /// The lowest power of 2 that is at least `count`, but no more than `most`.
  static int power_of_2(std::int64_t count, int most) noexcept {
    int power = 1;
    while (power < count && power < most) {
      power *= 2;
    }
    return power;
  }
};

}  // namespace tandem::inline v0::kernels
