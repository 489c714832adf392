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

/// Both on one device and of one dtype, or an error that says what to do.
void check_same_kind(const char* op, const Tensor& a, const Tensor& b);
void check_floating(const char* op, const Tensor& x);

/// Input i's gradient (+)= op(inputs), where the inputs have the result's shape; summed if input i was broadcast.
void pointwise_gradient(Gradients& gradients, std::uint32_t i, PointwiseOp op,
                        std::initializer_list<const View*> inputs, double scalar = 0);

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
