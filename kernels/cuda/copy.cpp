#include <tandem/kernels/copy.h>

#include <cstring>

#include <tandem/core/cuda_stream.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/launch/queue.h>

namespace tandem::inline v0::kernels {

namespace gpu {

/// Compiled for each type from copy_kernels.h: see sources.cmake.
template <class Out>
void copy_to(const Queue& queue, const Copy& kernel);

}  // namespace gpu

namespace {

// The driver copies through the host if the GPUs can't reach each other's memory.
void copy_between_gpus(const Queue& queue, const Transfer& kernel) {
  cuda::require(cudaMemcpyPeerAsync(kernel.out, kernel.out_device.index, kernel.in, kernel.in_device.index,
                                    static_cast<std::size_t>(kernel.bytes), queue.stream()),
                "cudaMemcpyPeerAsync");
}

// The source's stream must have written the data before the copy reads it, and must not overwrite or free it before the
// copy is done.
void between_gpus(const Queue& queue, const Transfer& kernel) {
  if (!kernel.orders_gpus) {
    return copy_between_gpus(queue, kernel);
  }
  const cuda::Stream from = cuda::current_stream(kernel.in_device);
  const cuda::Stream to = cuda::current_stream(kernel.out_device);
  to.wait_stream(from);
  copy_between_gpus(queue, kernel);
  from.wait_stream(to);
}

void start_copy(const Queue& queue, void* out, const void* in, std::int64_t bytes, cudaMemcpyKind kind) {
  cuda::require(cudaMemcpyAsync(out, in, static_cast<std::size_t>(bytes), kind, queue.stream()), "cudaMemcpyAsync");
}

// A copy into memory that is not page-locked would wait inside CUDA, forever if the GPU never gets there. A short copy
// therefore goes through page-locked memory. A long one first waits for its turn, which costs little compared with the
// copy.
void to_host_and_wait(const Queue& queue, const Transfer& kernel) {
  const bool staged = kernel.bytes <= Queue::kStaged;
  if (!staged) {
    queue.wait(Transfer::kName);
  }
  void* const to = staged ? queue.staging().memory : kernel.out;
  start_copy(queue, to, kernel.in, kernel.bytes, cudaMemcpyDeviceToHost);
  queue.wait(Transfer::kName);
  if (staged) {
    std::memcpy(kernel.out, to, static_cast<std::size_t>(kernel.bytes));
  }
}

// A copy from memory that is not page-locked may wait inside CUDA like one into it, or may go on reading after
// cudaMemcpyAsync has returned. A short copy therefore goes through page-locked memory, and the host goes on. A long
// one waits for its turn, and for its end.
void to_gpu_and_wait(const Queue& queue, const Transfer& kernel) {
  if (kernel.bytes > Queue::kStaged) {
    queue.wait(Transfer::kName);
    start_copy(queue, kernel.out, kernel.in, kernel.bytes, cudaMemcpyHostToDevice);
    queue.wait(Transfer::kName);
    return;
  }
  Queue::Staging& staging = queue.staging();
  std::memcpy(staging.memory, kernel.in, static_cast<std::size_t>(kernel.bytes));
  start_copy(queue, kernel.out, staging.memory, kernel.bytes, cudaMemcpyHostToDevice);
  queue.keep(staging);
}

}  // namespace

void run(OnCuda, Context& context, const Copy& kernel) {
  if (kernel.loop.numel() > 0) {
    const Queue queue(context);
    for_any(kernel.out_dtype, [&]<class Out>() { gpu::copy_to<Out>(queue, kernel); });
  }
}

void run(OnCuda, Context& context, const Transfer& kernel) {
  const Queue queue(context);
  cuda::note_launch(Transfer::kName);
  if (kernel.in_device.type == DeviceType::cuda && kernel.out_device.type == DeviceType::cuda) {
    between_gpus(queue, kernel);
    return;
  }
  const bool to_host = kernel.out_device.type == DeviceType::cpu;
  if (kernel.wait) {
    return to_host ? to_host_and_wait(queue, kernel) : to_gpu_and_wait(queue, kernel);
  }
  start_copy(queue, kernel.out, kernel.in, kernel.bytes, to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice);
}

}  // namespace tandem::inline v0::kernels
