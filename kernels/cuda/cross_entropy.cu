#include <tandem/kernels/cross_entropy.h>

#include <tandem/kernels/cross_entropy_formulas.h>
#include <tandem/kernels/cuda/class_losses.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/exponentials.h>
#include <tandem/kernels/cuda/patterns/rows.h>

// In f32 the gradients move 8 bytes per logit, 4 more to accumulate, and 4 for probabilities, which are read twice: the
// first time for their sum. Everything else comes from the forward pass (cross_entropy_kernels.h).

namespace tandem::inline v0::kernels {

namespace gpu {

/// Compiled for each type from cross_entropy_kernels.h: see sources.cmake.
template <bool kShares, class T>
void launch_cross_entropy(const Queue& queue, const CrossEntropy& kernel);

}  // namespace gpu

namespace {

template <class T>
struct GradArguments {
  using C = ComputeType<T>;
  ClassShares<T> target;
  const T* logits;
  const RowNormalizer<C>* normalizer;
  const C* scale;
  const T* grad;
  T* result;
  std::int64_t rows, classes;
  bool loss_per_row, accumulate;

  template <class Kernel>
  GradArguments(const Kernel& kernel, void* to)
      : target(kernel.target, kernel.classes),
        logits(static_cast<const T*>(kernel.logits)),
        normalizer(static_cast<const RowNormalizer<C>*>(kernel.normalizer)),
        scale(static_cast<const C*>(kernel.scale)),
        grad(static_cast<const T*>(kernel.grad)),
        result(static_cast<T*>(to)),
        rows(kernel.rows),
        classes(kernel.classes),
        loss_per_row(kernel.loss_per_row),
        accumulate(kernel.accumulate == Accumulate::yes) {}
};

// Writes result (+)= value(logit, class) along a row.
template <int kBlock, class T, class Value>
__device__ __forceinline__ void write_row(const rows::Group<kBlock>& group, const GradArguments<T>& by,
                                          std::int64_t row, std::int64_t classes, Value&& value) {
  using C = ComputeType<T>;
  const T* x = by.logits + row * by.classes;
  T* to = by.result + row * by.classes;
  if (by.accumulate) {
    rows::visit<rows::To::memory, 2, T>(group, classes, {x, to}, to,
                                        [&]<int V>(const Pack<T, V>(&z)[2], Pack<T, V>& result, std::int64_t c) {
#pragma unroll
                                          for (int v = 0; v < V; ++v) {
                                            result.values[v] = T(z[1].values[v] + value(C(z[0].values[v]), c + v));
                                          }
                                        });
  } else {
    rows::visit<rows::To::memory, 1, T>(group, classes, {x}, to,
                                        [&]<int V>(const Pack<T, V>(&z)[1], Pack<T, V>& result, std::int64_t c) {
#pragma unroll
                                          for (int v = 0; v < V; ++v) {
                                            result.values[v] = T(value(C(z[0].values[v]), c + v));
                                          }
                                        });
  }
}

template <bool kShares, int kBlock, class T>
__global__ void __launch_bounds__(rows::Group<kBlock>::kThreads, rows::Group<kBlock>::kBlocks)
    cross_entropy_grad(GradArguments<T> by, rows::Plan plan) {
  using C = ComputeType<T>;
  const rows::Group<kBlock> group(plan.lanes);
  const C scale = *by.scale;
  group.for_each(by.rows, [&](std::int64_t row, bool there) {
    const bool counts = there && !by.target.ignored(row) && !by.target.outside(row);
    const auto normalizer = counts ? by.normalizer[row] : RowNormalizer<C>{};
    const C g = counts ? by.grad[by.loss_per_row ? row : 0] * scale : C(0);
    const std::int64_t classes = counts ? by.classes : 0;
    const Powers<C> powers(normalizer.highest);
    const C inverse = std::exp(-normalizer.log_sum);  // softmax(x) = powers.of(x) * inverse
    if constexpr (kShares) {
      double sum = 0;
      for (std::int64_t c = group.rank; c < classes; c += group.size) {
        sum += static_cast<double>(by.target.share(row, c));
      }
      const C all = static_cast<C>(group.sum(sum)) * inverse;
      write_row(group, by, row, classes,
                [&](C x, std::int64_t c) { return (all * powers.of(x) - by.target.share(row, c)) * g; });
    } else {
      const std::int64_t own = counts ? by.target.index(row) : -1;
      const C weighted = counts ? g * by.target.weight(own) : C(0);
      write_row(group, by, row, classes,
                [&](C x, std::int64_t c) { return (powers.of(x) * inverse - (c == own ? C(1) : C(0))) * weighted; });
    }
    if (there && !counts && !by.accumulate) {
      rows::clear(group, by.result + row * by.classes, by.classes);
    }
  });
}

template <int kBlock, class T>
__global__ void __launch_bounds__(rows::Group<kBlock>::kThreads, rows::Group<kBlock>::kBlocks)
    cross_entropy_target_grad(GradArguments<T> by, rows::Plan plan) {
  using C = ComputeType<T>;
  const rows::Group<kBlock> group(plan.lanes);
  const C scale = *by.scale * by.target.keep();
  group.for_each(by.rows, [&](std::int64_t row, bool there) {
    const auto normalizer = there ? by.normalizer[row] : RowNormalizer<C>{};
    const C g = there ? by.grad[by.loss_per_row ? row : 0] * scale : C(0);
    write_row(group, by, row, there ? by.classes : 0, [&](C x, std::int64_t c) {
      return by.target.weight(c) * (normalizer.log_sum - (x - normalizer.highest)) * g;
    });
  });
}

}  // namespace

void run(OnCuda, Context& context, const CrossEntropy& kernel) {
  const Queue queue(context);
  const bool one_class = kernel.target.indices != nullptr && kernel.target.label_smoothing == 0;
  for_floating(kernel.dtype, [&]<class T>() {
    (one_class ? gpu::launch_cross_entropy<false, T> : gpu::launch_cross_entropy<true, T>)(queue, kernel);
  });
}

void run(OnCuda, Context& context, const CrossEntropyGrad& kernel) {
  if (kernel.rows == 0) {
    return;
  }
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    rows::for_row_size(kernel.classes, [&]<int kBlock>() {
      const GradArguments<T> by(kernel, kernel.logits_grad);
      const auto launch = [&]<bool kShares>() {
        constexpr auto kKernel = cross_entropy_grad<kShares, kBlock, T>;
        const rows::Plan plan = rows::plan<kBlock, kKernel, T>(queue, by.rows, by.classes, 0);
        queue.launch(CrossEntropyGrad::kName, plan.blocks, rows::Group<kBlock>::kThreads, 0, kKernel, by, plan);
      };
      by.target.one_class() ? launch.template operator()<false>() : launch.template operator()<true>();
    });
  });
}

void run(OnCuda, Context& context, const CrossEntropyTargetGrad& kernel) {
  if (kernel.rows == 0) {
    return;
  }
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    rows::for_row_size(kernel.classes, [&]<int kBlock>() {
      constexpr auto kKernel = cross_entropy_target_grad<kBlock, T>;
      const GradArguments<T> by(kernel, kernel.probabilities_grad);
      const rows::Plan plan = rows::plan<kBlock, kKernel, T>(queue, by.rows, by.classes, 0);
      queue.launch(CrossEntropyTargetGrad::kName, plan.blocks, rows::Group<kBlock>::kThreads, 0, kKernel, by, plan);
    });
  });
}

}  // namespace tandem::inline v0::kernels
