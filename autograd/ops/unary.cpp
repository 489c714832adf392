#include <cmath>

#include <tandem/autograd/ops/common.h>

// Functions of one tensor, element by element.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// What the gradient reads besides the result's gradient.
enum class Needs : std::uint8_t { input, result, nothing };

// y = forward(x); x's gradient is backward(g, x), backward(g, y) or backward(g).
struct Function {
  const char* name;
  PointwiseOp forward;
  PointwiseOp backward;
  Needs needs;
};

Tensor apply(const Function& function, const Tensor& x, detail::Scalars scalars = {}) {
  check<DTypeError>(x.dtype() != DType::boolean, "{}not defined for bool; convert with .to(DType::i64)",
                    core::MessagePrefix{function.name});
  if (function.forward > kernels::kLastIntegerPointwise && !is_floating_point(x.dtype())) {
    return apply(function, as_floating(x), scalars);
  }
  const View& in = x.raw();
  View out = detail::empty_view(in.sizes, in.dtype, in.device());
  detail::pointwise(function.forward, out, {&in}, scalars);
  if (!records({&x})) {
    return Tensor(std::move(out));
  }
  switch (function.needs) {
    case Needs::input:
      return record(function.name, std::move(out), {&x}, [&] {
        return [x = Saved(x), op = function.backward, scalars](Gradients& g) {
          pointwise_gradient(g, 0, op, {&g.output(), &x.get(g)}, scalars);
        };
      });
    case Needs::result:
      return record(function.name, out, {&x}, [&] {
        return [y = Saved(out), op = function.backward, scalars](Gradients& g) {
          pointwise_gradient(g, 0, op, {&g.output(), &y.get(g)}, scalars);
        };
      });
    case Needs::nothing: break;
  }
  return record(function.name, std::move(out), {&x}, [&] {
    return [op = function.backward, scalars](Gradients& g) { pointwise_gradient(g, 0, op, {&g.output()}, scalars); };
  });
}

// A step function: its gradient is zero.
Tensor step(const char* name, PointwiseOp forward, const Tensor& x) {
  if (forward > kernels::kLastIntegerPointwise && !is_floating_point(x.dtype())) {
    return x;  // rounding a whole number
  }
  return apply({name, forward, PointwiseOp::mul_scalar, Needs::nothing}, x, {0});
}

using enum PointwiseOp;

}  // namespace

Tensor Tensor::neg() const { return apply({"neg", PointwiseOp::neg, PointwiseOp::neg, Needs::nothing}, *this); }
Tensor Tensor::abs() const { return apply({"abs", PointwiseOp::abs, abs_grad, Needs::input}, *this); }
Tensor Tensor::sign() const { return step("sign", PointwiseOp::sign, *this); }
Tensor Tensor::floor() const { return step("floor", PointwiseOp::floor, *this); }
Tensor Tensor::ceil() const { return step("ceil", PointwiseOp::ceil, *this); }
Tensor Tensor::round() const { return step("round", PointwiseOp::round, *this); }

Tensor Tensor::exp() const { return apply({"exp", PointwiseOp::exp, mul, Needs::result}, *this); }
Tensor Tensor::log() const { return apply({"log", PointwiseOp::log, div, Needs::input}, *this); }
Tensor Tensor::log1p() const { return apply({"log1p", PointwiseOp::log1p, log1p_grad, Needs::input}, *this); }
Tensor Tensor::sqrt() const { return apply({"sqrt", PointwiseOp::sqrt, sqrt_grad, Needs::result}, *this); }
Tensor Tensor::rsqrt() const { return apply({"rsqrt", PointwiseOp::rsqrt, rsqrt_grad, Needs::result}, *this); }
Tensor Tensor::sin() const { return apply({"sin", PointwiseOp::sin, sin_grad, Needs::input}, *this); }
Tensor Tensor::cos() const { return apply({"cos", PointwiseOp::cos, cos_grad, Needs::input}, *this); }

Tensor Tensor::clamp(double min, double max) const {
  check<ValueError>(!std::isnan(min) && !std::isnan(max), "clamp: limits [{}, {}] must be numbers", min, max);
  return apply({"clamp", PointwiseOp::clamp, clamp_grad, Needs::input}, *this, {min, max});
}

Tensor Tensor::relu() const { return apply({"relu", PointwiseOp::relu, relu_grad, Needs::result}, *this); }
Tensor Tensor::tanh() const { return apply({"tanh", PointwiseOp::tanh, tanh_grad, Needs::result}, *this); }
Tensor Tensor::sigmoid() const { return apply({"sigmoid", PointwiseOp::sigmoid, sigmoid_grad, Needs::result}, *this); }

Tensor silu(const Tensor& x) { return apply({"silu", PointwiseOp::silu, silu_grad, Needs::input}, x); }

Tensor gelu(const Tensor& x, GELUApproximation approximate) {
  return approximate == GELUApproximation::tanh
             ? apply({"gelu", PointwiseOp::gelu_tanh, gelu_tanh_grad, Needs::input}, x)
             : apply({"gelu", PointwiseOp::gelu, gelu_grad, Needs::input}, x);
}

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return apply({"leaky_relu", PointwiseOp::leaky_relu, leaky_relu_grad, Needs::input}, x, {negative_slope});
}

Tensor elu(const Tensor& x, double alpha) {
  return apply({"elu", PointwiseOp::elu, elu_grad, Needs::input}, x, {alpha});
}

Tensor softplus(const Tensor& x, double beta, double threshold) {
  check<ConfigError>(beta != 0, "softplus: beta must not be 0");
  return apply({"softplus", PointwiseOp::softplus, softplus_grad, Needs::input}, x, {beta, threshold});
}

}  // namespace tandem::inline v0
