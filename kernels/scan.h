#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>

namespace tandem::inline v0::kernels {

/// Running sums along the middle dimension of a dense [outer, size, inner] tensor: out[i] = in[0] + ... + in[i], or
/// with `reverse` in[i] + ... + in[size - 1]. Floating-point sums are kept in f64 and rounded once; sums of integers
/// and bools are i64.
struct CumSum {
  static constexpr const char* kName = "cumsum";
  DType dtype;  // type of in
  bool reverse = false;
  Accumulate accumulate = Accumulate::no;
  std::int64_t outer, size, inner;
  const void* in;
  void* out;
};
void run(OnCpu, Context& context, const CumSum& kernel);
void run(OnCuda, Context& context, const CumSum& kernel);

}  // namespace tandem::inline v0::kernels
