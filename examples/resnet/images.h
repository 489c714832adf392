#pragma once

#include <string>
#include <vector>

#include <tandem/tensor/tensor.h>

// The images that the sample learns: handwritten digits or CIFAR-10.

namespace example {

struct Images {
  tandem::Tensor train_x;  // u8 [count, channels, side, side]
  tandem::Tensor train_y;  // i64 [count]
  tandem::Tensor test_x;
  tandem::Tensor test_y;
  std::vector<std::string> classes;
  bool may_flip;  // whether the mirror image belongs to the same class
};

/// Loads CIFAR-10 from a folder with its binary files (data_batch_1.bin to data_batch_5.bin, test_batch.bin), else what
/// load_digits() loads; 8x8 digits are enlarged to 16x16. Throws IoError.
Images load_images(const std::string& folder);

}  // namespace example
