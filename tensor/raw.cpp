#include <tandem/tensor/raw.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include <tandem/core/check.h>
#include <tandem/core/span.h>
#include <tandem/kernels/copy.h>
#include <tandem/kernels/fill.h>
#include <tandem/kernels/reduce.h>
#include <tandem/tensor/cuda_allocator.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::detail {

using kernels::Accumulate;
using kernels::Loop;
using kernels::Operand;

View empty_view(const Shape& sizes, DType dtype, Device device, MemoryFormat format) {
  const std::int64_t numel = sizes.numel();
  std::size_t bytes = 0;
  // Half of the address range is the limit, so headers and rounding cannot overflow either.
  check<OutOfMemory>(
      !__builtin_mul_overflow(static_cast<std::size_t>(numel), item_size(dtype), &bytes) && bytes <= SIZE_MAX / 2,
      "a tensor {} of {} has more bytes than any machine", sizes, dtype);
  View view;
  view.storage = Storage::allocate(bytes, device);
  view.dtype = dtype;
  view.tag = format;
  view.sizes = sizes;
  view.strides = strides_of(sizes, format);
  return view;
}

Loop loop_over(const Shape& sizes) {
  Loop loop;
  loop.ndim = sizes.ndim();
  for (int dim = 0; dim < sizes.ndim(); ++dim) {
    loop.sizes[dim] = sizes[dim];
  }
  return loop;
}

Operand operand(const View& view, const Shape& sizes) {
  Operand result;
  result.data = view.data();
  const int added = sizes.ndim() - view.sizes.ndim();
  for (int dim = added; dim < sizes.ndim(); ++dim) {
    result.strides[dim] = view.sizes[dim - added] == 1 && sizes[dim] != 1 ? 0 : view.strides[dim - added];
  }
  return result;
}

bool fits(DType dtype, double value) {
  switch (dtype) {
    case DType::i64: return value >= -0x1p63 && value < 0x1p63;
    case DType::i32: return value > -0x1p31 - 1 && value < 0x1p31;
    case DType::u8: return value > -1 && value < 256;
    default: return true;
  }
}

namespace {

// Launches a kernel over its loop, which belongs to these operands, unless the loop is empty.
template <class Kernel, int kOperands>
void launch_over(const View& out, Kernel& kernel, Operand* const (&operands)[kOperands]) {
  if (out.is_channels_last()) [[unlikely]] {  // walks along its memory, channels innermost
    const auto turn = [](std::int64_t* of_dims) { std::rotate(of_dims + 1, of_dims + 2, of_dims + 4); };
    turn(kernel.loop.sizes);
    for (Operand* operand : operands) {
      turn(operand->strides);
    }
  }
  kernels::simplify(kernel.loop, operands);
  if (kernel.loop.numel() > 0) {
    kernels::launch(context_of(out), kernel);
  }
}

}  // namespace

void fill(const View& out, double value) {
  check<DTypeError>(fits(out.dtype, value), "fill: {} does not fit into {}", value, out.dtype);
  kernels::Fill kernel{
      .dtype = out.dtype, .loop = loop_over(out.sizes), .out = operand(out, out.sizes), .value = value};
  launch_over(out, kernel, {&kernel.out});
}

namespace {

bool on_gpu(const View& view) { return view.device().type == DeviceType::cuda; }

// Copies between dense views of one dtype, at least one of which is on a GPU.
void transfer(const View& out, const View& in, bool wait = true) {
  if (!on_gpu(out) || !on_gpu(in)) {
    note_host_access("to");
  }
  const kernels::Transfer kernel{.out_device = out.device(),
                                 .in_device = in.device(),
                                 .out = out.data(),
                                 .in = in.data(),
                                 .bytes = out.numel() * static_cast<std::int64_t>(item_size(out.dtype)),
                                 .wait = wait};
  if (kernel.bytes > 0) {
    kernels::launch(context_of(on_gpu(out) ? out : in), kernel);
  }
}

// Copies to or from a GPU. Only dense bytes cross; a participating GPU handles conversion, strides and accumulation.
void copy_across(const View& out, const View& in, Accumulate accumulate) {
  if (in.dtype != out.dtype && on_gpu(in)) {
    const View converted = empty_view(in.sizes, out.dtype, in.device());
    copy(converted, in);
    copy_across(out, converted, accumulate);
    return;
  }
  const SpanScope traced({.name = "copy", .bytes = in.numel() * static_cast<std::int64_t>(item_size(in.dtype))});
  const MemoryFormat format = in.is_channels_last() ? out.memory_format() : MemoryFormat::contiguous;
  const View dense = contiguous(in, format);
  if (accumulate == Accumulate::no && in.dtype == out.dtype && in.sizes == out.sizes && out.is_dense(format)) {
    transfer(out, dense);
    return;
  }
  const View arrived = empty_view(in.sizes, in.dtype, out.device(), format);
  transfer(arrived, dense);
  copy(out, arrived, accumulate);
}

}  // namespace

void copy(const View& out, const View& in, Accumulate accumulate) {
  if (!(out.device() == in.device()) && (on_gpu(out) || on_gpu(in))) {
    copy_across(out, in, accumulate);
    return;
  }
  kernels::Copy kernel{.in_dtype = in.dtype,
                       .out_dtype = out.dtype,
                       .accumulate = accumulate,
                       .loop = loop_over(out.sizes),
                       .out = operand(out, out.sizes),
                       .in = operand(in, out.sizes)};
  launch_over(out, kernel, {&kernel.out, &kernel.in});
}

void copy_without_waiting(const View& out, const View& in) {
  const View& host = on_gpu(out) ? in : out;
  const View& there = on_gpu(out) ? out : in;
  if (on_gpu(host) || !on_gpu(there) || out.dtype != in.dtype || !(out.sizes == in.sizes) || !out.is_contiguous() ||
      !in.is_contiguous() || !is_pinned(host.data())) {
    copy(out, in);
    return;
  }
  transfer(out, in, false);
  note_pinned_use(host.data(), cuda::current_stream(there.device()));
}

namespace {

View dense_copy(const View& view, Device device, MemoryFormat format = MemoryFormat::contiguous) {
  View dense = empty_view(view.sizes, view.dtype, device, format);
  copy(dense, view);
  return dense;
}

}  // namespace

View on_host(const View& view) { return on_gpu(view) ? dense_copy(view, Device()) : view; }
View contiguous(const View& view) { return view.is_contiguous() ? view : dense_copy(view, view.device()); }
View contiguous(const View& view, MemoryFormat format) {
  View dense = view.is_dense(format) ? view : dense_copy(view, view.device(), format);
  dense.tag = format;
  return dense;
}
const View& contiguous(const View& view, View& copy) {
  return view.is_contiguous() ? view : copy = dense_copy(view, view.device());
}
const View& matrix_like(const View& view, View& copy) {
  return is_matrix_like(view) ? view : copy = dense_copy(view, view.device());
}
View matrix_like(const View& view) { return is_matrix_like(view) ? view : dense_copy(view, view.device()); }

namespace {

// Integer ops take whole numbers only. Bounds of clamp may be any number, because the kernel clips them to the range of
// the type.
double scalar_for(kernels::PointwiseOp op, DType dtype, double value) {
  if (is_floating_point(dtype) || op == kernels::PointwiseOp::clamp) {
    return value;
  }
  check<DTypeError>(value == std::trunc(value) && std::abs(value) < 0x1p63,
                    "arithmetic of {} with {}, which is not a whole number of 64 bits; convert with .to(DType::f32)",
                    dtype, value);
  return value;
}

}  // namespace

void pointwise(kernels::PointwiseOp op, const View& out, std::initializer_list<const View*> inputs, Scalars scalars,
               Accumulate accumulate) {
  kernels::Pointwise kernel{.op = op,
                            .dtype = out.dtype,
                            .accumulate = accumulate,
                            .loop = loop_over(out.sizes),
                            .out = operand(out, out.sizes),
                            .in = {},
                            .s = scalar_for(op, out.dtype, scalars.s),
                            .t = scalar_for(op, out.dtype, scalars.t)};
  int count = 0;
  for (const View* input : inputs) {
    kernel.in[count++] = operand(*input, out.sizes);
  }
  for (; count < 3; ++count) {
    kernel.in[count] = kernel.in[0];
  }
  launch_over(out, kernel, {&kernel.out, &kernel.in[0], &kernel.in[1], &kernel.in[2]});
}

void compare(kernels::CompareOp op, const View& out, const View& a, const View& b) {
  kernels::Compare kernel{.op = op,
                          .dtype = a.dtype,
                          .loop = loop_over(out.sizes),
                          .out = operand(out, out.sizes),
                          .a = operand(a, out.sizes),
                          .b = operand(b, out.sizes)};
  launch_over(out, kernel, {&kernel.out, &kernel.a, &kernel.b});
}

void where(const View& out, const View& condition, const View& a, const View& b) {
  kernels::Where kernel{.item_size = static_cast<std::int64_t>(item_size(out.dtype)),
                        .loop = loop_over(out.sizes),
                        .out = operand(out, out.sizes),
                        .condition = operand(condition, out.sizes),
                        .a = operand(a, out.sizes),
                        .b = operand(b, out.sizes)};
  launch_over(out, kernel, {&kernel.out, &kernel.condition, &kernel.a, &kernel.b});
}

void sum_to(const View& out, const View& in, Accumulate accumulate) {
  assert(is_floating_point(out.dtype) && in.dtype == out.dtype);
  if (out.sizes == in.sizes) {
    copy(out, in, accumulate);
    return;
  }
  kernels::Reduce kernel{.op = kernels::ReduceOp::sum,
                         .dtype = out.dtype,
                         .accumulate = accumulate,
                         .kept = {},
                         .reduced = {},
                         .out = {},
                         .in = {},
                         .in_reduced = {}};
  kernel.out.data = out.data();
  kernel.in.data = kernel.in_reduced.data = in.data();
  const int added = in.sizes.ndim() - out.sizes.ndim();
  for (int dim = 0; dim < in.sizes.ndim(); ++dim) {
    if (dim >= added && out.sizes[dim - added] == in.sizes[dim]) {
      const int at = kernel.kept.ndim++;
      kernel.kept.sizes[at] = in.sizes[dim];
      kernel.in.strides[at] = in.strides[dim];
      kernel.out.strides[at] = out.strides[dim - added];
    } else {
      const int at = kernel.reduced.ndim++;
      kernel.reduced.sizes[at] = in.sizes[dim];
      kernel.in_reduced.strides[at] = in.strides[dim];
    }
  }
  kernels::simplify(kernel.kept, {&kernel.out, &kernel.in});
  kernels::simplify(kernel.reduced, {&kernel.in_reduced});
  if (kernel.kept.numel() > 0) {
    kernels::launch(context_of(out), kernel);
  }
}

bool is_matrix_like(const View& view) {
  if (view.strides.begin()[1] == 1 && view.strides.begin()[0] == view.sizes.begin()[1]) {
    return true;
  }
  const auto unit = [&](int dim) { return view.strides[dim] == 1 || view.sizes[dim] == 1; };
  const auto spread = [&](int dim) { return view.strides[dim] >= view.sizes[1 - dim] || view.sizes[dim] == 1; };
  return view.is_contiguous() || (view.numel() > 0 && ((unit(1) && spread(0)) || (unit(0) && spread(1))));
}

}  // namespace tandem::inline v0::detail
