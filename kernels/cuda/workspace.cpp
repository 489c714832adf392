#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/kernels/cuda/queue.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::size_t kSmallest = std::size_t{1} << 20;

/// Scratch memory of one thread on one GPU. Blocks are kept: a captured step has their addresses, and a share of this.
struct Workspace final : GpuState {
  struct Block {
    CUstream_st* stream;
    void* memory;
    std::size_t bytes;
  };
  std::vector<Block> blocks;

  // At the end of its thread and of the steps that it captured. What was queued is done first: memory goes in the order
  // of the stream.
  ~Workspace() override {
    for (const Block& block : blocks) {
      cudaFreeAsync(block.memory, block.stream);
    }
  }
};

}  // namespace

void* Queue::workspace(std::size_t bytes) const {
  if (!context_.gpu_state) {
    context_.gpu_state = std::make_shared<Workspace>();
  }
  auto& blocks = static_cast<Workspace&>(*context_.gpu_state).blocks;
  for (const Workspace::Block& block : blocks) {
    if (block.stream == stream_ && block.bytes >= bytes) {
      return block.memory;
    }
  }
  const std::size_t rounded = std::bit_ceil(std::max(bytes, kSmallest));
  void* memory = nullptr;
  const cudaError_t status = cudaMallocAsync(&memory, rounded, stream_);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail<OutOfMemory>("cuda:{} is out of memory: {} bytes of scratch memory for a kernel. Take a smaller batch",
                      gpu_.index, rounded);
  }
  cuda::require(status, "cudaMallocAsync");
  blocks.push_back({stream_, memory, rounded});
  return memory;
}

}  // namespace tandem::inline v0::kernels
