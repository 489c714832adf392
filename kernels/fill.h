#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/loop.h>

namespace tandem::inline v0::kernels {

/// out = value, converted to `dtype`. Integers up to 2^53 are exact.
struct Fill {
  static constexpr const char* kName = "fill";
  DType dtype;
  Loop loop;
  Operand out;
  double value = 0;
};
void run(OnCpu, Context& context, const Fill& kernel);
void run(OnCuda, Context& context, const Fill& kernel);

/// out[i] = start + i * step over `count` dense elements.
struct Arange {
  static constexpr const char* kName = "arange";
  DType dtype;
  void* out;
  std::int64_t count;
  double start;
  double step;
};
void run(OnCpu, Context& context, const Arange& kernel);
void run(OnCuda, Context& context, const Arange& kernel);

/// `count` dense, equally spaced elements from start to end, both included. Each element is computed from the nearer
/// end, so both ends are exact.
struct Linspace {
  static constexpr const char* kName = "linspace";
  DType dtype;
  void* out;
  std::int64_t count;
  double start;
  double end;
};
void run(OnCpu, Context& context, const Linspace& kernel);
void run(OnCuda, Context& context, const Linspace& kernel);

}  // namespace tandem::inline v0::kernels
