#include <cstring>

#include <tandem/core/cuda_stream.h>
#include <tandem/kernels/cuda/queue.h>
#include <tandem/kernels/memory.h>

namespace tandem::inline v0::kernels {

namespace {

// The driver goes through the host where GPUs do not reach each other's memory.
void copy_between_gpus(const Queue& queue, const Transfer& kernel) {
  cuda::require(cudaMemcpyPeerAsync(kernel.out, kernel.out_device.index, kernel.in, kernel.in_device.index,
                                    static_cast<std::size_t>(kernel.bytes), queue.stream()),
                "cudaMemcpyPeerAsync");
}

// The source's stream has to have made what is read, and must not write or free it before it was read.
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

// A copy into memory that is not page-locked would wait inside of CUDA, and for ever if the GPU does not get there. So
// few bytes go by page-locked memory, and many wait for their turn first, which costs little beside them.
void to_host_and_wait(const Queue& queue, const Transfer& kernel) {
  const bool staged = kernel.bytes <= Queue::kStaged;
  if (!staged) {
    queue.wait(Transfer::kName);
  }
  void* const to = staged ? queue.staging() : kernel.out;
  start_copy(queue, to, kernel.in, kernel.bytes, cudaMemcpyDeviceToHost);
  queue.wait(Transfer::kName);
  if (staged) {
    std::memcpy(kernel.out, to, static_cast<std::size_t>(kernel.bytes));
  }
}

}  // namespace

void run(OnCuda, Context& context, const Transfer& kernel) {
  const Queue queue(context);
  cuda::note_launch(Transfer::kName);
  if (kernel.in_device.type == DeviceType::cuda && kernel.out_device.type == DeviceType::cuda) {
    between_gpus(queue, kernel);
    return;
  }
  const bool to_host = kernel.out_device.type == DeviceType::cpu;
  if (to_host && kernel.wait) {
    return to_host_and_wait(queue, kernel);
  }
  start_copy(queue, kernel.out, kernel.in, kernel.bytes, to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice);
  if (kernel.wait) {  // from page-locked memory the call returns before anything was read
    queue.wait(Transfer::kName);
  }
}

}  // namespace tandem::inline v0::kernels
