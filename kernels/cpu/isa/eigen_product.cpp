#include <Eigen/Core>

#include <tandem/kernels/cpu/gemm.h>

// Eigen's blocked product, for f64, and for f32 where the instruction set has no product of tandem's own.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

template <class T>
void epilogue(const Matmul& kernel, const OutputBlock& block) {
  const T* bias = static_cast<const T*>(kernel.after.bias);
  const T* mask = static_cast<const T*>(kernel.after.relu_mask);
  if (bias == nullptr && !kernel.after.relu && mask == nullptr) {
    return;
  }
  for (std::int64_t i = block.row; i < block.row + block.rows; ++i) {
    T* out = static_cast<T*>(kernel.out) + i * kernel.out_stride;
    for (std::int64_t j = block.col; j < block.col + block.cols; ++j) {
      const T value = out[j] + (bias != nullptr ? bias[j] : T(0));
      const bool zero =
          (kernel.after.relu && value < T(0)) || (mask != nullptr && relu_is_off(mask[i * kernel.out_stride + j]));
      out[j] = zero ? T(0) : value;
    }
  }
}

template <class T, int kOrder>
auto map(const Matrix& matrix, std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols) {
  using Dense = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, kOrder>;
  const T* data = static_cast<const T*>(matrix.data) + row * matrix.row_stride + col * matrix.col_stride;
  const std::int64_t stride = kOrder == Eigen::RowMajor ? matrix.row_stride : matrix.col_stride;
  return Eigen::Map<const Dense, Eigen::Unaligned, Eigen::OuterStride<>>(data, rows, cols,
                                                                         Eigen::OuterStride<>(stride));
}

// Each of the four storage orders is a type of its own.
template <class T>
void eigen_product_of(const Matmul& kernel, const OutputBlock& block) {
  using Out = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::Map<Out, Eigen::Unaligned, Eigen::OuterStride<>> out(
      static_cast<T*>(kernel.out) + block.row * kernel.out_stride + block.col, block.rows, block.cols,
      Eigen::OuterStride<>(kernel.out_stride));
  const auto multiply = [&](const auto& a, const auto& b) {
    if (kernel.accumulate == Accumulate::yes) {
      out.noalias() += a * b;
    } else {
      out.noalias() = a * b;
    }
  };
  const auto with_a = [&](const auto& a) {
    if (kernel.b.col_stride == 1) {
      multiply(a, map<T, Eigen::RowMajor>(kernel.b, 0, block.col, kernel.k, block.cols));
    } else {
      multiply(a, map<T, Eigen::ColMajor>(kernel.b, 0, block.col, kernel.k, block.cols));
    }
  };
  if (kernel.a.col_stride == 1) {
    with_a(map<T, Eigen::RowMajor>(kernel.a, block.row, 0, block.rows, kernel.k));
  } else {
    with_a(map<T, Eigen::ColMajor>(kernel.a, block.row, 0, block.rows, kernel.k));
  }
  epilogue<T>(kernel, block);
}

}  // namespace

void eigen_product_f64(const Matmul& kernel, const OutputBlock& block) { eigen_product_of<double>(kernel, block); }

#if !defined(__AVX2__)
void gemm_f32(const Matmul& kernel, const OutputBlock& block, ScratchArena&, const TileUpdate*) {
  eigen_product_of<float>(kernel, block);
}
#endif

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
