#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/step_state.h>

namespace tandem::inline v0::kernels {

enum class Distribution : std::uint8_t {
  uniform,  // floating point, [low, high)
  normal,   // floating point, mean low, standard deviation high
  integer   // any type, [low, high)
};

/// Fills `count` dense elements. Element i takes half (two of four numbers) of the Philox block state->random_offset +
/// offset + i / 2 under key `seed`, whatever the dtype. Draws therefore don't depend on threads and agree between
/// devices. A fill uses (count + 1) / 2 blocks.
struct RandomFill {
  static constexpr const char* kName = "random_fill";
  Distribution distribution;
  DType dtype;
  void* out;
  std::int64_t count;
  double low, high;
  std::uint64_t seed;
  std::uint64_t offset;
  const StepState* state;
};
void run(OnCpu, Context& context, const RandomFill& kernel);
void run(OnCuda, Context& context, const RandomFill& kernel);

}  // namespace tandem::inline v0::kernels
