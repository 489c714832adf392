#include <tandem/kernels/cuda/flat.h>
#include <tandem/kernels/prepared_gradient.h>

// 8 bytes per element, or, in the usual case of a loss whose gradient is 1, none: a launch that ends at once.

namespace tandem::inline v0::kernels {

namespace {

struct Rescale : flat::Arrays<float, 1, 0b1> {
  const float* grad;

  __device__ float factors() const { return *grad; }
  __device__ bool idle(float g) const { return g == 1; }
  __device__ void update(float& g, float (&x)[1], std::int64_t) const { x[0] *= g; }
};

}  // namespace

void run(OnCuda, Context& context, const RescaleGradient& kernel) {
  const Queue queue(context);
  flat::for_each(queue, RescaleGradient::kName, Rescale{{{kernel.gradient}}, kernel.grad}, kernel.count);
}

}  // namespace tandem::inline v0::kernels
