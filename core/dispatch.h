#pragma once

#include <cstdint>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/dtype.h>

// Internal: maps a run-time DType to a compile-time element type by means of a templated lambda.

namespace tandem::inline v0::core {

/// Calls `body` with a floating-point element type: dispatch_floating(dtype, "relu", [&]<class T>() { ... }). Throws
/// DTypeError, which names `op`, for any other type.
template <class Body>
decltype(auto) dispatch_floating(DType dtype, const char* op, Body&& body) {
  switch (dtype) {
    case DType::f32: return std::forward<Body>(body).template operator()<float>();
    case DType::f64: return std::forward<Body>(body).template operator()<double>();
    case DType::bf16: return std::forward<Body>(body).template operator()<BFloat16>();
    case DType::f16: return std::forward<Body>(body).template operator()<Float16>();
    default: break;
  }
  fail<DTypeError>("{}: needs floating point, got {}; convert with .to(DType::f32)", op, dtype);
}

/// Calls `body` with the element type; every stored type is accepted.
template <class Body>
decltype(auto) dispatch_any(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: return std::forward<Body>(body).template operator()<float>();
    case DType::f64: return std::forward<Body>(body).template operator()<double>();
    case DType::bf16: return std::forward<Body>(body).template operator()<BFloat16>();
    case DType::f16: return std::forward<Body>(body).template operator()<Float16>();
    case DType::i64: return std::forward<Body>(body).template operator()<std::int64_t>();
    case DType::i32: return std::forward<Body>(body).template operator()<std::int32_t>();
    case DType::u8: return std::forward<Body>(body).template operator()<std::uint8_t>();
    case DType::boolean: return std::forward<Body>(body).template operator()<bool>();
  }
  __builtin_unreachable();
}

}  // namespace tandem::inline v0::core
