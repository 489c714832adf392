#pragma once

#include <cstdint>

#include <tandem/core/shape.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

/// Memory and its strides, in elements, along the dimensions of a Loop.
struct Operand {
  void* data = nullptr;
  std::int64_t strides[kMaxDims] = {};

  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
};

/// Sizes of a loop nest, outermost first. Dimensions of size 1 are dropped and neighbours that can be walked as one are
/// merged. A dense loop therefore has one dimension, and a scalar has one dimension of size 1. In an empty loop
/// products may wrap around; numel() is 0 all the same.
struct Loop {
  int ndim = 0;
  std::int64_t sizes[kMaxDims] = {};

  std::int64_t numel() const noexcept {
    std::int64_t count = 1;
    for (int i = 0; i < ndim; ++i) {
      count = wrapping_mul(count, sizes[i]);
    }
    return count;
  }
};

/// Number of elements from the first one to the one at a row-major `position` of a loop, along these strides.
inline std::int64_t offset_at(const Loop& loop, const std::int64_t* strides, std::int64_t position) noexcept {
  std::int64_t offset = 0;
  for (int dim = loop.ndim - 1; dim >= 0; --dim) {
    offset += position % loop.sizes[dim] * strides[dim];
    position /= loop.sizes[dim];
  }
  return offset;
}

/// Calls body.operator()<Item>() with the unsigned integer of `bytes`, for kernels that move elements of any type.
template <class Body>
void for_item(std::int64_t bytes, Body&& body) {
  switch (bytes) {
    case 1: return body.template operator()<std::uint8_t>();
    case 2: return body.template operator()<std::uint16_t>();
    case 4: return body.template operator()<std::uint32_t>();
    case 8: return body.template operator()<std::uint64_t>();
  }
}

/// Drops and merges dimensions of `loop`, in place, for all its operands at once. At least one dimension remains.
template <int kOperands>
void simplify(Loop& loop, Operand* const (&operands)[kOperands]) noexcept {
  int kept = 0;
  for (int dim = 0; dim < loop.ndim; ++dim) {
    if (loop.sizes[dim] == 1) {
      continue;
    }
    bool merges = kept > 0;
    for (const Operand* operand : operands) {
      merges = merges && operand->strides[kept - 1] == wrapping_mul(operand->strides[dim], loop.sizes[dim]);
    }
    const int target = merges ? kept - 1 : kept++;
    loop.sizes[target] = merges ? wrapping_mul(loop.sizes[target], loop.sizes[dim]) : loop.sizes[dim];
    for (Operand* operand : operands) {
      operand->strides[target] = operand->strides[dim];
    }
  }
  if (kept == 0) {
    loop.sizes[0] = 1;
    for (Operand* operand : operands) {
      operand->strides[0] = 1;
    }
    kept = 1;
  }
  loop.ndim = kept;
}

}  // namespace tandem::inline v0::kernels
