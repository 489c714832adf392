#include <tandem/tensor/scalar.h>

#include <initializer_list>

#include <tandem/core/check.h>

namespace tandem::inline v0 {

void detail::throw_inexact(std::int64_t value) {
  fail<ConfigError>("{} is beyond 2^53, what is counted exactly", value);
}
void detail::throw_inexact(std::uint64_t value) {
  fail<ConfigError>("{} is beyond 2^53, what is counted exactly", value);
}

DType promote_types(DType a, DType b) noexcept {
  if (a == b) {
    return a;
  }
  // From the widest type on: each type can represent all later ones.
  for (const DType wide : {DType::f64, DType::f32}) {
    if (a == wide || b == wide) {
      return wide;
    }
  }
  if (is_reduced_floating_point(a) && is_reduced_floating_point(b)) {
    return DType::f32;
  }
  for (const DType narrower : {DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    if (a == narrower || b == narrower) {
      return narrower;
    }
  }
  return DType::boolean;
}

}  // namespace tandem::inline v0
