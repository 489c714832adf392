#pragma once

#include <type_traits>

#include <tandem/core/host_device.h>
#include <tandem/kernels/combine.h>
#include <tandem/kernels/math.h>

// The formulas of CombineOp, shared by all backends. C is the type that an element is computed in.

namespace tandem::inline v0::kernels::formula {

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

}  // namespace tandem::inline v0::kernels::formula
