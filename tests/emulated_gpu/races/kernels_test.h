#pragma once

#include "../test_support.h"

// Runs a kernel with the race oracle on, or without.

template <class... Parameters, class... Arguments>
void run_kernel(bool find_races, dim3 grid, dim3 block, void (*kernel)(Parameters...), Arguments... arguments) {
  emulated_gpu::find_races(find_races);
  const Stream stream;
  constexpr std::size_t kShared = 4096;
  EXPECT_CUDA(launch(stream, grid, block, kShared, kernel, arguments...));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  emulated_gpu::find_races(false);
}
