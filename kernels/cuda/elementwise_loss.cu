#include <tandem/kernels/elementwise_loss.h>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/launch/fault.h>
#include <tandem/kernels/cuda/patterns/flat.h>
#include <tandem/kernels/cuda/patterns/sums.h>
#include <tandem/kernels/elementwise_loss_formulas.h>

// Every array is moved once, in 16-byte packs. In f32 a sum of losses moves 8 bytes per element; each loss or the
// gradient, if written, adds 4, and so does each weight.
// The sum of losses also writes the gradient, if it is wanted: one pass, and for up to 8192 elements one launch.

namespace tandem::inline v0::kernels {

namespace {

/// Arrays 0 to 5 are result, input, target, gradient, weight and pos_weight. Losses of differences have no weights.
template <LossOp op, class T>
struct LossArrays : flat::Arrays<T, of_difference(op) ? 4 : 6, 0b1> {
  using Base = flat::Arrays<T, of_difference(op) ? 4 : 6, 0b1>;
  using C = ComputeType<T>;
  C threshold;

  template <class Kernel>
  LossArrays(const Kernel& kernel, void* result, const void* grad)
      : Base{{static_cast<T*>(result), flat::input<T>(kernel.input), flat::input<T>(kernel.target),
              flat::input<T>(grad)}},
        threshold(static_cast<C>(kernel.threshold)) {
    if constexpr (!of_difference(op)) {
      this->arrays[4] = flat::input<T>(kernel.weight);
      this->arrays[5] = flat::input<T>(kernel.pos_weight);
    }
  }

  __device__ C weight(const T (&x)[Base::kArrays]) const {
    if constexpr (!of_difference(op)) {
      return this->arrays[4] != nullptr ? C(x[4]) : C(1);
    }
    return C(1);
  }
  __device__ LossFactors<C> by(const T (&x)[Base::kArrays]) const {
    if constexpr (!of_difference(op)) {
      return {.threshold = threshold, .pos_weight = this->arrays[5] != nullptr ? C(x[5]) : C(1)};
    }
    return {.threshold = threshold};
  }
  __device__ C loss(const T (&x)[Base::kArrays]) const { return weight(x) * kernels::loss<op, C>(x[1], x[2], by(x)); }
  __device__ C input_grad(const T (&x)[Base::kArrays]) const {
    return weight(x) * loss_input_grad<op, C>(x[1], x[2], by(x));
  }
  __device__ C target_grad(const T (&x)[Base::kArrays]) const {
    return weight(x) * loss_target_grad<op, C>(x[1], x[2], by(x));
  }
};

// ---- ElementwiseLoss ----

// Target of the notes about inputs that are no probability. Only binary cross-entropy takes probabilities.
struct Notes {
  cuda::Fault* fault;
  const char* op;

  explicit Notes(const Queue& queue) : fault(queue.fault()), op(cuda::name_in_notes("binary_cross_entropy")) {}
};

template <LossOp op, class C>
__device__ void check(const Notes& notes, C x, std::int64_t i) {
  if constexpr (op == LossOp::binary) {
    if (!(x >= C(0) && x <= C(1))) {
      report(notes.fault,
             {.kind = BadValue::Kind::probability, .op = notes.op, .position = i, .number = static_cast<double>(x)});
    }
  }
}

template <LossOp op, class T>
struct EachLoss : LossArrays<op, T> {
  using Arrays = LossArrays<op, T>;
  Notes notes;

  __device__ bool reads(int k) const { return k != 0 && this->arrays[k] != nullptr; }
  __device__ int factors() const { return 0; }
  __device__ void update(int&, T (&x)[Arrays::kArrays], std::int64_t i) const {
    check<op>(notes, ComputeType<T>(x[1]), i);
    x[0] = T(this->loss(x));
  }
};

struct Total {
  double total;
};

template <LossOp op, class T>
struct LossSum : LossArrays<op, T> {
  using Arrays = LossArrays<op, T>;
  Notes notes;
  ComputeType<T> scale;

  __device__ bool reads(int k) const { return k != 0 && this->arrays[k] != nullptr; }
  __device__ Total factors() const { return {0}; }
  __device__ void update(Total& by, T (&x)[Arrays::kArrays], std::int64_t i) const {
    check<op>(notes, ComputeType<T>(x[1]), i);
    by.total += static_cast<double>(this->loss(x));
    if (this->arrays[0] != nullptr) {
      x[0] = T(this->input_grad(x) * scale);
    }
  }
};

template <class T>
struct Finish {
  T* loss;
  double scale;

  __device__ void operator()(double total) const { *loss = T(static_cast<ComputeType<T>>(total * scale)); }
};

// ---- ElementwiseLossGrad ----

template <LossOp op, class T>
struct LossGradient : LossArrays<op, T> {
  using Arrays = LossArrays<op, T>;
  using C = ComputeType<T>;
  const T* one_grad;  // shared by all losses; null if each has its own, or if it is 1
  C scale;
  bool each, of_target, accumulate;

  __device__ bool reads(int k) const { return (k != 0 || accumulate) && this->arrays[k] != nullptr; }
  __device__ C factors() const { return one_grad != nullptr ? *one_grad * scale : scale; }
  __device__ void update(C& by, T (&x)[Arrays::kArrays], std::int64_t) const {
    const C g = each ? x[3] * scale : by;
    const C value = (of_target ? this->target_grad(x) : this->input_grad(x)) * g;
    x[0] = T(accumulate ? x[0] + value : value);
  }
};

// Moves 8 bytes per element in f32, and nothing for a loss whose gradient is 1.
template <class T>
struct Rescale : flat::Arrays<T, 1, 0b1> {
  using C = ComputeType<T>;
  const T* grad;

  __device__ C factors() const { return *grad; }
  __device__ bool idle(C g) const { return g == 1; }
  __device__ void update(C& g, T (&x)[1], std::int64_t) const { x[0] = T(x[0] * g); }
};

}  // namespace

void run(OnCuda, Context& context, const ElementwiseLoss& kernel) {
  const Queue queue(context);
  const auto body = [&]<LossOp op, class T>() {
    if (kernel.loss_per_element) {
      const EachLoss<op, T> each{{kernel, kernel.loss, nullptr}, Notes(queue)};
      return flat::for_each(queue, ElementwiseLoss::kName, each, kernel.count);
    }
    const LossSum<op, T> sum{
        {kernel, kernel.input_grad, nullptr}, Notes(queue), static_cast<ComputeType<T>>(kernel.scale)};
    sums::of_elements<Plus>(queue, ElementwiseLoss::kName, sum, kernel.count,
                            Finish<T>{static_cast<T*>(kernel.loss), kernel.scale});
  };
  for_floating(kernel.dtype, [&]<class T>() { for_loss<T>(kernel.op, body); });
}

void run(OnCuda, Context& context, const ElementwiseLossGrad& kernel) {
  const Queue queue(context);
  const auto body = [&]<LossOp op, class T>() {
    const LossGradient<op, T> gradient{{kernel, kernel.result, kernel.loss_per_element ? kernel.grad : nullptr},
                                       kernel.loss_per_element ? nullptr : static_cast<const T*>(kernel.grad),
                                       static_cast<ComputeType<T>>(kernel.scale),
                                       kernel.loss_per_element,
                                       kernel.of_target,
                                       kernel.accumulate == Accumulate::yes};
    flat::for_each(queue, ElementwiseLossGrad::kName, gradient, kernel.count);
  };
  for_floating(kernel.dtype, [&]<class T>() { for_loss<T>(kernel.op, body); });
}

void run(OnCuda, Context& context, const RescaleGradient& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    flat::for_each(queue, RescaleGradient::kName,
                   Rescale<T>{{{static_cast<T*>(kernel.gradient)}}, static_cast<const T*>(kernel.grad)}, kernel.count);
  });
}

}  // namespace tandem::inline v0::kernels
