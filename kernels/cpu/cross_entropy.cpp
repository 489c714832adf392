#include <algorithm>
#include <cmath>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/loss_sum.h>
#include <tandem/kernels/cpu/softmax_rows.h>
#include <tandem/kernels/cross_entropy.h>
#include <tandem/kernels/cross_entropy_formulas.h>

namespace tandem::inline v0::kernels {

namespace {

// Sums over a row are kept in f64, like those of softmax.

using cpu::Normalizer;

// Inlined by force, because rows are often short.
template <class T>
[[gnu::always_inline]] inline Normalizer<T> normalizer_of(const T* x, std::int64_t size) {
  T highest = x[0];
  for (std::int64_t i = 1; i < size; ++i) {
    highest = std::max(highest, x[i]);
  }
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    sum += static_cast<double>(std::exp(x[i] - highest));
  }
  return {highest, static_cast<T>(std::log(sum))};
}

// Computes the normalizers of rows [begin, end). Rows of 16-bit elements go through the f32 function, several at a time
// if they are short.
template <class T, class C = ComputeType<T>>
void normalize(Device device, const T* logits, std::int64_t classes, std::int64_t begin, std::int64_t end,
               Normalizer<C>* normalizer) {
  if constexpr (std::is_same_v<T, float>) {
    TANDEM_BY_ISA(normalize_rows)(logits + begin * classes, end - begin, classes, normalizer + begin);
  } else if constexpr (std::is_same_v<C, float>) {
    ScratchArena& scratch = context_for(device).scratch;
    const ScratchScope scope(scratch);
    const std::int64_t most = 1 + cpu::kHalfPiece / classes;
    auto* x = scratch.allocate_array<float>(static_cast<std::size_t>(most * classes));
    for (std::int64_t row = begin; row < end; row += most) {
      const std::int64_t rows = std::min(most, end - row);
      cpu::widen(x, logits + row * classes, rows * classes);
      TANDEM_BY_ISA(normalize_rows)(x, rows, classes, normalizer + row);
    }
  } else {
    for (std::int64_t row = begin; row < end; ++row) {
      normalizer[row] = normalizer_of(logits + row * classes, classes);
    }
  }
}

// A class without a share adds nothing, even if its logit is -inf.
template <class T, class C = ComputeType<T>>
C loss_of_shares(const ClassShares<T>& target, std::int64_t row, const T* x, std::int64_t classes,
                 Normalizer<C> normalizer) {
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    const C share = target.share(row, c);
    sum += share == 0 ? 0 : static_cast<double>(share * (normalizer.log_sum - (x[c] - normalizer.highest)));
  }
  return static_cast<C>(sum);
}

// Writes out (+)= value(c) for the classes c of a row.
template <class T, class Value>
void write_row(T* out, std::int64_t classes, Accumulate accumulate, Value&& value) {
  for (std::int64_t c = 0; c < classes; ++c) {
    out[c] = T(accumulate == Accumulate::yes ? out[c] + value(c) : value(c));
  }
}

// Writes out (+)= (sum(q) * exp(x - highest - log_sum) - q) * g.
template <class T>
void vector_gradient(const ClassShares<T>& target, std::int64_t row, const float* x, std::int64_t classes,
                     Normalizer<float> by, float g, float* out, Accumulate accumulate) {
  const auto gradient_row = TANDEM_BY_ISA(class_gradient_row);
  if (target.one_class()) {
    const std::int64_t own = target.index(row);
    return gradient_row({x, classes, by, own, g * target.weight(own), out, accumulate});
  }
  gradient_row({x, classes, by, -1, static_cast<float>(target.sum_of_shares(row)) * g, out, accumulate});
  write_row(out, classes, Accumulate::yes, [&](std::int64_t c) { return -(target.share(row, c) * g); });
}

// Rows of 16-bit elements go through the f32 function and are rounded once.
template <class T, class C = ComputeType<T>>
void gradient_of_row(Device device, const ClassShares<T>& target, std::int64_t row, const T* x, std::int64_t classes,
                     Normalizer<C> by, C g, T* out, Accumulate accumulate) {
  if constexpr (std::is_same_v<T, float>) {
    vector_gradient(target, row, x, classes, by, g, out, accumulate);
  } else if constexpr (std::is_same_v<C, float>) {
    ScratchArena& scratch = context_for(device).scratch;
    const ScratchScope scope(scratch);
    auto* wide = scratch.allocate_array<float>(static_cast<std::size_t>(classes));
    auto* result = scratch.allocate_array<float>(static_cast<std::size_t>(classes));
    cpu::widen(wide, x, classes);
    if (accumulate == Accumulate::yes) {
      cpu::widen(result, out, classes);
    }
    vector_gradient(target, row, wide, classes, by, g, result, accumulate);
    cpu::narrow(out, result, classes);
  } else {
    const C all = target.one_class() ? target.weight(target.index(row)) : static_cast<C>(target.sum_of_shares(row));
    write_row(out, classes, accumulate, [&](std::int64_t c) {
      return (all * std::exp(x[c] - by.highest - by.log_sum) - target.share(row, c)) * g;
    });
  }
}

// Factor of the rows' losses, where each row counts as 1 or is ignored.
double scale_of(const CrossEntropy& kernel) {
  if (!kernel.mean) {
    return 1;
  }
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < kernel.rows; ++row) {
    count += kernel.target.indices[row] != kernel.target.ignore_index ? 1 : 0;
  }
  return 1 / static_cast<double>(count);  // with a count of 0 all rows are ignored, and the factor is unused
}

}  // namespace

void run(OnCpu, Context& context, const CrossEntropy& kernel) {
  core::dispatch_floating(kernel.dtype, "cross_entropy", [&]<class T>() {
    using C = ComputeType<T>;
    const ClassShares<T> target(kernel.target, kernel.classes);
    auto* normalizer = static_cast<Normalizer<C>*>(kernel.normalizer);
    const std::int64_t grain = cpu::exponential_rows(kernel.classes);
    const auto* logits = static_cast<const T*>(kernel.logits);
    auto* gradient = static_cast<float*>(kernel.logits_grad);
    const float factor = gradient != nullptr ? static_cast<float>(scale_of(kernel)) : 0;
    // Sums the losses: loss(row, x, its normalizer) gives the loss and the mean's count of each row that is not
    // ignored.
    const auto sum_with = [&](auto&& loss) {
      cpu::sum_losses<T>(
          context, kernel, kernel.rows, grain,
          [&](std::int64_t row) {
            if (target.ignored(row)) {
              normalizer[row] = {};
              return cpu::CountedLoss<C>{};
            }
            return loss(row, logits + row * kernel.classes, normalizer[row]);
          },
          [&, device = context.device](std::int64_t begin, std::int64_t end) {
            if constexpr (std::is_same_v<T, float>) {
              if (gradient != nullptr) {
                TANDEM_BY_ISA(normalize_with_gradient)
                ({.logits = logits + begin * kernel.classes,
                  .indices = kernel.target.indices + begin,
                  .ignore_index = kernel.target.ignore_index,
                  .rows = end - begin,
                  .classes = kernel.classes,
                  .normalizer = normalizer + begin,
                  .factor = factor,
                  .gradient = gradient + begin * kernel.classes});
                return;
              }
            }
            normalize(device, logits, kernel.classes, begin, end, normalizer);
          });
    };
    if (target.one_class() && kernel.target.weight == nullptr) {
      sum_with([&](std::int64_t row, const T* x, const Normalizer<C>& by) {
        return cpu::CountedLoss<C>{by.log_sum - (x[target.index(row)] - by.highest), C(1)};
      });
    } else {
      sum_with([&](std::int64_t row, const T* x, const Normalizer<C>& by) {
        return cpu::CountedLoss<C>{loss_of_shares(target, row, x, kernel.classes, by), target.counts(row)};
      });
    }
  });
}

void run(OnCpu, Context& context, const CrossEntropyGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "cross_entropy", [&]<class T>() {
    using C = ComputeType<T>;
    const ClassShares<T> target(kernel.target, kernel.classes);
    const T* grad = static_cast<const T*>(kernel.grad);
    const auto* normalizer = static_cast<const Normalizer<C>*>(kernel.normalizer);
    const C scale = *static_cast<const C*>(kernel.scale);
    const std::int64_t classes = kernel.classes;
    const Device device = context.device;
    core::parallel_for(kernel.rows, cpu::exponential_rows(classes), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* x = static_cast<const T*>(kernel.logits) + row * classes;
        T* out = static_cast<T*>(kernel.logits_grad) + row * classes;
        const C g = grad[kernel.loss_per_row ? row : 0] * scale;
        if (target.ignored(row)) {
          write_row(out, classes, kernel.accumulate, [](std::int64_t) { return C(0); });
        } else {
          gradient_of_row(device, target, row, x, classes, normalizer[row], g, out, kernel.accumulate);
        }
      }
    });
  });
}

void run(OnCpu, Context&, const CrossEntropyTargetGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "cross_entropy", [&]<class T>() {
    using C = ComputeType<T>;
    const ClassShares<T> target(kernel.target, kernel.classes);
    const T* grad = static_cast<const T*>(kernel.grad);
    const auto* normalizer = static_cast<const Normalizer<C>*>(kernel.normalizer);
    const C scale = *static_cast<const C*>(kernel.scale) * target.keep();
    const std::int64_t classes = kernel.classes;
    core::parallel_for(kernel.rows, 1 + cpu::kElementChunk / classes, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* x = static_cast<const T*>(kernel.logits) + row * classes;
        const Normalizer<C> by = normalizer[row];
        const C g = grad[kernel.loss_per_row ? row : 0] * scale;
        write_row(static_cast<T*>(kernel.probabilities_grad) + row * classes, classes, kernel.accumulate,
                  [&](std::int64_t c) { return target.weight(c) * (by.log_sum - (x[c] - by.highest)) * g; });
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
