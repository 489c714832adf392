#pragma once

#include <cstdint>

#include <tandem/core/export.h>
#include <tandem/core/float16.h>
#include <tandem/kernels/cross_entropy.h>

namespace tandem::inline v0::kernels {

/// Reads a ClassTarget in the type of the logits, for all backends.
template <class T>
class ClassShares {
 public:
  using C = ComputeType<T>;

  ClassShares(const ClassTarget& target, std::int64_t classes)
      : indices_(target.indices),
        probabilities_(static_cast<const T*>(target.probabilities)),
        weight_(static_cast<const T*>(target.weight)),
        ignore_index_(target.ignore_index),
        classes_(classes),
        keep_(static_cast<C>(1 - target.label_smoothing)),
        smooth_(static_cast<C>(target.label_smoothing / static_cast<double>(classes))),
        one_class_(target.indices != nullptr && target.label_smoothing == 0) {}

  TANDEM_HD bool ignored(std::int64_t row) const { return indices_ != nullptr && indices_[row] == ignore_index_; }
  /// True if the index of a row is no class. The row must not be ignored.
  TANDEM_HD bool outside(std::int64_t row) const {
    return indices_ != nullptr && (indices_[row] < 0 || indices_[row] >= classes_);
  }
  /// True if all of a row's share is in one class: the usual case, which has shorter loops.
  TANDEM_HD bool one_class() const { return one_class_; }
  TANDEM_HD std::int64_t index(std::int64_t row) const { return indices_[row]; }
  TANDEM_HD C weight(std::int64_t c) const { return weight_ != nullptr ? C(weight_[c]) : C(1); }
  /// The row's contribution to the divisor of the mean.
  TANDEM_HD C counts(std::int64_t row) const { return indices_ != nullptr ? weight(indices_[row]) : C(1); }
  TANDEM_HD C keep() const { return keep_; }
  TANDEM_HD C share(std::int64_t row, std::int64_t c) const {
    const C p = indices_ == nullptr ? C(probabilities_[row * classes_ + c]) : c == indices_[row] ? C(1) : C(0);
    return weight(c) * (keep_ * p + smooth_);
  }
  double sum_of_shares(std::int64_t row) const {
    double sum = 0;
    for (std::int64_t c = 0; c < classes_; ++c) {
      sum += static_cast<double>(share(row, c));
    }
    return sum;
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

}  // namespace tandem::inline v0::kernels
