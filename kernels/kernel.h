#pragma once

#include <memory>

#include <tandem/core/device.h>
#include <tandem/kernels/scratch.h>

// The seam between tensors and devices. A kernel is a plain struct. Its fields are the arguments; the caller hands in
// all memory and a kernel owns none. Its `run` overloads, one per backend, are found by the tag. Kernels never allocate
// from the system after warm-up, never synchronise, never check shapes, and don't know Tensor. launch.h starts them.
//
// Nothing here depends on what a build has, so builds with and without CUDA share the objects of the halves for CPUs.

namespace tandem::inline v0::kernels {

struct OnCpu {};
struct OnCuda {};

/// Choice between replacing the destination (no, beta 0) and adding to it (yes, beta 1).
enum class Accumulate : unsigned char { no, yes };

/// State that the GPU kernels keep per thread; only they know its type.
struct GpuState {
  virtual ~GpuState() = default;
};
struct StepSlots;

/// Resources of a running kernel, one set per thread and device.
struct Context {
  Device device;
  ScratchArena scratch;
  bool deterministic = true;
  std::shared_ptr<GpuState> gpu_state{};
  StepSlots* step_slots = nullptr;  // not null while a step is captured into a GPU graph
};

/// The calling thread's context for `device`.
TANDEM_API Context& context_for(Device device);

}  // namespace tandem::inline v0::kernels
