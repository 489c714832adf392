#include <tandem/core/dtype.h>

#include <ostream>

namespace tandem::inline v0 {

std::string_view name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i64: return "i64";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
    case DType::boolean: return "bool";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

}  // namespace tandem::inline v0
