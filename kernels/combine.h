#pragma once

#include <cstdint>
#include <type_traits>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

/// Operation that combines several arrays into one, element by element. On bool, sum and max are "or", product and min
/// are "and".
enum class CombineOp : std::uint8_t { sum, avg, min, max, product };

/// out[k][i] = in[0][i] op in[1][i] op ... in this order, for `count` dense elements and every k. An `out` may be one
/// of the `in`. 16-bit types are combined in f32 and rounded once; integers wrap around. avg is the sum divided by
/// `divisor` and needs a floating-point type. min and max keep a NaN. Each list has at least one array, and at most
/// kMost on a GPU. The launch reads the lists.
struct Combine {
  static constexpr const char* kName = "combine";
  static constexpr int kMost = 64;
  CombineOp op;
  DType dtype;
  const void* const* in;
  int ins;
  void* const* out;
  int outs;
  std::int64_t count;
  int divisor = 1;  // of avg: `ins`, or more if an array is a sum itself
};
void run(OnCpu, Context& context, const Combine& kernel);
void run(OnCuda, Context& context, const Combine& kernel);

namespace formula {

/// `a` and `b` combined by kOp, for both devices; avg is a sum here. C is the type that an element is computed in.
template <CombineOp kOp, class C>
TANDEM_HD constexpr C combined(C a, C b) {
  // The first NaN stays, like in max() and min() of one tensor.
  if constexpr (kOp == CombineOp::min) {
    return a != a || a < b ? a : b;
  } else if constexpr (kOp == CombineOp::max) {
    return a != a || a > b ? a : b;
  } else if constexpr (std::is_same_v<C, bool>) {
    return kOp == CombineOp::product ? a && b : a || b;
  } else if constexpr (kOp == CombineOp::product) {
    return wrapping_mul(a, b);
  } else {
    return wrapping_add(a, b);
  }
}

}  // namespace formula
}  // namespace tandem::inline v0::kernels
