#pragma once

#include <cstdint>
#include <utility>

#include <tandem/core/dtype.h>
#include <tandem/core/float16.h>

// Dispatch from a run-time DType to a type. This header avoids fmt, which the GPU's compiler then need not read.
// Callers have already rejected types that a kernel does not support.

namespace tandem::inline v0::kernels {

template <class Body>
void for_floating(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: return std::forward<Body>(body).template operator()<float>();
    case DType::f64: return std::forward<Body>(body).template operator()<double>();
    case DType::bf16: return std::forward<Body>(body).template operator()<BFloat16>();
    case DType::f16: return std::forward<Body>(body).template operator()<Float16>();
    default: __builtin_unreachable();
  }
}

template <class Body>
void for_any(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::i64: return std::forward<Body>(body).template operator()<std::int64_t>();
    case DType::i32: return std::forward<Body>(body).template operator()<std::int32_t>();
    case DType::u8: return std::forward<Body>(body).template operator()<std::uint8_t>();
    case DType::boolean: return std::forward<Body>(body).template operator()<bool>();
    default: return for_floating(dtype, std::forward<Body>(body));
  }
}

}  // namespace tandem::inline v0::kernels
