#include <algorithm>
#include <cmath>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/loss_sum.h>
#include <tandem/kernels/softmax_loss.h>

namespace tandem::inline v0::kernels {

namespace {

// Sums over a row are kept in f64, as those of softmax are.

// What turns a row of logits into log-probabilities: (x - highest) - log_sum.
template <class T>
struct Normalizer {
  T highest;
  T log_sum;  // of exp(x - highest)
};

// Inlined by force: rows are often short.
template <class T, class C = ComputeType<T>>
[[gnu::always_inline]] inline Normalizer<C> normalizer_of(const T* x, std::int64_t size) {
  C highest = x[0];
  for (std::int64_t i = 1; i < size; ++i) {
    highest = std::max<C>(highest, x[i]);
  }
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    sum += static_cast<double>(std::exp(x[i] - highest));
  }
  return {highest, static_cast<C>(std::log(sum))};
}

// ClassTarget, read in the type of the logits.
template <class T>
class Target {
 public:
  using C = ComputeType<T>;

  Target(const ClassTarget& target, std::int64_t classes)
      : indices_(target.indices),
        probabilities_(static_cast<const T*>(target.probabilities)),
        weight_(static_cast<const T*>(target.weight)),
        ignore_index_(target.ignore_index),
        classes_(classes),
        keep_(static_cast<C>(1 - target.label_smoothing)),
        smooth_(static_cast<C>(target.label_smoothing / static_cast<double>(classes))),
        one_class_(target.indices != nullptr && target.label_smoothing == 0) {}

  bool ignored(std::int64_t row) const { return indices_ != nullptr && indices_[row] == ignore_index_; }
  // Whether all of a row's share is in one class: the usual case, for which there are shorter loops.
  bool one_class() const { return one_class_; }
  std::int64_t index(std::int64_t row) const { return indices_[row]; }
  C weight(std::int64_t c) const { return weight_ != nullptr ? C(weight_[c]) : C(1); }
  // What a row adds to that by which the mean divides.
  C counts(std::int64_t row) const { return indices_ != nullptr ? weight(indices_[row]) : C(1); }
  C keep() const { return keep_; }
  C share(std::int64_t row, std::int64_t c) const {
    const C p = indices_ == nullptr ? C(probabilities_[row * classes_ + c]) : c == indices_[row] ? C(1) : C(0);
    return weight(c) * (keep_ * p + smooth_);
  }

 private:
  const std::int64_t* indices_;
  const T* probabilities_;
  const T* weight_;
  std::int64_t ignore_index_;
  std::int64_t classes_;
  C keep_;
  C smooth_;
  bool one_class_;
};

// A class without a share adds nothing, even if its logit is -inf.
template <class T, class C = ComputeType<T>>
C loss_of_shares(const Target<T>& target, std::int64_t row, const T* x, std::int64_t classes,
                 Normalizer<C> normalizer) {
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    const C share = target.share(row, c);
    sum += share == 0 ? 0 : static_cast<double>(share * (normalizer.log_sum - (x[c] - normalizer.highest)));
  }
  return static_cast<C>(sum);
}

// out (+)= value(c) for the classes c of a row.
template <class T, class Value>
void write_row(T* out, std::int64_t classes, Accumulate accumulate, Value&& value) {
  for (std::int64_t c = 0; c < classes; ++c) {
    out[c] = T(accumulate == Accumulate::yes ? out[c] + value(c) : value(c));
  }
}

}  // namespace

void run(OnCpu, Context& context, const CrossEntropy& kernel) {
  core::dispatch_floating(kernel.dtype, "cross_entropy", [&]<class T>() {
    using C = ComputeType<T>;
    const Target<T> target(kernel.target, kernel.classes);
    auto* normalizer = static_cast<Normalizer<C>*>(kernel.normalizer);
    const std::int64_t grain = cpu::exponential_rows(kernel.classes);
    const auto* logits = static_cast<const T*>(kernel.logits);
    // loss(row, x, its normalizer) for the rows that are not ignored, with what they count in the mean.
    const auto sum_with = [&](auto&& loss) {
      cpu::sum_losses<T>(context, kernel, kernel.rows, grain, [&](std::int64_t row) {
        if (target.ignored(row)) {
          normalizer[row] = {};
          return cpu::CountedLoss<C>{};
        }
        const T* x = logits + row * kernel.classes;
        return loss(row, x, normalizer[row] = normalizer_of(x, kernel.classes));
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

void run(OnCpu, Context&, const CrossEntropyGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "cross_entropy", [&]<class T>() {
    using C = ComputeType<T>;
    const Target<T> target(kernel.target, kernel.classes);
    const T* grad = static_cast<const T*>(kernel.grad);
    const auto* normalizer = static_cast<const Normalizer<C>*>(kernel.normalizer);
    const C scale = *static_cast<const C*>(kernel.scale);
    const std::int64_t classes = kernel.classes;
    core::parallel_for(kernel.rows, cpu::exponential_rows(classes), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* x = static_cast<const T*>(kernel.logits) + row * classes;
        T* out = static_cast<T*>(kernel.logits_grad) + row * classes;
        const Normalizer<C> by = normalizer[row];
        const C g = grad[kernel.loss_per_row ? row : 0] * scale;
        if (target.ignored(row)) {
          write_row(out, classes, kernel.accumulate, [](std::int64_t) { return C(0); });
        } else if (target.one_class()) {
          const std::int64_t own = target.index(row);
          const C weighted = g * target.weight(own);
          write_row(out, classes, kernel.accumulate, [&](std::int64_t c) {
            return (std::exp(x[c] - by.highest - by.log_sum) - (c == own ? C(1) : C(0))) * weighted;
          });
        } else {
          double sum = 0;
          for (std::int64_t c = 0; c < classes; ++c) {
            sum += static_cast<double>(target.share(row, c));
          }
          const C all = static_cast<C>(sum);
          write_row(out, classes, kernel.accumulate, [&](std::int64_t c) {
            return (all * std::exp(x[c] - by.highest - by.log_sum) - target.share(row, c)) * g;
          });
        }
      }
    });
  });
}

void run(OnCpu, Context&, const CrossEntropyTargetGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "cross_entropy", [&]<class T>() {
    using C = ComputeType<T>;
    const Target<T> target(kernel.target, kernel.classes);
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
