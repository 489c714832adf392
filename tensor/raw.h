#pragma once

#include <cstdint>
#include <initializer_list>

#include <tandem/kernels/compare.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/loop.h>
#include <tandem/kernels/pointwise.h>
#include <tandem/tensor/view.h>

// Internal: operations on raw views, below the recorded graph. The caller is responsible for matching shapes.

namespace tandem::inline v0::detail {

/// Makes an uninitialised, dense view.
View empty_view(const Shape& sizes, DType dtype, Device device, MemoryFormat format = MemoryFormat::contiguous);
/// Another one with the sizes, dtype, device and memory format of `view`.
inline View empty_like(const View& view) {
  return empty_view(view.sizes, view.dtype, view.device(), view.memory_format());
}

inline kernels::Context& context_of(const View& view) { return kernels::context_for(view.device()); }

kernels::Loop loop_over(const Shape& sizes);
/// `view` with the dimensions of `sizes`, to which it broadcasts.
kernels::Operand operand(const View& view, const Shape& sizes);

/// Whether an element of type `dtype` can hold `value`; integer types drop the fraction.
bool fits(DType dtype, double value);

void fill(const View& out, double value);
/// out = in or out += in, with broadcasting and type conversion. The devices may differ.
void copy(const View& out, const View& in, kernels::Accumulate accumulate = kernels::Accumulate::no);
/// Like copy(), but a copy between a GPU and page-locked host memory is only queued.
void copy_without_waiting(const View& out, const View& in);
/// `view` itself if the host can read it, else a dense host copy; the copy waits for the GPU.
View on_host(const View& view);
/// `view` itself if its elements lie row by row, else a copy whose elements do.
View contiguous(const View& view);
/// A view in this format: of the same elements if they lie so, else of a copy.
View contiguous(const View& view, MemoryFormat format);
/// Returns `view` itself if it is dense; else puts a dense copy of the elements into `copy` and returns that.
const View& contiguous(const View& view, View& copy);
/// The scalars s and t of a PointwiseOp.
struct Scalars {
  double s = 0;
  double t = 0;
};
/// out (+)= op(inputs). Inputs broadcast to `out` and have its dtype. At most three inputs.
void pointwise(kernels::PointwiseOp op, const View& out, std::initializer_list<const View*> inputs,
               Scalars scalars = {}, kernels::Accumulate accumulate = kernels::Accumulate::no);
/// out = a op b. `out` is bool; a and b have one dtype and broadcast to `out`.
void compare(kernels::CompareOp op, const View& out, const View& a, const View& b);
/// out = condition ? a : b. `condition` is bool, the others have one dtype; all broadcast to `out`.
void where(const View& out, const View& condition, const View& a, const View& b);
/// out (+)= the sum of `in` over the dimensions along which `out` broadcasts to it.
void sum_to(const View& out, const View& in, kernels::Accumulate accumulate);
/// Whether one dimension of a 2-D view is dense and its rows (or columns) do not overlap.
bool is_matrix_like(const View& view);
/// A 2-D view that is dense along one of its dimensions: `view` itself, or a dense copy.
View matrix_like(const View& view);
/// Returns `view` itself if it is dense along a dimension; else a dense copy, which `copy` holds.
const View& matrix_like(const View& view, View& copy);

}  // namespace tandem::inline v0::detail
