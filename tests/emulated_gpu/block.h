#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>

#include <cuda_runtime.h>

#include "device_runtime.h"

// Runs the blocks of a kernel one after another on the calling OS thread, or interleaved where data races are looked
// for. Each thread that has to wait gets a fiber.

namespace emulated_gpu::detail {

struct Launch {
  std::string name;
  dim3 grid;
  dim3 block;
  std::size_t dynamic_shared = 0;
  std::function<void()> body;  // the work of one thread, which finds its place in threadIdx etc.
};

// The permutation i -> (factor * i + start) mod count.
class Order {
 public:
  Order(std::uint64_t count, std::uint64_t random) : count_(count) {
    if (random != 0 && count > 1) {
      start_ = random % count;
      factor_ = 1 + (random >> 32) % (count - 1);
      while (std::gcd(factor_, count) != 1) {
        ++factor_;
      }
    }
  }
  std::uint64_t operator()(std::uint64_t i) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(factor_) * i + start_) % count_);
  }

 private:
  std::uint64_t count_;
  std::uint64_t start_ = 0;
  std::uint64_t factor_ = 1;
};

// The blocks of a launch, in the order in which they start.
class Blocks {
 public:
  explicit Blocks(const Launch& launch);
  std::uint64_t count() const { return count_; }
  // The next block's linear index. There is none after an error.
  std::optional<std::uint64_t> take() {
    return started_ < count_ && error == cudaSuccess ? std::optional(order_(started_++)) : std::nullopt;
  }

  cudaError_t error = cudaSuccess;  // of a trap or a failed assertion
  std::minstd_rand random;          // whoever runs blocks goes on from here

 private:
  std::uint64_t count_;
  std::uint64_t started_ = 0;
  Order order_;
};

class BlockRaces;

// Runs blocks on the calling OS thread until there are no more. Members of a team that share the blocks have different
// numbers. Races are looked for unless `races` is nullptr.
void run_blocks(const Launch& launch, Blocks& blocks, unsigned member, BlockRaces* races);

// Runs the whole grid. Returns cudaSuccess, or the error of a trap or a failed assertion.
cudaError_t run_kernel(const Launch& launch);

// The kernel that this OS thread runs, and the place within it: "kernel f, block (0,0,0), thread (1,0,0)". Empty
// outside of kernels.
std::string place_in_kernel();

// Whether this OS thread runs a kernel now.
bool in_kernel();
// Lets other threads of the running block go on, or other blocks of a team.
void interrupt();

// EMULATED_GPU_SEED: 0 keeps everything in ascending order. Other values shuffle, always in the same way.
std::uint64_t seed();

}  // namespace emulated_gpu::detail
