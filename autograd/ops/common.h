#pragma once

#include <tandem/autograd/ops.h>
#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/tensor/raw.h>

// Internal: what the op families share.

namespace tandem::inline v0::autograd {

using detail::View;
using kernels::Accumulate;
using kernels::PointwiseOp;

/// Both on one device, or an error that says what to do.
void check_same_device(const char* op, const Tensor& a, const Tensor& b);
/// And of one dtype.
void check_same_kind(const char* op, const Tensor& a, const Tensor& b);
void check_floating(const char* op, const Tensor& x);

/// The type of an operation on both: promote_types(), but a tensor without dimensions counts like a C++ number beside
/// one with dimensions of the same or a higher kind. As PyTorch's result_type.
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, Scalar b);
/// Integers and bool as f32, which what follows needs.
inline DType as_floating(DType dtype) { return is_floating_point(dtype) ? dtype : DType::f32; }
inline Tensor as_floating(const Tensor& x) { return x.to(as_floating(x.dtype())); }
/// An undimensioned view of `value` in the type and on the device of `like`.
View scalar_view(double value, const View& like);

/// Input i's gradient (+)= op(inputs), where the inputs have the result's shape; summed if input i was broadcast.
void pointwise_gradient(Gradients& gradients, std::uint32_t i, PointwiseOp op,
                        std::initializer_list<const View*> inputs, detail::Scalars scalars = {});

/// `value`, which the gradient of `input` needs: kept only if there will be one.
inline Saved saved_for(const Tensor& input, const Tensor& value) {
  return input.requires_grad() ? Saved(value) : Saved();
}

/// A dense [outer, size, inner] reading of `sizes` around `dim`.
struct AroundDim {
  std::int64_t outer = 1, size = 1, inner = 1;
  AroundDim(const Shape& sizes, int dim) {
    for (int i = 0; i < sizes.ndim(); ++i) {
      (i < dim ? outer : i == dim ? size : inner) *= sizes[i];
    }
  }
};

}  // namespace tandem::inline v0::autograd
