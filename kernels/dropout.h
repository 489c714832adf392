#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/step_state.h>

namespace tandem::inline v0::kernels {

/// Inverted dropout (Srivastava et al., 2014): mask[i] = keep with probability 1 - p, out = in * mask / (1 - p), over
/// `count` dense elements. Element i takes number i % 4 of block state->random_offset + offset + i / 4; the call uses
/// (count + 3) / 4 blocks.
struct Dropout {
  static constexpr const char* kName = "dropout";
  DType dtype;
  std::int64_t count;
  double p;
  const void* in;
  void* out;
  std::uint8_t* mask;
  std::uint64_t seed;
  std::uint64_t offset;
  const StepState* state;
};
void run(OnCpu, Context& context, const Dropout& kernel);
void run(OnCuda, Context& context, const Dropout& kernel);

/// in_grad (+)= g * mask / (1 - p).
struct DropoutGrad {
  static constexpr const char* kName = "dropout_grad";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  std::int64_t count;
  double p;
  const void* grad;
  const std::uint8_t* mask;
  void* in_grad;
};
void run(OnCpu, Context& context, const DropoutGrad& kernel);
void run(OnCuda, Context& context, const DropoutGrad& kernel);

}  // namespace tandem::inline v0::kernels
