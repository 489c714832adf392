#pragma once

#include <cstdint>
#include <functional>

// How gpu_bench times: by events of the GPU, with the clock on the wall beside them.

namespace bench::gpu {

/// How much is done for one number.
struct Effort {
  int warm_ups = 50;
  double warm_up_seconds = 2;  // no more, unless a single one takes longer
  int blocks = 20;
  double block_ms = 10;  // what a block should last; one call is the least
};

/// Microseconds per call: median and quartiles of the blocks.
struct Measured {
  double us = 0, q1 = 0, q3 = 0;
  double wall_us = 0;  // by the clock on the wall, until the GPU is done: larger where the GPU waits for the host
  double host_us = 0;  // until the call returns, the GPU having nothing else to do
  int calls_per_block = 1;
};

/// `body` queues the same work on the current stream each time; nobody looks at a result in between.
Measured measure(const Effort& effort, const std::function<void()>& body);

}  // namespace bench::gpu
