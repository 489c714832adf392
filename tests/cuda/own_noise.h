#pragma once

#include <cstdint>

#include <tandem/kernels/launch.h>
#include <tandem/kernels/step_state.h>

// A kernel as a program outside the tree has it: random numbers, by way of a workspace.

namespace own {

struct Noise {
  static constexpr const char* kName = "own_noise";
  std::int64_t count;  // a multiple of 4
  float* out;
  std::uint64_t seed, offset;
  const tandem::kernels::StepState* state;
};
void run(tandem::kernels::OnCpu, tandem::kernels::Context& context, const Noise& kernel);
void run(tandem::kernels::OnCuda, tandem::kernels::Context& context, const Noise& kernel);

}  // namespace own
