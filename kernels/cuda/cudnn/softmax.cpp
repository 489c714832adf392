#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/cuda/cudnn/library.h>
#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/kernel_library.h>

// Softmax by cuDNN's older functions, which are not deprecated.

namespace tandem::inline v0::kernels::gpu {

namespace {

using namespace cudnn;

template <class Kernel>
bool fits(const Kernel& kernel) {
  // Products of sizes can't overflow, because the tensor is in memory.
  const std::int64_t numel = kernel.outer * kernel.size * kernel.inner;
  return numel > 0 && numel <= INT32_MAX;
}

// cuDNN allows y to be x, and dx to be dy; it says nothing about dx and y.
bool overlaps_as_allowed(const Softmax&) { return true; }
bool overlaps_as_allowed(const SoftmaxGrad& kernel) { return kernel.in_grad != kernel.out; }

/// cuDNN's scaling factors, in the type that it expects.
struct Factors {
  double wide[2];
  float narrow[2];
  bool is_wide;

  explicit Factors(DType dtype, bool accumulate)
      : wide{1, accumulate ? 1.0 : 0.0}, narrow{1, accumulate ? 1.0F : 0.0F}, is_wide(dtype == DType::f64) {}
  const void* alpha() const { return is_wide ? static_cast<const void*>(&wide[0]) : &narrow[0]; }
  const void* beta() const { return is_wide ? static_cast<const void*>(&wide[1]) : &narrow[1]; }
};

cudnnStatus_t call(const Session& session, cudnnSoftmaxAlgorithm_t algorithm, cudnnSoftmaxMode_t mode,
                   const Softmax& kernel) {
  const Factors factors(kernel.dtype, false);
  return api().cudnnSoftmaxForward(session.handle, algorithm, mode, factors.alpha(), session.tensor, kernel.in,
                                   factors.beta(), session.tensor, kernel.out);
}
cudnnStatus_t call(const Session& session, cudnnSoftmaxAlgorithm_t algorithm, cudnnSoftmaxMode_t mode,
                   const SoftmaxGrad& kernel) {
  const Factors factors(kernel.dtype, kernel.accumulate == Accumulate::yes);
  return api().cudnnSoftmaxBackward(session.handle, algorithm, mode, factors.alpha(), session.tensor, kernel.out,
                                    session.tensor, kernel.grad, factors.beta(), session.tensor, kernel.in_grad);
}

template <class Kernel>
bool start(const Queue& queue, const Kernel& kernel) {
  Session* const session = Session::of(queue);
  if (session == nullptr) {
    return false;
  }
  const std::lock_guard lock(session->mutex);
  require(api().cudnnSetStream(session->handle, queue.stream()), "cudnnSetStream");
  const auto outer = static_cast<int>(kernel.outer);
  const auto size = static_cast<int>(kernel.size);
  const auto inner = static_cast<int>(kernel.inner);
  // The softmax runs along the channels, or over the whole instance if the channels are all of it.
  const bool whole = kernel.inner == 1;
  require(api().cudnnSetTensor4dDescriptor(session->tensor, CUDNN_TENSOR_NCHW, data_type(kernel.dtype), outer, size,
                                           inner, 1),
          "cudnnSetTensor4dDescriptor");
  cuda::note_launch(Kernel::kName);
  const cudnnStatus_t status = call(*session, kernel.log ? CUDNN_SOFTMAX_LOG : CUDNN_SOFTMAX_ACCURATE,
                                    whole ? CUDNN_SOFTMAX_MODE_INSTANCE : CUDNN_SOFTMAX_MODE_CHANNEL, kernel);
  if (is_refusal(status)) {
    return false;
  }
  require(status, Kernel::kName);
  return true;
}

template <class Kernel>
bool try_softmax(const Queue& queue, const Kernel& kernel) {
  return cuda::softmax_library() == cuda::KernelLibrary::cudnn && fits(kernel) && overlaps_as_allowed(kernel) &&
         start(queue, kernel);
}

}  // namespace

bool try_cudnn(const Queue& queue, const Softmax& kernel) { return try_softmax(queue, kernel); }
bool try_cudnn(const Queue& queue, const SoftmaxGrad& kernel) { return try_softmax(queue, kernel); }

}  // namespace tandem::inline v0::kernels::gpu
