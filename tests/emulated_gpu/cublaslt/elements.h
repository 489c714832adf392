#pragma once

#include <tandem/core/float16.h>

#include <library_types.h>

#include <bit>
#include <cstddef>
#include <cstdint>

// Converts elements of the matrices' types to and from the type of the sums.

namespace emulated_gpu::cublaslt {

/// Calls body(T*) with the address, cast to a pointer to its element type T.
template <class Body>
void with_type(cudaDataType type, const void* address, Body&& body) {
  switch (type) {
    case CUDA_R_64F: body(static_cast<const double*>(address)); break;
    case CUDA_R_32F: body(static_cast<const float*>(address)); break;
    case CUDA_R_16BF: body(static_cast<const tandem::BFloat16*>(address)); break;
    default: body(static_cast<const tandem::Float16*>(address)); break;
  }
}

/// Rounds to 10 bits of fraction, to nearest, ties to even. Infinity and NaN are unchanged.
inline float to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000;
  return std::bit_cast<float>((bits & 0x7F800000) == 0x7F800000 ? bits : rounded);
}

/// Sets out[i] to element i * stride of `base`, counted from `offset`.
template <class Sum>
void load(cudaDataType type, const void* base, std::int64_t offset, std::int64_t stride, std::int64_t count, Sum* out) {
  with_type(type, base, [&](const auto* elements) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<Sum>(elements[offset + i * stride]);
    }
  });
}

/// Rounds `count` sums to the elements from `offset` on.
template <class Sum>
void store(cudaDataType type, void* base, std::int64_t offset, std::int64_t count, const Sum* sums) {
  with_type(type, base, [&]<class T>(const T*) {
    T* elements = static_cast<T*>(base) + offset;
    for (std::int64_t i = 0; i < count; ++i) {
      elements[i] = T(static_cast<tandem::ComputeType<T>>(sums[i]));
    }
  });
}

}  // namespace emulated_gpu::cublaslt
