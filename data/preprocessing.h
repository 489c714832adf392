#pragma once

#include <tandem/tensor/tensor.h>

// Changes to tables of numbers, with values that are fitted to a part of the table.

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

/// Shifts and scales features to mean 0 and standard deviation 1, as measured on a fitted tensor. Fit on the training
/// part only; otherwise the test result is too optimistic.
class TANDEM_API Standardizer {
 public:
  /// Measures mean and standard deviation of each column of x [rows, columns]. A constant column is only shifted.
  /// Throws ValueError, naming row and column, for values that are not finite.
  static Standardizer per_column(const Tensor& x);
  /// Measures one mean and one standard deviation over all elements.
  static Standardizer of_all(const Tensor& x);

  /// The standardized x, on its device: f64 for f64, else f32. The computation runs in f64 and rounds once, so a large
  /// offset costs no digits.
  Tensor apply(const Tensor& x) const;
  /// Converts back to the original units, in the dtype and on the device of x.
  Tensor invert(const Tensor& x) const;
  /// The subtracted means: f64 on the CPU, one per column, or without dimensions for of_all().
  const Tensor& mean() const noexcept { return mean_; }
  /// The divisors, laid out like mean().
  const Tensor& std() const noexcept { return std_; }

 private:
  Standardizer(Tensor mean, Tensor std);
  Tensor mean_;
  Tensor std_;
};

}  // namespace tandem::inline v0::data
