#include <tandem/autograd/ops/matrix.h>

namespace tandem::inline v0::autograd {

namespace {

// A dimension of size 1 has any stride; the kernel wants one of the two to be 1.
kernels::Matrix matrix_of(const View& view) {
  const bool row_major = view.strides[1] == 1 || view.sizes[1] == 1;
  return row_major ? kernels::Matrix{view.data(), view.strides[0], 1}
                   : kernels::Matrix{view.data(), 1, view.strides[1]};
}

}  // namespace

void multiply(const View& out, const View& a, const View& b, Accumulate accumulate, const Epilogue& epilogue) {
  if (out.numel() == 0) {
    return;
  }
  kernels::launch(detail::context_of(out), kernels::Matmul{.dtype = out.dtype,
                                                           .accumulate = accumulate,
                                                           .relu = epilogue.relu,
                                                           .m = a.sizes[0],
                                                           .n = b.sizes[1],
                                                           .k = a.sizes[1],
                                                           .a = matrix_of(a),
                                                           .b = matrix_of(b),
                                                           .out = out.data(),
                                                           .out_stride = out.sizes[1],
                                                           .bias = epilogue.bias});
}

}  // namespace tandem::inline v0::autograd
