#include <tandem/core/cuda_stream.h>
#include <tandem/kernels/cuda/queue.h>
#include <tandem/kernels/memory.h>

namespace tandem::inline v0::kernels {

namespace {

// The driver goes through the host where GPUs do not reach each other's memory. The source's stream has to have made
// what is read, and must not write or free it before it was read.
void between_gpus(const Queue& queue, const Transfer& kernel) {
  const cuda::Stream from = cuda::current_stream(kernel.in_device);
  const cuda::Stream to = cuda::current_stream(kernel.out_device);
  to.wait_stream(from);
  cuda::require(cudaMemcpyPeerAsync(kernel.out, kernel.out_device.index, kernel.in, kernel.in_device.index,
                                    static_cast<std::size_t>(kernel.bytes), queue.stream()),
                "cudaMemcpyPeerAsync");
  from.wait_stream(to);
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
  cuda::require(cudaMemcpyAsync(kernel.out, kernel.in, static_cast<std::size_t>(kernel.bytes),
                                to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, queue.stream()),
                "cudaMemcpyAsync");
  // From page-locked memory the call returns before anything was read.
  if (kernel.wait) {
    cuda::synchronize(queue.gpu(), queue.stream());
  }
}

}  // namespace tandem::inline v0::kernels
