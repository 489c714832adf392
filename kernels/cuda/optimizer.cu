#include <tandem/kernels/cuda/dispatch.h>
#include <tandem/kernels/cuda/flat.h>
#include <tandem/kernels/cuda/step.h>
#include <tandem/kernels/optimizer_formulas.h>

// Each array is read once and, where it changes, written once, in 16-byte packs: Adam in f32 moves 28 bytes per element
// (16 in, 12 out), Sgd 12, with momentum 20, RmsProp 20 to 36, Adagrad 20, a moving average 12. There is so little to
// compute that memory alone sets the time.

namespace tandem::inline v0::kernels {

namespace {

// What a step's elements share. It is computed by the host where that knows the step, or else by one thread of a block.
template <class Kernel, class C>
struct StepFactors {
  using Factors = decltype(formula::factors<C>(Kernel(), StepState()));
  Kernel kernel;
  StepArgument step;
  Factors by_host;

  StepFactors(const Queue& queue, const Kernel& of)
      : kernel(of), step(step_argument(queue, of.state)), by_host(formula::factors<C>(of, step.value)) {}

  __device__ Factors get() const {
    if (step.device == nullptr) {
      return by_host;
    }
    __shared__ Factors shared;
    if (threadIdx.x == 0) {
      shared = formula::factors<C>(kernel, step.get());
    }
    __syncthreads();
    return shared;
  }
};

// Arrays 0 and 1 are parameter and gradient.
template <class Kernel, class T, int kCount, unsigned kMask>
struct Step : flat::Arrays<T, kCount, kMask> {
  using C = ComputeType<T>;
  StepFactors<Kernel, C> step;

  __device__ auto factors() const { return step.get(); }
  __device__ C downhill(T gradient) const { return step.kernel.maximize ? -C(gradient) : C(gradient); }
};

template <class T>
struct SgdStep : Step<Sgd, T, 3, 0b101> {
  template <class By>
  __device__ void update(By& by, T (&x)[3], std::int64_t) const {
    if (this->arrays[2] == nullptr) {
      formula::sgd(by, this->downhill(x[1]), x[0]);
    } else {
      formula::sgd(by, this->downhill(x[1]), x[0], x[2]);
    }
  }
};

template <class T>
struct AdamStep : Step<Adam, T, 5, 0b11101> {
  template <class By>
  __device__ void update(By& by, T (&x)[5], std::int64_t) const {
    if (this->arrays[4] == nullptr) {
      formula::adam<false>(by, this->downhill(x[1]), x[0], x[2], x[3], x[4]);
    } else {
      formula::adam<true>(by, this->downhill(x[1]), x[0], x[2], x[3], x[4]);
    }
  }
};

template <class T>
struct RmsPropStep : Step<RmsProp, T, 5, 0b11101> {
  template <class By>
  __device__ void update(By& by, T (&x)[5], std::int64_t) const {
    const auto g = this->downhill(x[1]);
    if (this->arrays[3] == nullptr) {
      this->arrays[4] == nullptr ? formula::rms_prop<false, false>(by, g, x[0], x[2], x[3], x[4])
                                 : formula::rms_prop<false, true>(by, g, x[0], x[2], x[3], x[4]);
    } else {
      this->arrays[4] == nullptr ? formula::rms_prop<true, false>(by, g, x[0], x[2], x[3], x[4])
                                 : formula::rms_prop<true, true>(by, g, x[0], x[2], x[3], x[4]);
    }
  }
};

template <class T>
struct AdagradStep : Step<Adagrad, T, 3, 0b101> {
  template <class By>
  __device__ void update(By& by, T (&x)[3], std::int64_t) const {
    formula::adagrad(by, this->downhill(x[1]), x[0], x[2]);
  }
};

template <class T>
struct MovingAverageStep : flat::Arrays<T, 2, 0b01> {
  using C = ComputeType<T>;
  C decay, rest;

  __device__ int factors() const { return 0; }
  __device__ void update(int&, T (&x)[2], std::int64_t) const { x[0] = T(decay * x[0] + rest * x[1]); }
};

template <template <class> class F, class T, class Kernel, class... More>
void launch_step(const Queue& queue, const Kernel& kernel, More... more) {
  flat::for_each(
      queue, Kernel::kName,
      F<T>{{{{static_cast<T*>(kernel.param), flat::input<T>(kernel.grad), static_cast<T*>(more)...}}, {queue, kernel}}},
      kernel.count);
}

}  // namespace

void run(OnCuda, Context& context, const Sgd& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() { launch_step<SgdStep, T>(queue, kernel, kernel.momentum_buffer); });
}

void run(OnCuda, Context& context, const Adam& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    launch_step<AdamStep, T>(queue, kernel, kernel.exp_avg, kernel.exp_avg_sq, kernel.max_exp_avg_sq);
  });
}

void run(OnCuda, Context& context, const RmsProp& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    launch_step<RmsPropStep, T>(queue, kernel, kernel.square_avg, kernel.grad_avg, kernel.momentum_buffer);
  });
}

void run(OnCuda, Context& context, const Adagrad& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() { launch_step<AdagradStep, T>(queue, kernel, kernel.sum); });
}

void run(OnCuda, Context& context, const MovingAverage& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    using C = ComputeType<T>;
    flat::for_each(queue, MovingAverage::kName,
                   MovingAverageStep<T>{{{static_cast<T*>(kernel.average), flat::input<T>(kernel.values)}},
                                        static_cast<C>(kernel.decay),
                                        static_cast<C>(1 - kernel.decay)},
                   kernel.count);
  });
}

}  // namespace tandem::inline v0::kernels
