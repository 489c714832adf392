#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/cuda/cudnn/choice.h>
#include <tandem/kernels/cuda/cudnn/session.h>
#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/cuda/cudnn/types.h>

// Softmax by cuDNN's older functions, which are not deprecated.

namespace tandem::inline v0::kernels::gpu {

namespace {

using namespace cudnn;

template <class Kernel>
bool fits(const Kernel& kernel) {
  // Products of sizes do not overflow: the tensor is in memory.
  const std::int64_t numel = kernel.outer * kernel.size * kernel.inner;
  return numel > 0 && numel <= INT32_MAX;
}

// y may be x, and dx may be dy, says cuDNN; of dx and y it says nothing.
bool overlaps_as_allowed(const Softmax&) { return true; }
bool overlaps_as_allowed(const SoftmaxGrad& kernel) { return kernel.in_grad != kernel.out; }

/// The numbers that cuDNN multiplies with, in the type that it wants them in.
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
  // Along the channels, or, where they are all of a row, over the whole of it.
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

void*& result_of(Softmax& kernel) { return kernel.out; }
void*& result_of(SoftmaxGrad& kernel) { return kernel.in_grad; }
std::int64_t flags_of(const Softmax&) { return 0; }
std::int64_t flags_of(const SoftmaxGrad& kernel) { return kernel.accumulate == Accumulate::yes ? 2 : 1; }

template <class Kernel>
bool try_softmax(const Queue& queue, Context& context, const Kernel& kernel) {
  if (is_timing()) {
    return false;
  }
  const cuda::KernelLibrary library = cuda::softmax_library();
  if (library == cuda::KernelLibrary::own || !fits(kernel) || !overlaps_as_allowed(kernel) ||
      !cuda::cudnn_available()) {
    return false;
  }
  if (library == cuda::KernelLibrary::cudnn) {
    return start(queue, kernel);
  }
  Kernel changed = kernel;
  const auto own = [&](void* out) {
    result_of(changed) = out;
    run(OnCuda{}, context, changed);
  };
  const auto theirs = [&](const Queue& other, void* out) {
    result_of(changed) = out;
    return start(other, changed);
  };
  const ShapeClass shape_class{kSoftmaxClass,
                               flags_of(kernel),
                               static_cast<std::int64_t>(kernel.dtype),
                               kernel.log,
                               order_of(kernel.outer),
                               order_of(kernel.size),
                               order_of(kernel.inner)};
  const auto bytes = static_cast<std::size_t>(kernel.outer * kernel.size * kernel.inner) * item_size(kernel.dtype);
  return cudnn_is_faster(queue, context, shape_class, {own, theirs, bytes}) && start(queue, kernel);
}

}  // namespace

bool try_cudnn(const Queue& queue, Context& context, const Softmax& kernel) {
  return try_softmax(queue, context, kernel);
}
bool try_cudnn(const Queue& queue, Context& context, const SoftmaxGrad& kernel) {
  return try_softmax(queue, context, kernel);
}

}  // namespace tandem::inline v0::kernels::gpu
