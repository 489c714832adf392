#pragma once

#include <bit>
#include <cstdint>

#include <tandem/core/export.h>
#include <tandem/kernels/loop.h>

// Offsets of an element in each operand, computed from its position, and the divisions that this takes. Used by the
// patterns that walk a Loop (elementwise.h, reduction.h), and by index, gather and scan.

namespace tandem::inline v0::kernels {

/// Division by a number that is known when a kernel is launched, as a multiplication and a shift. Exact for every
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

/// A Divider for dividends of 63 bits. (64-bit division is a function call on a GPU.)
class WideDivider {
 public:
  WideDivider() = default;
  explicit WideDivider(std::int64_t divisor) noexcept : divisor_(static_cast<std::uint64_t>(divisor)) {
    shift_ = static_cast<std::uint32_t>(std::bit_width(divisor_ - 1));
    // magic_ = (2^64 * (2^shift - divisor)) / divisor + 1, computed bit by bit because C++ has no 128-bit integers.
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
  // The upper half of the 128-bit product.
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

/// A Divider for numbers below `limit`, which is fast if the limit and the divisor are at most 2^31.
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

  /// Adds the offset of element `position` in each operand to `offsets`.
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

/// The dimensions of a loop of any size, and the strides of one operand.
class Walk {
 public:
  /// Has no dimensions, and so one position.
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

  /// Offset of the element at a row-major `position`, in elements.
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
  Divider dividers_[kMaxDims];  // innermost first, like strides_
  WideDivider wide_dividers_[kMaxDims];
  std::int64_t strides_[kMaxDims] = {};
};

}  // namespace tandem::inline v0::kernels
