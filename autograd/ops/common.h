#pragma once

#include <tandem/autograd/ops.h>
#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/tensor/raw.h>

// Internal: helpers that the op families share.

namespace tandem::inline v0::autograd {

using detail::View;
using kernels::Accumulate;
using kernels::PointwiseOp;

/// Throws DeviceError, which names the fix, unless both tensors are on one device.
void check_same_device(const char* op, const Tensor& a, const Tensor& b);
/// Also requires both tensors to have one dtype.
void check_same_kind(const char* op, const Tensor& a, const Tensor& b);
void check_floating(const char* op, const Tensor& x);

/// The dtype of an operation on both, as in PyTorch's result_type: promote_types(), except that a tensor without
/// dimensions acts like a C++ number next to a tensor with dimensions of the same or a higher kind.
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, Scalar b);
/// Converts integers and bool to f32, for ops that need floating point.
inline DType as_floating(DType dtype) { return is_floating_point(dtype) ? dtype : DType::f32; }
inline Tensor as_floating(const Tensor& x) { return x.to(as_floating(x.dtype())); }
/// A view without dimensions that holds `value` in the dtype and on the device of `like`.
View scalar_view(double value, const View& like);

/// Input i's gradient (+)= op(inputs), where the inputs have the result's shape. The gradient is summed if input i was
/// broadcast.
void pointwise_gradient(Gradients& gradients, std::uint32_t i, PointwiseOp op,
                        std::initializer_list<const View*> inputs, detail::Scalars scalars = {});

/// Saves `value`, which the gradient of `input` needs, only if `input` requires a gradient.
inline Saved saved_for(const Tensor& input, const Tensor& value) {
  return input.requires_grad() ? Saved(value) : Saved();
}

/// Splits `sizes` around `dim` into a dense [outer, size, inner].
struct AroundDim {
  std::int64_t outer = 1, size = 1, inner = 1;
  AroundDim(const Shape& sizes, int dim) {
    for (int i = 0; i < sizes.ndim(); ++i) {
      (i < dim ? outer : i == dim ? size : inner) *= sizes[i];
    }
  }
};

}  // namespace tandem::inline v0::autograd
