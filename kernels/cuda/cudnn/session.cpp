#include <tandem/kernels/cuda/cudnn/session.h>

#include <memory>

#include <tandem/core/cuda/per_gpu.h>

namespace tandem::inline v0::kernels::gpu::cudnn {

Session::Session(const cuda::Gpu& gpu) {
  const cuda::GpuScope scope(gpu.index);
  require(api().cudnnCreate(&handle), "cudnnCreate");
  require(api().cudnnCreateTensorDescriptor(&tensor), "cudnnCreateTensorDescriptor");
}

Session* Session::of(const Queue& queue) {
  static constinit cuda::PerGpu<Session> sessions;
  const int gpu = queue.gpu().index;
  if (Session* made = sessions.find(gpu); made != nullptr || queue.is_capturing()) {
    return made;
  }
  return &sessions.get(gpu, [&] { return std::make_unique<Session>(queue.gpu()); });
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn
