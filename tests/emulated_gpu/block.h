#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime.h>

#include "device_runtime.h"

// How a kernel's blocks run: one after another on the calling OS thread, a fiber for each thread that has to wait.

namespace emulated_gpu::detail {

struct Launch {
  std::string name;
  dim3 grid;
  dim3 block;
  std::size_t dynamic_shared = 0;
  std::function<void()> body;  // what one thread does; it finds its place in threadIdx & co
};

// Runs the whole grid. cudaSuccess, or what a trap or a failed assertion left.
cudaError_t run_kernel(const Launch& launch);

// The name of the kernel that this OS thread runs, and where in it: "kernel f, block (0,0,0), thread (1,0,0)"; empty
// outside of kernels.
std::string place_in_kernel();

// EMULATED_GPU_SEED: 0 keeps everything in ascending order, other values shuffle it, always in the same way.
std::uint64_t seed();

}  // namespace emulated_gpu::detail
