#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/loop.h>

namespace tandem::inline v0::kernels {

enum class CompareOp : std::uint8_t { eq, ne, lt, le, gt, ge, logical_and, logical_or, logical_xor };

/// out = a op b, as bool. a and b have `dtype`; the logical operations count every value but 0 as true.
struct Compare {
  static constexpr const char* kName = "compare";
  CompareOp op;
  DType dtype;
  Loop loop;
  Operand out;  // bool
  Operand a;
  Operand b;
};
void run(OnCpu, Context& context, const Compare& kernel);
void run(OnCuda, Context& context, const Compare& kernel);

/// out = condition ? a : b; a, b and out have elements of `item_size` bytes.
struct Where {
  static constexpr const char* kName = "where";
  std::int64_t item_size;
  Loop loop;
  Operand out;
  Operand condition;  // bool
  Operand a;
  Operand b;
};
void run(OnCpu, Context& context, const Where& kernel);
void run(OnCuda, Context& context, const Where& kernel);

}  // namespace tandem::inline v0::kernels
