#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

#include <tandem/core/cuda/gpu.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/kernels/launch.h>

// Internal: how a kernel gets onto a GPU. Each run(OnCuda, ...) makes one Queue and launches by it.

namespace tandem::inline v0::kernels {

/// The calling thread's stream of a context's GPU, which is CUDA's current one while this lives.
class Queue {
 public:
  explicit Queue(Context& context)
      : gpu_(cuda::gpu(context.device.index)),
        scope_(gpu_.index),
        stream_(cuda::current_handle(gpu_)),
        context_(context) {}

  const cuda::Gpu& gpu() const noexcept { return gpu_; }
  /// What it was made from: to run another kernel as a part of this one.
  Context& context() const noexcept { return context_; }
  CUstream_st* stream() const noexcept { return stream_; }
  cuda::Fault* fault() const noexcept { return gpu_.fault; }
  StepSlots* step_slots() const noexcept { return context_.step_slots; }
  /// Blocks of a grid whose threads walk over all elements: enough to fill the GPU, not more than there is work.
  unsigned int blocks_for(std::int64_t items, int items_per_block) const noexcept {
    const std::int64_t wanted = (items + items_per_block - 1) / items_per_block;
    const std::int64_t most = std::int64_t{gpu_.multiprocessors} * kBlocksPerMultiprocessor;
    return static_cast<unsigned int>(wanted < 1 ? 1 : wanted < most ? wanted : most);
  }
  /// Memory of the GPU for this call alone: the next kernel of the stream may overwrite it.
  void* workspace(std::size_t bytes) const;
  template <class T>
  T* workspace_array(std::int64_t count) const {
    return static_cast<T*>(workspace(static_cast<std::size_t>(count) * sizeof(T)));
  }

  /// Whether a graph is being made of the stream's work: nothing may be compiled, timed or waited for then.
  bool is_capturing() const;
  /// kStaged bytes of page-locked host memory for this call alone.
  void* staging() const;
  static constexpr std::int64_t kStaged = 64 << 10;
  /// Blocks until the stream has done all of this. Throws what it ran into. `call` is for messages.
  void wait(const char* call) const;

  /// `kernel` on `blocks` x `threads`, with `shared` bytes of dynamic shared memory. `name` is for messages.
  template <class... Parameters, class... Arguments>
  void launch(const char* name, dim3 blocks, dim3 threads, std::size_t shared, void (*kernel)(Parameters...),
              Arguments&&... arguments) const {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream_;
    cuda::note_launch(name);
    cuda::require(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
  }

 private:
  static constexpr int kBlocksPerMultiprocessor = 16;

  const cuda::Gpu& gpu_;
  cuda::GpuScope scope_;
  CUstream_st* stream_;
  Context& context_;
};

}  // namespace tandem::inline v0::kernels
