#include <optional>
#include <utility>

#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/ops/matrix.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Shape& in = x.shape();
  const Shape& w = weight.shape();
  if (w.ndim() != 2) [[unlikely]] {
    fail<ShapeError>("{}the weight must be [out, in], got {}", core::MessagePrefix{"linear"}, w);
  }
  if (in.ndim() == 0 || in.back() != w[1]) [[unlikely]] {
    fail<ShapeError>("{}input {} has {} features, layer expects {} (weight {})", core::MessagePrefix{"linear"}, in,
                     in.ndim() == 0 ? 0 : in.back(), w[1], w);
  }
  if (!(x.device() == weight.device())) [[unlikely]] {
    fail<DeviceError>("{}input is on {}, weight on {}. Move the input: x.to(\"{}\")", core::MessagePrefix{"linear"},
                      x.device(), weight.device(), weight.device());
  }
  if (x.dtype() != weight.dtype()) [[unlikely]] {
    fail<DTypeError>("{}input is {}, weight {}. Convert the input: x.to(DType::{})", core::MessagePrefix{"linear"},
                     x.dtype(), weight.dtype(), weight.dtype());
  }
  check_floating("linear", x);
  if (bias.defined()) {
    check_same_kind("linear", weight, bias);
    if (!(bias.shape() == Shape{w[0]})) [[unlikely]] {
      fail<ShapeError>("{}bias {} does not fit the weight {}: expected [{}]", core::MessagePrefix{"linear"},
                       bias.shape(), w, w[0]);
    }
  }
}

// [..., features] as a matrix.
View as_rows(const View& view) {
  const std::int64_t features = view.sizes.back();
  if (view.sizes.ndim() == 2) {
    return detail::matrix_like(view);
  }
  std::int64_t rows = 1;
  for (int dim = 0; dim + 1 < view.sizes.ndim(); ++dim) {
    rows *= view.sizes[dim];
  }
  return detail::matrix_like(*detail::try_reshape(detail::contiguous(view), {rows, features}));
}

// `count` elements of a storage.
View flat(core::Ref<detail::Storage> storage, std::int64_t count, DType dtype) {
  return {.storage = std::move(storage), .dtype = dtype, .sizes = {count}, .strides = {1}};
}

Tensor run(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu) {
  check_linear(x, weight, bias);
  const View in = as_rows(x.raw());
  const View w = detail::matrix_like(weight.raw());
  const View b = bias.defined() ? detail::contiguous(bias.raw()) : View();
  Shape sizes = x.shape();
  sizes[sizes.ndim() - 1] = w.sizes[0];
  View out = detail::empty_view(sizes, in.dtype, in.device());
  const Shape matrix{in.sizes[0], w.sizes[0]};
  const bool fuses = kernels::fuses_backward(out.device(), out.dtype) && records({&x, &weight, &bias});
  View bits;
  if (relu && fuses) {
    bits = detail::empty_view({matrix[0], kernels::relu_bits_stride(matrix[1])}, DType::u8, out.device());
  }
  multiply(
      *detail::try_reshape(out, matrix), in, detail::transpose(w, 0, 1), Accumulate::no,
      {.bias = b.defined() ? b.data() : nullptr, .relu = relu, .relu_bits = bits.defined() ? bits.data() : nullptr});
  Tensor result = record(op, out, {&x, &weight, &bias}, [&] {
    return [x = saved_for(weight, x), weight = saved_for(x, weight), y = relu ? Saved(out) : Saved(), relu, fuses,
            matrix](Gradients& g) {
      View grad = *detail::try_reshape(detail::contiguous(g.output()), matrix);
      if (relu && !g.is_masked()) {
        const View y_rows = *detail::try_reshape(y.get(g), matrix);
        const View masked = detail::empty_view(matrix, grad.dtype, grad.device());
        detail::pointwise(PointwiseOp::relu_grad, masked, {&grad, &y_rows});
        grad = masked;
      }
      // The bias's gradient has come along with this one, or comes along with the weight's, or is a sum of its own.
      core::Ref<detail::Storage> sums = g.take_column_sums();
      std::optional<Destination> bias_to;
      if (g.wants(2) && !sums) {
        bias_to = g.destination(2);
      }
      if (g.wants(1)) {
        const Destination to = g.destination(1);
        const bool along = fuses && bias_to && bias_to->accumulate == Accumulate::no && to.view.numel() > 0;
        multiply(to.view, detail::transpose(grad, 0, 1), as_rows(x.get(g)), to.accumulate,
                 {.a_sums = along ? bias_to->view.data() : nullptr});
        if (along) {
          bias_to.reset();
        }
      }
      if (bias_to) {
        detail::sum_to(bias_to->view, grad, bias_to->accumulate);
      } else if (sums) {
        g.deliver(2, flat(std::move(sums), matrix[1], grad.dtype), true);
      }
      if (g.wants(0)) {
        const Destination to = g.destination(0);
        const View matrix_w = detail::matrix_like(weight.get(g));
        const Shape in_matrix{matrix[0], matrix_w.sizes[1]};
        // The mask of the ReLU before, if there is one and x was saved, in the same pass.
        const bool mask = g.may_mask(0) && g.wants(1) && x.get(g).is_contiguous();
        Epilogue after{.relu_mask = mask ? x.get(g).data() : nullptr};
        core::Ref<detail::Storage> input_sums;
        if (const ReluBits& left = g.relu_bits(0); mask && left.bits && to.view.numel() > 0) {
          after.relu_mask_bits = flat(left.bits, 0, DType::u8).data();
          if (left.wants_sums) {
            const View summed = detail::empty_view({in_matrix[1]}, grad.dtype, grad.device());
            after.column_sums = summed.data();
            input_sums = summed.storage;
          }
        }
        multiply(*detail::try_reshape(to.view, in_matrix), grad, matrix_w, to.accumulate, after);
        if (mask) {
          g.set_masked(0, std::move(input_sums));
        }
      }
    };
  });
  if (relu) {
    mark_as_relu(result, {bits.storage, bias.defined() && bias.requires_grad()});
  }
  return result;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return run("linear", x, weight, bias, false);
}

Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return run("linear_relu", x, weight, bias, true);
}

}  // namespace tandem::inline v0
