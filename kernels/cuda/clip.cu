#include <cmath>
#include <limits>

#include <tandem/kernels/clip.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/flat.h>
#include <tandem/kernels/cuda/patterns/sums.h>

// A norm reads its values once (4 bytes per element in f32) and adds in f64. Clipping reads and writes them once (8
// bytes); clipping by a norm that is small enough ends at once.

namespace tandem::inline v0::kernels {

namespace {

enum class Power { first, second, any, largest };

struct Largest {
  __device__ double operator()(double a, double b) const { return a >= b || std::isnan(a) ? a : b; }  // a NaN stays
};

struct Total {
  double total;
};

template <class T, Power kPower>
struct PowerSum : flat::Arrays<T, 1, 0> {
  double power;

  __device__ Total factors() const { return {0}; }
  __device__ void update(Total& by, T (&x)[1], std::int64_t) const {
    const double value = std::abs(static_cast<double>(x[0]));
    if constexpr (kPower == Power::largest) by.total = Largest()(by.total, value);
    if constexpr (kPower == Power::first) by.total += value;
    if constexpr (kPower == Power::second) by.total += value * value;
    if constexpr (kPower == Power::any) by.total += std::pow(value, power);
  }
};

template <class Op>
struct Finish {
  double* total;
  bool accumulate;

  __device__ void operator()(double sum) const { *total = accumulate ? Op()(*total, sum) : sum; }
};

template <Power kPower, class Kernel>
void launch_sum(const Queue& queue, const Kernel& kernel, double power) {
  using Op = std::conditional_t<kPower == Power::largest, Largest, Plus>;
  for_floating(kernel.dtype, [&]<class T>() {
    sums::of_elements<Op>(queue, Kernel::kName, PowerSum<T, kPower>{{{flat::input<T>(kernel.values)}}, power},
                          kernel.count, Finish<Op>{kernel.total, kernel.accumulate == Accumulate::yes});
  });
}

template <class T>
struct NormClip : flat::Arrays<T, 1, 0b1> {
  const double* norm;
  double max_norm;

  __device__ double factors() const { return max_norm / (*norm + 1e-6); }
  __device__ bool idle(double factor) const { return factor >= 1; }
  __device__ void update(double& factor, T (&x)[1], std::int64_t) const {
    using C = ComputeType<T>;
    x[0] = C(x[0]) == C(0) ? x[0] : T(C(x[0]) * static_cast<C>(factor));
  }
};

template <class T>
struct ValueClip : flat::Arrays<T, 1, 0b1> {
  ComputeType<T> limit;

  __device__ int factors() const { return 0; }
  __device__ void update(int&, T (&x)[1], std::int64_t) const {
    const ComputeType<T> value = x[0];
    x[0] = T(value > limit ? limit : value < -limit ? -limit : value);
  }
};

}  // namespace

void run(OnCuda, Context& context, const SquaredNorm& kernel) { launch_sum<Power::second>(Queue(context), kernel, 2); }

void run(OnCuda, Context& context, const PowerNorm& kernel) {
  const Queue queue(context);
  if (std::isinf(kernel.power)) {
    return launch_sum<Power::largest>(queue, kernel, kernel.power);
  }
  if (kernel.power == 1) {
    return launch_sum<Power::first>(queue, kernel, 1);
  }
  launch_sum<Power::any>(queue, kernel, kernel.power);
}

void run(OnCuda, Context& context, const ClipByNorm& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    flat::for_each(queue, ClipByNorm::kName,
                   NormClip<T>{{{static_cast<T*>(kernel.values)}}, kernel.norm, kernel.max_norm}, kernel.count);
  });
}

void run(OnCuda, Context& context, const ClipByValue& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    flat::for_each(queue, ClipByValue::kName,
                   ValueClip<T>{{{static_cast<T*>(kernel.values)}}, static_cast<ComputeType<T>>(kernel.limit)},
                   kernel.count);
  });
}

}  // namespace tandem::inline v0::kernels
