#include <cmath>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/flat.h>
#include <tandem/kernels/grad_scale.h>

// The search reads each gradient once (4 bytes per element in f32) and, when it unscales, also writes it (8). All
// threads that find an infinity store the same value.

namespace tandem::inline v0::kernels {

namespace {

template <class Kernel>
__global__ void apply_kernel(Kernel kernel) {
  formula::apply(kernel);
}

template <class Kernel>
void launch_one(Context& context, const Kernel& kernel) {
  Queue(context).launch(Kernel::kName, 1, 1, 0, apply_kernel<Kernel>, kernel);
}

template <class T, bool kUnscale>
struct Search : flat::Arrays<T, 1, kUnscale ? 0b1 : 0b0> {
  using C = ComputeType<T>;
  GradScale* record;
  float* found_inf;

  __device__ C factors() const { return static_cast<C>(record->inverse); }
  __device__ void update(C& inverse, T (&x)[1], std::int64_t) const {
    const C product = C(x[0]) * inverse;
    if (!std::isfinite(product)) {
      // Several threads may find such a value at once. Volatile, their writes may meet.
      *static_cast<volatile double*>(&record->found_inf) = 1;
      *static_cast<volatile float*>(found_inf) = 1;
    }
    if constexpr (kUnscale) {
      x[0] = C(x[0]) == C(0) ? x[0] : T(product);
    }
  }
};

}  // namespace

void run(OnCuda, Context& context, const StartGradScale& kernel) { launch_one(context, kernel); }
void run(OnCuda, Context& context, const FinishGradScale& kernel) { launch_one(context, kernel); }
void run(OnCuda, Context& context, const UpdateGradScale& kernel) { launch_one(context, kernel); }

void run(OnCuda, Context& context, const FindInf& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    const auto search = [&]<bool kUnscale>() {
      flat::for_each(queue, FindInf::kName,
                     Search<T, kUnscale>{{{static_cast<T*>(kernel.gradients)}}, kernel.record, kernel.found_inf},
                     kernel.count);
    };
    kernel.unscale ? search.template operator()<true>() : search.template operator()<false>();
  });
}

}  // namespace tandem::inline v0::kernels
