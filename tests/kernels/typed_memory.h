#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/math.h>

#include "kernels/arrays.h"

namespace tandem::test {

inline constexpr DType kAllTypes[] = {DType::f32, DType::f64, DType::i64, DType::i32, DType::u8, DType::boolean};

/// A buffer of any element type, bool included, that reads and writes as double.
class TypedMemory {
 public:
  TypedMemory(DType dtype, std::int64_t count)
      : dtype_(dtype), bytes_(new std::byte[static_cast<std::size_t>(count) * item_size(dtype)]{}) {}
  double get(std::size_t i) const {
    return core::dispatch_any(dtype_, [&]<class T>() { return static_cast<double>(as<T>()[i]); });
  }
  void set(std::size_t i, double value) {
    core::dispatch_any(dtype_, [&]<class T>() { as<T>()[i] = kernels::convert<T>(value); });
  }
  kernels::Operand operand(const Layout& layout) const {
    kernels::Operand result{.data = bytes_.get() + layout.offset * static_cast<std::int64_t>(item_size(dtype_))};
    for (int dim = 0; dim < layout.strides.ndim(); ++dim)
      result.strides[dim] = layout.strides[dim];
    return result;
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(bytes_.get());
  }

 private:
  DType dtype_;
  std::unique_ptr<std::byte[]> bytes_;
};

/// Converts by the rules of convert(): bool is value != 0, other integers drop the fraction and wrap around in u8.
inline double converted(double value, DType in, DType out) {
  if (in == DType::boolean) value = value != 0;
  if (out == DType::boolean) return value != 0;
  if (out == DType::u8) return static_cast<std::uint8_t>(static_cast<std::int64_t>(value));
  if (!is_floating_point(out)) return std::trunc(value);
  return out == DType::f32 ? static_cast<double>(static_cast<float>(value)) : value;
}

}  // namespace tandem::test
