#pragma once

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// Fills in missing numbers (NaN) in tables [rows, columns] with values fitted to a table. Fit on the training part
/// only; otherwise the test result is too optimistic.
class TANDEM_API Imputer {
 public:
  /// Uses the mean of each column, over the numbers present. Throws ValueError for a column without numbers or with an
  /// infinite one.
  static Imputer mean(const Tensor& x);
  /// Uses the median of each column; for an even count, the mean of the two middle numbers.
  static Imputer median(const Tensor& x);
  /// Uses one number everywhere. Throws ConfigError unless it is finite.
  static Imputer constant(double value);

  /// A copy of x [rows, columns] without NaN, in the dtype of x (f32 or f64). Throws ShapeError if the number of
  /// columns differs from the fitted table.
  Tensor apply(const Tensor& x) const;
  /// The replacements: f64 [columns], or a tensor without dimensions from constant().
  const Tensor& fill() const noexcept { return fill_; }

 private:
  explicit Imputer(Tensor fill);
  Tensor fill_;
};

}  // namespace tandem::inline v0::data
