#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cuda_runtime.h>

#include <tandem/build.h>
#include <tandem/core/export.h>
#include <tandem/core/function_ref.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/step_state.h>

#if !TANDEM_WITH_CUDA
#error "this tandem was built without CUDA: configure it with -DTANDEM_CUDA=ON"
#endif

namespace tandem::inline v0::kernels {

class Queue;

/// Launches a program's own kernel on a GPU: its run(OnCuda, ...), in a .cu file, makes a CudaQueue. The context's GPU
/// is CUDA's current one while the object lives. Nothing may wait for the GPU meanwhile, because the launches may be
/// captured.
class TANDEM_API CudaQueue {
 public:
  explicit CudaQueue(Context& context);
  ~CudaQueue();
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  /// The stream of the calling thread, for calls of libraries.
  CUstream_st* stream() const noexcept;
  /// The units of the GPU that run blocks of threads.
  int multi_processor_count() const noexcept;
  /// Blocks of a grid whose threads walk over all items: enough to fill the GPU, no more than there is work for, and at
  /// least one.
  unsigned int blocks_for(std::int64_t items, int items_per_block) const noexcept;
  /// GPU memory for the launches of this call of run(), aligned to 256 bytes. Ask once, for all of it: a second call
  /// may return the same memory.
  void* workspace(std::size_t bytes) const;
  /// A kernel that draws random numbers gets Generator::state() in this form: by value, or from memory in a captured
  /// step.
  StepArgument step(const StepState* state) const;

  /// Launches `kernel` on `blocks` x `threads`, with `shared` bytes of dynamic shared memory. Throws DeviceError for a
  /// launch that CUDA refuses. `name`, a literal, is what messages of this and of later failures call the launch.
  template <class... Parameters, class... Arguments>
  void launch(const char* name, dim3 blocks, dim3 threads, std::size_t shared, void (*kernel)(Parameters...),
              const Arguments&... arguments) const {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream();
    launch(name, [&] {
      const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
      if (status != cudaSuccess) {
        cudaGetLastError();  // a failure is thrown, or made good by another try; it is not found a second time
      }
      return status;
    });
  }

 private:
  void launch(const char* name, core::FunctionRef<cudaError_t()> call) const;

  std::unique_ptr<Queue> queue_;
};

}  // namespace tandem::inline v0::kernels
