#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/loop.h>

namespace tandem::inline v0::kernels {

enum class ReduceOp : std::uint8_t { sum, nonzero, max, min };

/// For every position of `kept`, op over all positions of `reduced`, times `scale` (sum of floating point only; 1/count
/// for a mean). `out` is of the type of `in`, but i64 for sums of integers and bools, which wrap around, and for
/// nonzero, the number of elements that are not 0.
/// Sums run in fixed blocks whose partial sums are combined in order, so they neither depend on the number of threads
/// nor lose digits in long rows. max and min return NaN if there is one.
/// `in` has strides along kept, `in_reduced` along reduced; data pointers are equal.
struct Reduce {
  static constexpr const char* kName = "reduce";
  ReduceOp op;
  DType dtype;  // of in
  Accumulate accumulate = Accumulate::no;
  Loop kept;
  Loop reduced;
  Operand out;
  Operand in;
  Operand in_reduced;
  double scale = 1;
  /// max and min, when not null: dense over kept, the position (row-major in reduced, which then has one dimension)
  /// of the first extreme value.
  std::int64_t* indices = nullptr;
};
void run(OnCpu, Context& context, const Reduce& kernel);
void run(OnCuda, Context& context, const Reduce& kernel);

}  // namespace tandem::inline v0::kernels
