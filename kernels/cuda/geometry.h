#pragma once

#include <bit>
#include <cstdint>

#include <tandem/core/host_device.h>
#include <tandem/kernels/loop.h>

// Internal: a Loop as a GPU walks it, from the number of an element to its offsets in each operand.

namespace tandem::inline v0::kernels {

/// Division by a number that is known when a kernel is launched: a multiplication and a shift. Exact for every
/// dividend of 31 bits (Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994).
class Divider {
 public:
  Divider() = default;
  explicit Divider(std::uint32_t divisor) noexcept : divisor_(divisor) {
    shift_ = static_cast<std::uint32_t>(std::bit_width(divisor - 1));
    magic_ =
        static_cast<std::uint32_t>(((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift_) - divisor)) / divisor + 1);
  }
  TANDEM_HD std::uint32_t quotient(std::uint32_t value) const noexcept {
    const auto high = static_cast<std::uint32_t>((std::uint64_t{value} * magic_) >> 32);
    return (high + value) >> shift_;
  }
  TANDEM_HD std::uint32_t divisor() const noexcept { return divisor_; }

 private:
  std::uint32_t divisor_ = 1;
  std::uint32_t magic_ = 1;
  std::uint32_t shift_ = 0;
};

/// The dimensions of a loop of fewer than 2^31 positions, innermost first, and the strides of its operands.
template <int kOperands>
struct Geometry {
  int ndim = 0;
  Divider sizes[kMaxDims];
  std::int64_t strides[kMaxDims][kOperands];

  Geometry() = default;
  Geometry(const Loop& loop, const std::int64_t* const (&operands)[kOperands]) noexcept : ndim(loop.ndim) {
    for (int dim = 0; dim < ndim; ++dim) {
      const int from = ndim - 1 - dim;
      sizes[dim] = Divider(static_cast<std::uint32_t>(loop.sizes[from]));
      for (int i = 0; i < kOperands; ++i) {
        strides[dim][i] = operands[i][from];
      }
    }
  }

  /// Offsets of element `position` in each operand, added to `offsets`.
  TANDEM_HD void add_offsets(std::uint32_t position, std::int64_t* offsets) const noexcept {
    for (int dim = 0; dim < ndim - 1; ++dim) {
      const std::uint32_t next = sizes[dim].quotient(position);
      const std::int64_t at = position - next * sizes[dim].divisor();
      for (int i = 0; i < kOperands; ++i) {
        offsets[i] += at * strides[dim][i];
      }
      position = next;
    }
    for (int i = 0; ndim > 0 && i < kOperands; ++i) {
      offsets[i] += position * strides[ndim - 1][i];
    }
  }
};

}  // namespace tandem::inline v0::kernels
