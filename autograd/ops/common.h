#pragma once

#include <tandem/autograd/autocast.h>
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

/// grad where `result`, that of a ReLU, is not 0, else 0; has gradients itself.
Tensor relu_gradient(const Tensor& grad, const Tensor& result);

/// Saves `value`, which the gradient of `input` needs, only if `input` requires a gradient.
inline Saved saved_for(const Tensor& input, const Tensor& value) {
  return input.requires_grad() ? Saved(value) : Saved();
}

/// The memory format of the result of an element-wise op: channels_last if an input of the same sizes has it.
inline MemoryFormat format_of_result(const Shape& sizes, std::initializer_list<const View*> inputs) {
  for (const View* input : inputs) {
    if (input->is_channels_last() && input->sizes == sizes) [[unlikely]] {
      return MemoryFormat::channels_last;
    }
  }
  return MemoryFormat::contiguous;
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

/// The elements of an optional tensor in one dense piece; undefined without the tensor.
inline View dense(const Tensor& tensor) { return tensor.defined() ? detail::contiguous(tensor.raw()) : View(); }
/// A pointer for a kernel; null for an undefined view.
inline void* data_of(const View& view) { return view.defined() ? view.data() : nullptr; }

// ---- ops that overwrite their first operand: inplace.cpp ----

/// Throws unless `target` is writable and can hold the op's result, which has dtype `result`.
void check_in_place(const char* op, const Tensor& target, DType result);
/// Throws AutogradError unless recording an in-place change of `target` gives correct gradients.
void check_recordable(const char* op, const Tensor& target);
/// Gives `target` the elements and history of `value`, which was just computed from it. check_recordable() must have
/// passed for `target`.
void take_over(Tensor& target, const Tensor& value);

// ---- indices that several families share: index.cpp ----

/// Requires a dense i64 `index`. Throws ValueError naming the first element outside [0, end) and its position. On a GPU
/// the kernels that use the index check it later; they receive `op` for the message.
void check_in_range(const char* op, const View& index, std::int64_t end);

/// out[o, index[i], :] += in[o, i, :] in the order of i, for a dense `out` seen as [outer, size, inner]. `index` is
/// dense i64 and in range; index `skip` adds nothing. 16-bit sums are rounded once.
void index_add_to(const View& out, const AroundDim& around, const View& index, const View& in, const char* op,
                  std::int64_t skip = -1);

/// out[..., index[p], ...] += source[p] along `dim`, for every position p of `index` (i64, in range), which covers a
/// part of `source` or all of it. `out` must not overlap the other views. 16-bit sums are rounded once.
void scatter_add_to(const View& out, int dim, const View& index, const View& source, const char* op = "scatter_add");

// ---- a ReLU before a product or after linear(), for relu(): linear.cpp ----

/// Overwrites x with relu(x) and lets the node of linear() do the ReLU's part of the backward pass. Does nothing and
/// returns false unless x is the only handle to a result of linear() that nothing else uses and that has not changed.
bool join_relu(const Tensor& x);
/// Lets a product that takes `result` as its input write 0 into the gradient of `result` wherever the ReLU is off.
/// `result` is the result of a ReLU whose backward reads Gradients::is_as_noted().
void let_products_mask(const Tensor& result);

}  // namespace tandem::inline v0::autograd
