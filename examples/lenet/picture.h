#pragma once

#include <string>

#include <tandem/tensor/tensor.h>

// What a net for digits has learned, as one SVG picture.

namespace example {

/// The windows of a first layer [count, 1, size, size], how often digits were taken for which (confusion [true,
/// guess]), and the ten test images [rows, 1, side, side] whose own digit got the least probability [rows, classes].
std::string picture(const tandem::Tensor& windows, const tandem::Tensor& images, const tandem::Tensor& labels,
                    const tandem::Tensor& probabilities);

}  // namespace example
