#pragma once

#include <cstdint>
#include <functional>

// Timing of gpu_bench: by events of the GPU, with wall-clock time beside them.

namespace bench::gpu {

/// How many calls and how much time one measurement takes.
struct Effort {
  int warm_ups = 50;
  double warm_up_seconds = 2;  // upper bound for all warm-ups, unless the first one takes longer
  int blocks = 20;
  double block_ms = 10;  // target duration of a block, which has at least one call
};

/// Microseconds per call: median and quartiles of the blocks.
struct Measured {
  double us = 0, q1 = 0, q3 = 0;
  double wall_us = 0;  // wall-clock time until the GPU is done: larger if the GPU waits for the host
  double host_us = 0;  // time until the call returns while the GPU has nothing else to do
  int calls_per_block = 1;
};

/// `body` queues the same work on the current stream at each call. No result is read in between.
Measured measure(const Effort& effort, const std::function<void()>& body);

}  // namespace bench::gpu
