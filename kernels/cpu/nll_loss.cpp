#include <algorithm>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/loss_sum.h>
#include <tandem/kernels/nll_loss.h>

namespace tandem::inline v0::kernels {

namespace {

template <class T>
ComputeType<T> weight_of(const void* weight, std::int64_t index) {
  return weight != nullptr ? ComputeType<T>(static_cast<const T*>(weight)[index]) : ComputeType<T>(1);
}

// Rows whose classes are neighbours.
template <class T>
void dense_gradient(const NegativeLogLikelihoodGrad& kernel, std::int64_t begin, std::int64_t end) {
  using C = ComputeType<T>;
  const T* grad = static_cast<const T*>(kernel.grad);
  T* row = static_cast<T*>(kernel.log_probs_grad) + begin * kernel.classes;
  const C scale = *static_cast<const C*>(kernel.scale);
  if (kernel.accumulate == Accumulate::no) {
    std::fill_n(row, (end - begin) * kernel.classes, T(0));
  }
  for (std::int64_t i = begin; i < end; ++i, row += kernel.classes) {
    if (const std::int64_t index = kernel.indices[i]; index != kernel.ignore_index) {
      const C g = grad[kernel.loss_per_row ? i : 0] * scale;
      row[index] = T(row[index] - weight_of<T>(kernel.weight, index) * g);
    }
  }
}

}  // namespace

void run(OnCpu, Context& context, const NegativeLogLikelihood& kernel) {
  core::dispatch_floating(kernel.dtype, "nll_loss", [&]<class T>() {
    using C = ComputeType<T>;
    const T* log_probs = static_cast<const T*>(kernel.log_probs);
    const std::int64_t inner = kernel.inner;
    // Two divisions would take a third of the time of the usual rows, whose classes are neighbours.
    const auto first_of = [&](std::int64_t row) {
      return inner == 1 ? row * kernel.classes : row / inner * kernel.classes * inner + row % inner;
    };
    cpu::sum_losses<T>(context, kernel, kernel.outer * inner, cpu::kElementChunk, [&](std::int64_t row) {
      const std::int64_t index = kernel.indices[row];
      if (index == kernel.ignore_index) {
        return cpu::CountedLoss<C>{};
      }
      const C weight = weight_of<T>(kernel.weight, index);
      return cpu::CountedLoss<C>{-weight * log_probs[first_of(row) + index * inner], weight};
    });
  });
}

void run(OnCpu, Context&, const NegativeLogLikelihoodGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "nll_loss", [&]<class T>() {
    using C = ComputeType<T>;
    const T* grad = static_cast<const T*>(kernel.grad);
    T* out = static_cast<T*>(kernel.log_probs_grad);
    const C scale = *static_cast<const C*>(kernel.scale);
    const std::int64_t inner = kernel.inner;
    const std::int64_t grain = 1 + cpu::kElementChunk / kernel.classes;
    core::parallel_for(kernel.outer * inner, grain, [&](std::int64_t begin, std::int64_t end) {
      if (inner == 1) {
        return dense_gradient<T>(kernel, begin, end);
      }
      while (begin < end) {  // a stretch of rows that are neighbours in memory
        const std::int64_t first = begin % inner;
        const std::int64_t count = std::min(end - begin, inner - first);
        T* of_stretch = out + begin / inner * kernel.classes * inner + first;
        for (std::int64_t c = 0; kernel.accumulate == Accumulate::no && c < kernel.classes; ++c) {
          std::fill_n(of_stretch + c * inner, count, T(0));
        }
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t index = kernel.indices[begin + i];
          if (index == kernel.ignore_index) {
            continue;
          }
          T& to = of_stretch[index * inner + i];
          to = T(to - weight_of<T>(kernel.weight, index) * (grad[kernel.loss_per_row ? begin + i : 0] * scale));
        }
        begin += count;
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
