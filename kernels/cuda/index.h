#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/fault.h>
#include <tandem/kernels/cuda/geometry.h>
#include <tandem/kernels/cuda/queue.h>

// Internal: what the kernels that use indices share.

namespace tandem::inline v0::kernels {

/// Looks at indices before they are used.
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

/// Division of numbers below `limit`: fast where these have 31 bits.
class LongDivider {
 public:
  LongDivider(std::int64_t divisor, std::int64_t limit) noexcept
      : divisor_(divisor), is_short_(limit <= kMost && divisor <= kMost) {
    if (is_short_) {
      short_ = Divider(static_cast<std::uint32_t>(divisor));
    }
  }
  TANDEM_HD std::int64_t quotient(std::int64_t value) const noexcept {
    return is_short_ ? std::int64_t{short_.quotient(static_cast<std::uint32_t>(value))} : value / divisor_;
  }
  TANDEM_HD std::int64_t divisor() const noexcept { return divisor_; }

 private:
  static constexpr std::int64_t kMost = std::int64_t{1} << 31;

  Divider short_;
  std::int64_t divisor_;
  bool is_short_;
};

}  // namespace tandem::inline v0::kernels
