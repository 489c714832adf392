#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/launch/step.h>
#include <tandem/kernels/cuda/patterns/flat.h>
#include <tandem/kernels/optimizer_formulas.h>

// Each array is read once and, if it changes, written once, in 16-byte packs. In f32 Adam moves 28 bytes per element
// (16 in, 12 out), Sgd 12, with momentum 20, RmsProp 20 to 36, Adagrad 20, a moving average 12. There is so little to
// compute that memory alone sets the time. With masters Adam moves 30: gradient and parameter have 2 bytes, and the
// parameter is also read, to see if other code has changed it.

namespace tandem::inline v0::kernels {

namespace {

// The values that a step's elements share. The host computes them if it knows all inputs; else one thread of each block
// does.
template <class Kernel, class C>
struct StepFactors {
  using Update = decltype(formula::update<C>(Kernel(), StepState()));
  Kernel kernel;
  StepArgument step;
  bool host_knows;
  Update by_host;

  StepFactors(const Queue& queue, const Kernel& of)
      : kernel(of),
        step(step_argument(queue, of.state)),
        host_knows(step.device == nullptr && step.value.scale == nullptr),
        by_host(host_knows ? formula::update<C>(of, step.value) : Update{}) {}

  __device__ Update get() const {
    if (host_knows) {
      return by_host;
    }
    __shared__ Update shared;
    if (threadIdx.x == 0) {
      shared = formula::update<C>(kernel, step.get());
    }
    __syncthreads();
    return shared;
  }
};

// Array 0 is the parameter, array 1 the gradient.
template <class Kernel, class T, int kCount, unsigned kMask>
struct Step : flat::Arrays<T, kCount, kMask> {
  using C = ComputeType<T>;
  StepFactors<Kernel, C> step;

  __device__ auto factors() const { return step.get(); }
  template <class By>
  __device__ bool idle(const By& by) const {
    return by.skip;
  }
};

template <class T>
struct SgdStep : Step<Sgd, T, 3, 0b101> {
  template <class By>
  __device__ void update(By& by, T (&x)[3], std::int64_t) const {
    if (this->arrays[2] == nullptr) {
      formula::sgd(by.by, by.gradient * x[1], x[0]);
    } else {
      formula::sgd(by.by, by.gradient * x[1], x[0], x[2]);
    }
  }
};

template <class T>
struct AdamStep : Step<Adam, T, 4, 0b1101> {
  template <class By>
  __device__ void update(By& by, T (&x)[4], std::int64_t) const {
    T none;
    formula::adam<false>(by.by, by.gradient * x[1], x[0], x[2], x[3], none);
  }
};

template <class T>
struct AmsGradStep : Step<Adam, T, 5, 0b11101> {
  template <class By>
  __device__ void update(By& by, T (&x)[5], std::int64_t) const {
    formula::adam<true>(by.by, by.gradient * x[1], x[0], x[2], x[3], x[4]);
  }
};

template <class T>
struct RmsPropStep : Step<RmsProp, T, 5, 0b11101> {
  template <class By>
  __device__ void update(By& by, T (&x)[5], std::int64_t) const {
    const auto g = by.gradient * x[1];
    if (this->arrays[3] == nullptr) {
      this->arrays[4] == nullptr ? formula::rms_prop<false, false>(by.by, g, x[0], x[2], x[3], x[4])
                                 : formula::rms_prop<false, true>(by.by, g, x[0], x[2], x[3], x[4]);
    } else {
      this->arrays[4] == nullptr ? formula::rms_prop<true, false>(by.by, g, x[0], x[2], x[3], x[4])
                                 : formula::rms_prop<true, true>(by.by, g, x[0], x[2], x[3], x[4]);
    }
  }
};

template <class T>
struct AdagradStep : Step<Adagrad, T, 3, 0b101> {
  template <class By>
  __device__ void update(By& by, T (&x)[3], std::int64_t) const {
    formula::adagrad(by.by, by.gradient * x[1], x[0], x[2]);
  }
};

template <class T>
struct MovingAverageStep : flat::Arrays<T, 2, 0b01> {
  using C = ComputeType<T>;
  C decay, rest;

  __device__ int factors() const { return 0; }
  __device__ void update(int&, T (&x)[2], std::int64_t) const { x[0] = T(decay * x[0] + rest * x[1]); }
};

// A step on masters. The `others`, gradient and parameter, have type T.
template <class Of, class T>
struct MasterStep : Of {
  using Other = T;
  T* others[2];

  template <class By>
  __device__ void update(By& by, float (&x)[Of::kArrays], T (&other)[2], std::int64_t i) const {
    x[0] = formula::master_of(x[0], other[1]);
    x[1] = other[0];
    Of::update(by, x, i);
    other[1] = T(x[0]);
  }
};

template <template <class> class F, class Kernel, class... Kept>
void launch_step(Context& context, const Kernel& kernel, Kept... kept) {
  const Queue queue(context);
  const auto step = [&]<class T>(void* param, const void* grad) {
    return F<T>{{{{static_cast<T*>(param), flat::input<T>(grad), static_cast<T*>(kept)...}}, {queue, kernel}}};
  };
  for_floating(kernel.dtype, [&]<class T>() {
    if constexpr (sizeof(T) == 2) {
      if (kernel.master != nullptr) {
        return flat::for_each(queue, Kernel::kName,
                              MasterStep<F<float>, T>{step.template operator()<float>(kernel.master, nullptr),
                                                      {flat::input<T>(kernel.grad), static_cast<T*>(kernel.param)}},
                              kernel.count);
      }
    }
    flat::for_each(queue, Kernel::kName, step.template operator()<T>(kernel.param, kernel.grad), kernel.count);
  });
}

}  // namespace

void run(OnCuda, Context& context, const Sgd& kernel) { launch_step<SgdStep>(context, kernel, kernel.momentum_buffer); }

void run(OnCuda, Context& context, const Adam& kernel) {
  if (kernel.max_exp_avg_sq == nullptr) {
    launch_step<AdamStep>(context, kernel, kernel.exp_avg, kernel.exp_avg_sq);
  } else {
    launch_step<AmsGradStep>(context, kernel, kernel.exp_avg, kernel.exp_avg_sq, kernel.max_exp_avg_sq);
  }
}

void run(OnCuda, Context& context, const RmsProp& kernel) {
  launch_step<RmsPropStep>(context, kernel, kernel.square_avg, kernel.grad_avg, kernel.momentum_buffer);
}

void run(OnCuda, Context& context, const Adagrad& kernel) { launch_step<AdagradStep>(context, kernel, kernel.sum); }

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
