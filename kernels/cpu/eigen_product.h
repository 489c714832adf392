#pragma once

#include <cstdint>

#include <tandem/kernels/matmul.h>

// Eigen's blocked product. Compiled once per element type, in units of their own: its templates are slow to build.

namespace tandem::inline v0::kernels::cpu {

/// Rows [row, row + rows) and columns [col, col + cols) of the kernel's output.
struct OutputBlock {
  std::int64_t row, rows, col, cols;
};

void eigen_product(float, const Matmul& kernel, const OutputBlock& block);
void eigen_product(double, const Matmul& kernel, const OutputBlock& block);

}  // namespace tandem::inline v0::kernels::cpu
