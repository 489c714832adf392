#pragma once

#include <cstdint>
#include <string>

#include <tandem/tensor/tensor.h>

// A table of numbers to predict one column of.

namespace example {

struct RegressionData {
  std::string name;
  std::string target;
  std::string categories;  // the text columns, for the user to see: "'ocean_proximity' (5)"; often empty
  tandem::Tensor train_x;  // f32 [rows, features], standardised with the training part's mean and deviation
  tandem::Tensor train_y;  // f64 [rows, 1], in the target's own unit
  tandem::Tensor test_x;
  tandem::Tensor test_y;
};

/// Reads a CSV file (empty: the bundled California housing), splits off a fifth of the rows as the test part by `seed`,
/// and makes features of all other columns. What is measured to do so is measured on the training part:
/// missing numbers become the median, skewed counts their log1p, text columns are one-hot. Throws IoError and
/// ConfigError.
RegressionData load_table(const std::string& path, const std::string& target, std::uint64_t seed);

/// Root mean square error on the test part of linear least squares on the same features.
double least_squares_rmse(const RegressionData& data);

}  // namespace example
