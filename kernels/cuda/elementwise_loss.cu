#include <tandem/kernels/cuda/elementwise_loss.h>

#include <tandem/kernels/cuda/launch/fault.h>
#include <tandem/kernels/cuda/patterns/sums.h>

// The sum of losses also writes the gradient, if it is wanted: one pass, and for up to 8192 elements one launch.

namespace tandem::inline v0::kernels {

namespace {

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
struct EachLoss : gpu::LossArrays<op, T> {
  using Arrays = gpu::LossArrays<op, T>;
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
struct LossSum : gpu::LossArrays<op, T> {
  using Arrays = gpu::LossArrays<op, T>;
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

}  // namespace

void run(OnCuda, Context& context, const ElementwiseLoss& kernel) {
  const Queue queue(context);
  gpu::for_loss(kernel, [&]<LossOp op, class T>() {
    if (kernel.loss_per_element) {
      const EachLoss<op, T> each{{kernel, kernel.loss, nullptr}, Notes(queue)};
      return flat::for_each(queue, ElementwiseLoss::kName, each, kernel.count);
    }
    const LossSum<op, T> sum{
        {kernel, kernel.input_grad, nullptr}, Notes(queue), static_cast<ComputeType<T>>(kernel.scale)};
    sums::of_elements<Plus>(queue, ElementwiseLoss::kName, sum, kernel.count,
                            Finish<T>{static_cast<T*>(kernel.loss), kernel.scale});
  });
}

}  // namespace tandem::inline v0::kernels
