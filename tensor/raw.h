#pragma once

#include <cstdint>
#include <initializer_list>

#include <tandem/kernels/launch.h>
#include <tandem/kernels/loop.h>
#include <tandem/kernels/pointwise.h>
#include <tandem/tensor/view.h>

// Internal: work on raw views, below the recorded graph. Shapes are the caller's responsibility.

namespace tandem::inline v0::detail {

/// Uninitialised, dense.
View empty_view(const Shape& sizes, DType dtype, Device device);

inline kernels::Context& context_of(const View& view) { return kernels::context_for(view.device()); }

kernels::Loop loop_over(const Shape& sizes);
/// `view` along the dimensions of `sizes`, to which it broadcasts.
kernels::Operand operand(const View& view, const Shape& sizes);

/// Whether an element of that type can hold `value`, whose fraction integers drop.
bool fits(DType dtype, double value);

void fill(const View& out, double value);
/// out = in or out += in; broadcasts and converts; devices may differ.
void copy(const View& out, const View& in, kernels::Accumulate accumulate = kernels::Accumulate::no);
/// The same as copy(), but between a GPU and page-locked host memory it only queues the copy.
void copy_without_waiting(const View& out, const View& in);
/// `view` itself where the host can read it, else a dense copy of it: waits for the GPU.
View on_host(const View& view);
/// `view` itself when dense, else a dense copy.
View contiguous(const View& view);
/// The scalars s and t of a PointwiseOp.
struct Scalars {
  double s = 0;
  double t = 0;
};
/// out (+)= op(inputs); inputs broadcast to out, whose type they have. At most three inputs.
void pointwise(kernels::PointwiseOp op, const View& out, std::initializer_list<const View*> inputs,
               Scalars scalars = {}, kernels::Accumulate accumulate = kernels::Accumulate::no);
/// out = a op b; `out` is bool, a and b of one type; they broadcast to out.
void compare(kernels::CompareOp op, const View& out, const View& a, const View& b);
/// out = condition ? a : b; `condition` is bool, the others are of one type; all broadcast to out.
void where(const View& out, const View& condition, const View& a, const View& b);
/// out (+)= the sum of `in` over the dimensions along which `out` is broadcast to it.
void sum_to(const View& out, const View& in, kernels::Accumulate accumulate);
/// Whether a 2-D view has elements that are dense along one of its dimensions, and rows (or columns) apart.
bool is_matrix_like(const View& view);
/// A 2-D view whose elements are dense along one of its dimensions: `view` itself, or a dense copy.
View matrix_like(const View& view);

}  // namespace tandem::inline v0::detail
