#include <tandem/kernels/elementwise_loss.h>

#include <tandem/kernels/cuda/elementwise_loss.h>

namespace tandem::inline v0::kernels {

namespace {

template <LossOp op, class T>
struct LossGradient : gpu::LossArrays<op, T> {
  using Arrays = gpu::LossArrays<op, T>;
  using C = ComputeType<T>;
  const T* one_grad;  // shared by all losses; null if each has its own
  C scale;
  bool of_target, accumulate;

  __device__ bool reads(int k) const { return (k != 0 || accumulate) && this->arrays[k] != nullptr; }
  __device__ C factors() const { return one_grad != nullptr ? *one_grad * scale : C(0); }
  __device__ void update(C& by, T (&x)[Arrays::kArrays], std::int64_t) const {
    const C g = one_grad != nullptr ? by : x[3] * scale;
    const C value = (of_target ? this->target_grad(x) : this->input_grad(x)) * g;
    x[0] = T(accumulate ? x[0] + value : value);
  }
};

// Moves 8 bytes per element. In the usual case of a loss whose gradient is 1 it moves nothing: the launch ends at once.
struct Rescale : flat::Arrays<float, 1, 0b1> {
  const float* grad;

  __device__ float factors() const { return *grad; }
  __device__ bool idle(float g) const { return g == 1; }
  __device__ void update(float& g, float (&x)[1], std::int64_t) const { x[0] *= g; }
};

}  // namespace

void run(OnCuda, Context& context, const ElementwiseLossGrad& kernel) {
  const Queue queue(context);
  gpu::for_loss(kernel, [&]<LossOp op, class T>() {
    const LossGradient<op, T> gradient{{kernel, kernel.result, kernel.loss_per_element ? kernel.grad : nullptr},
                                       kernel.loss_per_element ? nullptr : static_cast<const T*>(kernel.grad),
                                       static_cast<ComputeType<T>>(kernel.scale),
                                       kernel.of_target,
                                       kernel.accumulate == Accumulate::yes};
    flat::for_each(queue, ElementwiseLossGrad::kName, gradient, kernel.count);
  });
}

void run(OnCuda, Context& context, const RescaleGradient& kernel) {
  const Queue queue(context);
  flat::for_each(queue, RescaleGradient::kName, Rescale{{{kernel.gradient}}, kernel.grad}, kernel.count);
}

}  // namespace tandem::inline v0::kernels
