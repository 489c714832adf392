#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>

namespace tandem::inline v0::kernels {

/// The lower triangle of each matrix of a dense [outer, rows, columns] tensor: out[o, i, j] = in[o, i, j] where
/// j - i <= diagonal, else 0. `in` and `out` do not overlap. Only floating-point results are added to `out`.
struct Tril {
  static constexpr const char* kName = "tril";
  DType dtype;  // type of in and out
  Accumulate accumulate = Accumulate::no;
  std::int64_t outer, rows, columns;
  std::int64_t diagonal = 0;  // from -rows to columns
  const void* in;
  void* out;
};
void run(OnCpu, Context& context, const Tril& kernel);
void run(OnCuda, Context& context, const Tril& kernel);

}  // namespace tandem::inline v0::kernels
