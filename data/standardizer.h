#pragma once

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// Shifts and scales features to mean 0 and standard deviation 1, as measured on the part it was fitted on: fit on the
/// training part only, or the test result is flattered.
class TANDEM_API Standardizer {
 public:
  /// Mean and standard deviation of each column of x [rows, columns]. A constant column is only shifted. Throws
  /// ValueError, naming row and column, for values that are not finite.
  static Standardizer per_column(const Tensor& x);
  /// One mean and one standard deviation of all elements.
  static Standardizer of_all(const Tensor& x);

  /// f32, but f64 for f64; where x is. Computed in f64 and rounded once: a large offset takes no digits with it.
  Tensor apply(const Tensor& x) const;
  /// Back to the original units; in x's type, where x is.
  Tensor invert(const Tensor& x) const;
  /// What is subtracted: f64 on the CPU, of each column, or without dimensions.
  const Tensor& mean() const noexcept { return mean_; }
  /// What is divided by.
  const Tensor& std() const noexcept { return std_; }

 private:
  Standardizer(Tensor mean, Tensor std);
  Tensor mean_;
  Tensor std_;
};

}  // namespace tandem::inline v0::data
