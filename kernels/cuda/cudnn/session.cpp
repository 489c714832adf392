#include <tandem/kernels/cuda/cudnn/session.h>

#include <array>
#include <memory>

namespace tandem::inline v0::kernels::gpu::cudnn {

Session::Session(const cuda::Gpu& gpu) {
  const cuda::GpuScope scope(gpu.index);
  require(api().cudnnCreate(&handle), "cudnnCreate");
  require(api().cudnnCreateTensorDescriptor(&tensor), "cudnnCreateTensorDescriptor");
}

Session* Session::of(const Queue& queue) {
  constexpr std::size_t kMostGpus = 64;
  struct Slots {
    std::mutex mutex;
    std::array<std::unique_ptr<Session>, kMostGpus> sessions;
  };
  static auto* slots = new Slots;  // outlives every thread
  const std::lock_guard lock(slots->mutex);
  std::unique_ptr<Session>& session = slots->sessions[static_cast<std::size_t>(queue.gpu().index)];
  if (!session && !is_capturing(queue)) {
    session = std::make_unique<Session>(queue.gpu());
  }
  return session.get();
}

bool is_capturing(const Queue& queue) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::require(cudaStreamIsCapturing(queue.stream(), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn
