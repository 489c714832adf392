#pragma once

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// Fills in missing numbers (NaN) of tables [rows, columns], with what was measured on the part it was fitted on: fit
/// on the training part only, or the test result is flattered.
class TANDEM_API Imputer {
 public:
  /// Mean of each column, over the numbers that are there. Throws ValueError for a column without any, or with an
  /// infinite one.
  static Imputer mean(const Tensor& x);
  /// Median of each column, of an even count the mean of the middle two.
  static Imputer median(const Tensor& x);
  /// The same number everywhere. Throws ConfigError for one that is not finite.
  static Imputer constant(double value);

  /// A copy of x [rows, columns] in its own element type (f32 or f64), without NaN. Throws ShapeError for another
  /// number of columns than it was fitted on.
  Tensor apply(const Tensor& x) const;
  /// What stands in for a missing number: f64 [columns], or [] of constant().
  const Tensor& fill() const noexcept { return fill_; }

 private:
  explicit Imputer(Tensor fill);
  Tensor fill_;
};

}  // namespace tandem::inline v0::data
