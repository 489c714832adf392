#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/tensor/tensor.h>

// Handwritten digits: the bundled ones, or the user's own files in MNIST's format.

namespace example {

/// The description of --data in samples that load_digits().
inline constexpr const char* kDigitsFolder = "Folder with MNIST's IDX files; when not given, the bundled digits";

struct Digits {
  std::string name;
  tandem::Tensor train_x;  // f32 [rows, pixels], values as in the file
  tandem::Tensor train_y;  // i64 [rows]
  tandem::Tensor test_x;
  tandem::Tensor test_y;
  std::int64_t classes;

  /// "0", "1", ...
  std::vector<std::string> class_names() const;
};

/// Loads the bundled 8x8 digits if `folder` is empty; their test file is by other writers. Otherwise loads a folder of
/// IDX files with MNIST's names (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-..., t10k-labels-...;
/// .gz or not). If only the t10k files exist, their first 90 % train and the rest tests. Throws IoError.
Digits load_digits(const std::string& folder);

/// Rows of pixels of load_digits() as images [rows, 1, side, side]. Those of 28x28 stay as they are; those of 8x8 are
/// enlarged by a whole factor and get a border of zeros, so that a side is `side`, at least 8. Throws ConfigError for
/// another number of pixels.
tandem::Tensor as_images(const tandem::Tensor& rows, std::int64_t side);

}  // namespace example
