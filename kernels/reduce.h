#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/loop.h>

namespace tandem::inline v0::kernels {

enum class ReduceOp : std::uint8_t { sum, nonzero, max, min };

/// Applies op over all positions of `reduced`, for every position of `kept`, and multiplies by `scale` (only for sums
/// of floating point; 1/count gives a mean). `out` has the type of `in`, except that sums of integers and bools are i64
/// and wrap around. nonzero is also i64 and counts the elements that are not 0.
/// Sums run in fixed blocks whose partial sums are combined in order, so they neither depend on the number of threads
/// nor lose digits in long rows. max and min return NaN if any element is NaN.
/// `in` has strides along kept and `in_reduced` along reduced; their data pointers are equal.
struct Reduce {
  static constexpr const char* kName = "reduce";
  ReduceOp op;
  DType dtype;  // type of in
  Accumulate accumulate = Accumulate::no;
  Loop kept;
  Loop reduced;
  Operand out;
  Operand in;
  Operand in_reduced;
  double scale = 1;
  /// Only for max and min, and may be null. Dense over kept: the position of the first extreme value, row-major in
  /// reduced, which then has one dimension.
  std::int64_t* indices = nullptr;
};
void run(OnCpu, Context& context, const Reduce& kernel);
void run(OnCuda, Context& context, const Reduce& kernel);

}  // namespace tandem::inline v0::kernels
