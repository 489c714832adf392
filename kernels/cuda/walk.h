#pragma once

#include <bit>
#include <cstdint>

#include <tandem/core/host_device.h>
#include <tandem/kernels/cuda/geometry.h>
#include <tandem/kernels/loop.h>

// Internal: offsets along one operand of a loop of any size.

namespace tandem::inline v0::kernels {

/// As Divider, for dividends of 63 bits; 64-bit division is a function call on a GPU.
class WideDivider {
 public:
  WideDivider() = default;
  explicit WideDivider(std::int64_t divisor) noexcept : divisor_(static_cast<std::uint64_t>(divisor)) {
    shift_ = static_cast<std::uint32_t>(std::bit_width(divisor_ - 1));
    // (2^64 * (2^shift - divisor)) / divisor + 1, in steps of one bit: 128-bit integers are not C++'s.
    std::uint64_t rest = (shift_ == 64 ? 0 : std::uint64_t{1} << shift_) - divisor_;
    std::uint64_t quotient = 0;
    for (int bit = 0; bit < 64; ++bit) {
      quotient <<= 1;
      rest <<= 1;
      if (rest >= divisor_) {
        rest -= divisor_;
        quotient |= 1;
      }
    }
    magic_ = quotient + 1;
  }
  TANDEM_HD std::int64_t quotient(std::int64_t value) const noexcept {
    const auto dividend = static_cast<std::uint64_t>(value);
    return static_cast<std::int64_t>((upper_half(dividend, magic_) + dividend) >> shift_);
  }
  TANDEM_HD std::int64_t divisor() const noexcept { return static_cast<std::int64_t>(divisor_); }

 private:
  // Of a product's 128 bits.
  TANDEM_HD static std::uint64_t upper_half(std::uint64_t a, std::uint64_t b) noexcept {
    constexpr std::uint64_t kLow = 0xFFFF'FFFF;
    const std::uint64_t middle = (a & kLow) * (b & kLow) / (kLow + 1) + (a >> 32) * (b & kLow);
    const std::uint64_t other = (middle & kLow) + (a & kLow) * (b >> 32);
    return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32);
  }

  std::uint64_t divisor_ = 1;
  std::uint64_t magic_ = 1;
  std::uint32_t shift_ = 0;
};

class Walk {
 public:
  /// No dimensions: one position.
  Walk() = default;
  Walk(const Loop& loop, const std::int64_t* strides) noexcept
      : ndim_(loop.ndim), small_(loop.numel() < (std::int64_t{1} << 31)) {
    for (int dim = 0; dim < ndim_; ++dim) {
      const int from = ndim_ - 1 - dim;
      strides_[dim] = strides[from];
      const std::int64_t size = loop.sizes[from] > 0 ? loop.sizes[from] : 1;
      if (small_) {
        dividers_[dim] = Divider(static_cast<std::uint32_t>(size));
      } else {
        wide_dividers_[dim] = WideDivider(size);
      }
    }
  }

  /// Elements from the first to that at a row-major `position`.
  TANDEM_HD std::int64_t offset(std::int64_t position) const noexcept {
    std::int64_t offset = 0;
    const int last = ndim_ - 1;
    if (small_) {
      auto rest = static_cast<std::uint32_t>(position);
      for (int dim = 0; dim < last; ++dim) {
        const std::uint32_t next = dividers_[dim].quotient(rest);
        offset += static_cast<std::int64_t>(rest - next * dividers_[dim].divisor()) * strides_[dim];
        rest = next;
      }
      return last < 0 ? 0 : offset + static_cast<std::int64_t>(rest) * strides_[last];
    }
    for (int dim = 0; dim < last; ++dim) {
      const std::int64_t next = wide_dividers_[dim].quotient(position);
      offset += (position - next * wide_dividers_[dim].divisor()) * strides_[dim];
      position = next;
    }
    return last < 0 ? 0 : offset + position * strides_[last];
  }

 private:
  int ndim_ = 0;
  bool small_ = true;
  Divider dividers_[kMaxDims];  // innermost first, as strides
  WideDivider wide_dividers_[kMaxDims];
  std::int64_t strides_[kMaxDims] = {};
};

}  // namespace tandem::inline v0::kernels
