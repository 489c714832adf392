#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <tandem/core/cuda/gpu.h>
#include <tandem/kernels/cuda/launch/queue.h>

// Notes that a GPU kernel leaves about a value that it cannot use: an index out of range, a target that is no class, or
// an input that is no probability. The kernel goes on without the value. The host throws the note when it next waits.

namespace tandem::inline v0::kernels {

using core::BadValue;

/// Notes `found`, unless there is a note already: the first is kept until the host has thrown it. Only one of the
/// threads that see the value must call.
__device__ inline void report(cuda::Fault* fault, const BadValue& found) {
  if (atomicCAS(&fault->claimed, 0U, 1U) != 0) {
    return;
  }
  fault->found = found;
  __threadfence_system();
  *static_cast<volatile unsigned int*>(&fault->ready) = 1;
}

/// Checks indices before they are used.
struct IndexRange {
  cuda::Fault* fault;
  const char* op;
  std::int64_t end;

  __device__ bool has(std::int64_t index) const {
    return static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(end);
  }
  /// Leaves a note about the index at `position` of the list.
  __device__ void report_bad(std::int64_t index, std::int64_t position) const {
    report(fault, {.kind = BadValue::Kind::index, .op = op, .position = position, .value = index, .end = end});
  }
};

inline IndexRange index_range(const Queue& queue, const char* op, std::int64_t end) {
  return {.fault = queue.fault(), .op = cuda::name_in_notes(op), .end = end};
}

}  // namespace tandem::inline v0::kernels
