#pragma once

#include <string>

#include <tandem/tensor/tensor.h>

// Handwritten digits: the bundled ones, or MNIST-style files of the user's.

namespace example {

struct Digits {
  std::string name;
  tandem::Tensor train_x;  // f32 [rows, pixels], as in the file
  tandem::Tensor train_y;  // i64 [rows]
  tandem::Tensor test_x;
  tandem::Tensor test_y;
  std::int64_t classes;
};

/// Empty: the bundled 8x8 digits, whose test file is by other writers. Else a folder with IDX files named as MNIST's
/// (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-..., t10k-labels-...; .gz or not). With the t10k
/// files alone, their first 90 % train and the rest tests. Throws IoError.
Digits load_digits(const std::string& folder);

}  // namespace example
