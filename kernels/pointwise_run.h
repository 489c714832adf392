#pragma once

#include <cstddef>
#include <vector>

#include <tandem/kernels/pointwise.h>

// Internal: element-wise launches that follow each other.

namespace tandem::inline v0::kernels {

/// Element-wise launches on a CPU, one behind the other, that walk over equally many elements in memory that is dense.
/// One by one, each brings its tensors from memory. A run computes a piece of the elements at a time, so that what one
/// launch has read or written is still in the cache for the next. The bits are the same.
class PointwiseRun {
 public:
  /// Whether a launch can be part of a run: dense, and of several pieces.
  static bool fits(const Pointwise& launch);
  /// Begins with a launch that fits.
  explicit PointwiseRun(const Pointwise& first) : launches_{first} {}
  /// Adds the next launch and returns true, unless a piece of it needs what another piece of the run computes.
  bool join(const Pointwise& next);

  std::size_t launches() const noexcept { return launches_.size(); }
  void run(Context& context) const;

 private:
  std::vector<Pointwise> launches_;
};

}  // namespace tandem::inline v0::kernels
