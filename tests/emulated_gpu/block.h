#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime.h>

#include "device_runtime.h"

// Runs the blocks of a kernel one after another on the calling OS thread. Each thread that has to wait gets a fiber.

namespace emulated_gpu::detail {

struct Launch {
  std::string name;
  dim3 grid;
  dim3 block;
  std::size_t dynamic_shared = 0;
  std::function<void()> body;  // the work of one thread, which finds its place in threadIdx etc.
};

// Runs the whole grid. Returns cudaSuccess, or the error of a trap or a failed assertion.
cudaError_t run_kernel(const Launch& launch);

// The kernel that this OS thread runs, and the place within it: "kernel f, block (0,0,0), thread (1,0,0)". Empty
// outside of kernels.
std::string place_in_kernel();

// Whether this OS thread runs a kernel now.
bool in_kernel();

// EMULATED_GPU_SEED: 0 keeps everything in ascending order. Other values shuffle, always in the same way.
std::uint64_t seed();

}  // namespace emulated_gpu::detail
