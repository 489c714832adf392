#pragma once

#include <cstdint>
#include <string>

#include <tandem/tensor/tensor.h>

// A table of numbers, one column of which is to be predicted.

namespace example {

struct RegressionData {
  std::string name;
  std::string target;
  std::string categories;  // summary of the text columns for the user: "'ocean_proximity' (5)"; often empty
  tandem::Tensor train_x;  // f32 [rows, features], standardised with mean and deviation of the training part
  tandem::Tensor train_y;  // f64 [rows, 1], in the target's own unit
  tandem::Tensor test_x;
  tandem::Tensor test_y;
};

/// Reads a CSV file (empty: the bundled California housing), splits off a fifth of the rows, chosen by `seed`, as the
/// test part, and makes features of all other columns. Missing numbers become the median, skewed counts become their
/// log1p, and text columns are one-hot encoded. All statistics come from the training part. Throws IoError and
/// ConfigError.
RegressionData load_table(const std::string& path, const std::string& target, std::uint64_t seed);

/// Root mean square error on the test part for linear least squares on the same features.
double least_squares_rmse(const RegressionData& data);

}  // namespace example
