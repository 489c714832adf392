#include <tandem/kernels/cuda/class_losses.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/nll_loss.h>

// Each index has a thread, which reads 8 bytes of index and one log-probability; the log-probabilities lie far apart.
// The gradient is set to zero at the speed of memory, then written at each index.

namespace tandem::inline v0::kernels {

namespace {

constexpr int kThreads = sums::kThreads;

template <class T>
struct Rows {
  using C = ComputeType<T>;
  const std::int64_t* indices;
  const T* weight;
  std::int64_t outer, classes, inner, ignore_index;

  template <class Kernel>
  explicit Rows(const Kernel& kernel)
      : indices(kernel.indices),
        weight(static_cast<const T*>(kernel.weight)),
        outer(kernel.outer),
        classes(kernel.classes),
        inner(kernel.inner),
        ignore_index(kernel.ignore_index) {}

  std::int64_t count() const { return outer * inner; }
  __device__ bool outside(std::int64_t index) const { return index < 0 || index >= classes; }
  __device__ C weight_of(std::int64_t index) const { return weight != nullptr ? C(weight[index]) : C(1); }
  __device__ std::int64_t place(std::int64_t row, std::int64_t index) const {
    return (row / inner * classes + index) * inner + row % inner;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    nll_loss(Rows<T> rows, std::int64_t count, const T* log_probs, FinishLoss<T> finish, sums::Parts<CountedSum> parts,
             cuda::Fault* fault, BadValue bad) {
  using C = ComputeType<T>;
  CountedSum total;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; row < count; row += threads) {
    const std::int64_t index = rows.indices[row];
    C loss = 0;
    if (index != rows.ignore_index) {
      if (rows.outside(index)) {
        report_target(fault, bad, row, index);
      } else {
        const C weight = rows.weight_of(index);
        loss = -weight * log_probs[rows.place(row, index)];
        total = total + CountedSum{static_cast<double>(loss), static_cast<double>(weight)};
      }
    }
    if (finish.loss_per_row) {
      finish.loss[row] = T(loss);
    }
  }
  sums::end<kThreads>(total, Plus(), parts, finish);
}

template <class T>
__global__ void __launch_bounds__(kThreads) nll_loss_grad(Rows<T> rows, std::int64_t count, const ComputeType<T>* scale,
                                                          const T* grad, bool loss_per_row, T* out) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; row < count; row += threads) {
    const std::int64_t index = rows.indices[row];
    if (index == rows.ignore_index || rows.outside(index)) {
      continue;
    }
    T& to = out[rows.place(row, index)];
    to = T(to - rows.weight_of(index) * (grad[loss_per_row ? row : 0] * *scale));
  }
}

}  // namespace

void run(OnCuda, Context& context, const NegativeLogLikelihood& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    const Rows<T> rows(kernel);
    const FinishLoss<T> finish(kernel);
    const unsigned int blocks =
        sums::blocks_for(rows.count() * 8, kThreads * 8);  // a row costs as much as 8 neighbours
    queue.launch(NegativeLogLikelihood::kName, blocks, kThreads, 0, nll_loss<T>, rows, rows.count(),
                 static_cast<const T*>(kernel.log_probs), finish, sums::Parts<CountedSum>(queue, blocks), queue.fault(),
                 cuda::for_notes(kernel.bad));
  });
}

void run(OnCuda, Context& context, const NegativeLogLikelihoodGrad& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    const Rows<T> rows(kernel);
    if (rows.count() == 0) {
      return;
    }
    if (kernel.accumulate == Accumulate::no) {
      const auto bytes = static_cast<std::size_t>(rows.count() * rows.classes) * sizeof(T);
      cuda::require(cudaMemsetAsync(kernel.log_probs_grad, 0, bytes, queue.stream()), "cudaMemsetAsync");
    }
    queue.launch(NegativeLogLikelihoodGrad::kName, queue.blocks_for(rows.count(), kThreads), kThreads, 0,
                 nll_loss_grad<T>, rows, rows.count(), static_cast<const ComputeType<T>*>(kernel.scale),
                 static_cast<const T*>(kernel.grad), kernel.loss_per_row, static_cast<T*>(kernel.log_probs_grad));
  });
}

}  // namespace tandem::inline v0::kernels
