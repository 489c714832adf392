#pragma once

#include <cstddef>
#include <optional>

#include <cuda_runtime.h>

#include <tandem/core/cuda/gpu.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/kernels/kernel.h>

// The way of a kernel onto a GPU: each run(OnCuda, ...) makes one Queue and launches through it.

namespace tandem::inline v0::kernels {

/// The calling thread's stream on a context's GPU. The GPU is CUDA's current one while the Queue lives.
class Queue {
 public:
  explicit Queue(Context& context)
      : gpu_(cuda::gpu(context.device.index)),
        scope_(gpu_.index),
        stream_(cuda::current_handle(gpu_)),
        context_(context) {}

  const cuda::Gpu& gpu() const noexcept { return gpu_; }
  /// Returns the context, so that a kernel can run another one as a part of itself.
  Context& context() const noexcept { return context_; }
  CUstream_st* stream() const noexcept { return stream_; }
  cuda::Fault* fault() const noexcept { return gpu_.fault; }
  StepSlots* step_slots() const noexcept { return context_.step_slots; }
  /// Blocks of a grid whose threads walk over all items: enough to fill the GPU, but no more than there is work for.
  unsigned int blocks_for(std::int64_t items, int items_per_block) const noexcept {
    const std::int64_t wanted = (items + items_per_block - 1) / items_per_block;
    return static_cast<unsigned int>(wanted < 1 ? 1 : wanted < most_blocks() ? wanted : most_blocks());
  }
  std::int64_t most_blocks() const noexcept { return std::int64_t{gpu_.multiprocessors} * kBlocksPerMultiprocessor; }
  /// Returns GPU memory for this call alone; the stream's next kernel may overwrite it.
  void* workspace(std::size_t bytes) const;
  template <class T>
  T* workspace_array(std::int64_t count) const {
    return static_cast<T*>(workspace(static_cast<std::size_t>(count) * sizeof(T)));
  }
  /// Returns counters in GPU memory that are 0 between the stream's kernels: most_blocks() of them, and at least
  /// kLeastTickets. A kernel that uses them leaves them 0.
  unsigned int* tickets() const;
  static constexpr std::int64_t kLeastTickets = 2048;

  /// True while the stream's work is being captured into a graph. Nothing may then be compiled, timed or waited for.
  bool is_capturing() const;
  /// Page-locked host memory for one copy of at most kStaged bytes. Waits if all of this thread's places are in use.
  struct Staging {
    void* memory;
    std::optional<cuda::Event> end;  // of the last copy from or to it
  };
  Staging& staging() const;
  static constexpr std::int64_t kStaged = 64 << 10;
  /// Keeps a place until the stream has done all its present work.
  void keep(Staging& staging) const;
  /// Blocks until the stream has done all its work, and throws any error of that work. `call` is for messages.
  void wait(const char* call) const;

  /// Launches `kernel` on `blocks` x `threads`, with `shared` bytes of dynamic shared memory. `name` is for messages.
  template <class... Parameters, class... Arguments>
  void launch(const char* name, dim3 blocks, dim3 threads, std::size_t shared, void (*kernel)(Parameters...),
              const Arguments&... arguments) const {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream_;
    cuda::note_launch(name);
    cuda::require_room(gpu_.index, name, [&] { return cudaLaunchKernelEx(&config, kernel, arguments...); });
  }

 private:
  static constexpr int kBlocksPerMultiprocessor = 16;

  const cuda::Gpu& gpu_;
  cuda::GpuScope scope_;
  CUstream_st* stream_;
  Context& context_;
};

}  // namespace tandem::inline v0::kernels
