#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/walk.h>
#include <tandem/kernels/loop.h>

// Internal: how threads are laid over a reduction.

namespace tandem::inline v0::kernels {

class Queue;

/// What is reduced. Strides are in elements of the source's operands, which are alike; `alignment` is in bytes, of the
/// operand least aligned, `item` the size of the largest of their elements.
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
  int tail = 0;              // elements behind the last pack, by rows
  int parts = 1;             // that the reduced loop is cut into
  unsigned int blocks = 1;   // for a part
  std::int64_t outputs = 0;  // positions of kept
  std::int64_t units = 0;    // groups of threads, for a part
  WideDivider tiles;         // units side by side, by columns
  std::int64_t columns = 0;  // packs that are neighbours, by columns
  std::int64_t length = 0;   // positions of reduced; of packs by rows
  std::int64_t chunk = 0;    // of length, in a part
  Walk kept;                 // without the columns
  Walk reduced;

  /// The lowest power of 2 that is at least `count`, but at most `most`.
  static int power_of_2(std::int64_t count, int most) noexcept {
    int power = 1;
    while (power < count && power < most) {
      power *= 2;
    }
    return power;
  }
};

}  // namespace tandem::inline v0::kernels
