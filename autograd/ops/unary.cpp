#include <cmath>
#include <utility>

#include <tandem/autograd/ops/common.h>

// Elementwise functions of one tensor.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// The value that the gradient needs besides the gradient of the result.
enum class Needs : std::uint8_t { input, result, nothing, no_slope };

// y = forward(x). The gradient of x is backward(g, x), backward(g, y), backward(g) or 0.
struct Function {
  const char* name;
  PointwiseOp forward;
  PointwiseOp backward;
  Needs needs;
};

Tensor apply(const Function& function, const Tensor& x, detail::Scalars scalars = {}) {
  if (function.forward > kernels::kLastIntegerPointwise && !is_floating_point(x.dtype())) {
    return apply(function, as_floating(x), scalars);
  }
  check<DTypeError>(x.dtype() != DType::boolean, "{}not defined for bool; convert with .to(DType::i64)",
                    core::MessagePrefix{function.name});
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
    case Needs::result: {
      Tensor result = record(function.name, out, {&x}, [&] {
        return [y = Saved(out), op = function.backward, scalars](Gradients& g) {
          if (g.is_as_noted()) {
            return g.deliver(0, g.output(), false);
          }
          pointwise_gradient(g, 0, op, {&g.output(), &y.get(g)}, scalars);
        };
      });
      if (function.backward == PointwiseOp::relu_grad) {
        let_products_mask(result);
      }
      return result;
    }
    case Needs::no_slope:
      return record(function.name, std::move(out), {&x}, [] { return [](Gradients& g) { g.sum(0); }; });
    case Needs::nothing: break;
  }
  return record(function.name, std::move(out), {&x}, [&] {
    return [op = function.backward, scalars](Gradients& g) { pointwise_gradient(g, 0, op, {&g.output()}, scalars); };
  });
}

// x = f(x). `name` is the name of the method.
Tensor& apply_in_place(const char* name, const Function& function, Tensor& x, detail::Scalars scalars = {}) {
  const View& out = x.raw();
  check_in_place(name, x, function.forward > kernels::kLastIntegerPointwise ? as_floating(out.dtype) : out.dtype);
  check<DTypeError>(out.dtype != DType::boolean, "{}: not defined for bool; convert with .to(DType::i64)", name);
  if (records({&x})) {
    check_recordable(name, x);
    // The op must not save the memory that is overwritten now.
    take_over(x, apply(function, function.needs == Needs::input ? x.clone() : x, scalars));
    return x;
  }
  detail::pointwise(function.forward, out, {&out}, scalars);
  out.storage->bump_version();
  return x;
}

using enum PointwiseOp;

constexpr Function kNeg{"neg", neg, neg, Needs::nothing};
constexpr Function kAbs{"abs", abs, abs_grad, Needs::input};
constexpr Function kExp{"exp", exp, mul, Needs::result};
constexpr Function kExpm1{"expm1", expm1, expm1_grad, Needs::result};
constexpr Function kLog{"log", log, div, Needs::input};
constexpr Function kLog1p{"log1p", log1p, log1p_grad, Needs::input};
constexpr Function kSqrt{"sqrt", sqrt, sqrt_grad, Needs::result};
constexpr Function kRsqrt{"rsqrt", rsqrt, rsqrt_grad, Needs::result};
constexpr Function kSin{"sin", sin, sin_grad, Needs::input};
constexpr Function kCos{"cos", cos, cos_grad, Needs::input};
constexpr Function kClamp{"clamp", clamp, clamp_grad, Needs::input};
constexpr Function kRelu{"relu", relu, relu_grad, Needs::result};
constexpr Function kTanh{"tanh", tanh, tanh_grad, Needs::result};
constexpr Function kSigmoid{"sigmoid", sigmoid, sigmoid_grad, Needs::result};

// Step functions.
constexpr Function kSign{"sign", sign, sign, Needs::no_slope};
constexpr Function kFloor{"floor", floor, floor, Needs::no_slope};
constexpr Function kCeil{"ceil", ceil, ceil, Needs::no_slope};
constexpr Function kRound{"round", round, round, Needs::no_slope};

// Whether x holds integers, which rounding leaves unchanged.
bool is_whole(const char* name, const Tensor& x) {
  check<DTypeError>(x.dtype() != DType::boolean, "{}not defined for bool; convert with .to(DType::i64)",
                    core::MessagePrefix{name});
  return !is_floating_point(x.dtype());
}
Tensor rounded(const Function& function, const Tensor& x) {
  return is_whole(function.name, x) ? x : apply(function, x);
}
Tensor& round_in_place(const char* name, const Function& function, Tensor& x) {
  return is_whole(name, x) ? x : apply_in_place(name, function, x);
}

// A bound with a fraction turns integers into f32.
bool is_fraction(double limit) { return std::isfinite(limit) && limit != std::floor(limit); }
bool widened_by(DType dtype, double min, double max) {
  return !is_floating_point(dtype) && (is_fraction(min) || is_fraction(max));
}

void check_limits(const char* op, double min, double max) {
  check<ValueError>(!std::isnan(min) && !std::isnan(max), "{}: limits [{}, {}] must be numbers", op, min, max);
}

// In an AutocastScope, 16 bits would be too few for the range of the results.
Tensor apply_raised(const Function& function, const Tensor& x, detail::Scalars scalars = {}) {
  return raises({&x}) ? apply(function, raised(x), scalars) : apply(function, x, scalars);
}

}  // namespace

Tensor Tensor::neg() const { return apply(kNeg, *this); }
Tensor Tensor::abs() const { return apply(kAbs, *this); }
Tensor Tensor::exp() const { return apply_raised(kExp, *this); }
Tensor Tensor::expm1() const { return apply_raised(kExpm1, *this); }
Tensor Tensor::log() const { return apply_raised(kLog, *this); }
Tensor Tensor::log1p() const { return apply_raised(kLog1p, *this); }
Tensor Tensor::sqrt() const { return apply(kSqrt, *this); }
Tensor Tensor::rsqrt() const { return apply_raised(kRsqrt, *this); }
Tensor Tensor::sin() const { return apply(kSin, *this); }
Tensor Tensor::cos() const { return apply(kCos, *this); }
Tensor Tensor::relu() const { return apply(kRelu, *this); }
Tensor Tensor::tanh() const { return apply(kTanh, *this); }
Tensor Tensor::sigmoid() const { return apply(kSigmoid, *this); }
Tensor Tensor::sign() const { return apply(kSign, *this); }
Tensor Tensor::floor() const { return rounded(kFloor, *this); }
Tensor Tensor::ceil() const { return rounded(kCeil, *this); }
Tensor Tensor::round() const { return rounded(kRound, *this); }
Tensor Tensor::clamp(double min, double max) const {
  check_limits("clamp", min, max);
  return apply(kClamp, widened_by(dtype(), min, max) ? as_floating(*this) : *this, {min, max});
}

Tensor& Tensor::neg_() { return apply_in_place("neg_", kNeg, *this); }
Tensor& Tensor::abs_() { return apply_in_place("abs_", kAbs, *this); }
Tensor& Tensor::exp_() { return apply_in_place("exp_", kExp, *this); }
Tensor& Tensor::expm1_() { return apply_in_place("expm1_", kExpm1, *this); }
Tensor& Tensor::log_() { return apply_in_place("log_", kLog, *this); }
Tensor& Tensor::log1p_() { return apply_in_place("log1p_", kLog1p, *this); }
Tensor& Tensor::sqrt_() { return apply_in_place("sqrt_", kSqrt, *this); }
Tensor& Tensor::rsqrt_() { return apply_in_place("rsqrt_", kRsqrt, *this); }
Tensor& Tensor::sin_() { return apply_in_place("sin_", kSin, *this); }
Tensor& Tensor::cos_() { return apply_in_place("cos_", kCos, *this); }
Tensor& Tensor::relu_() { return apply_in_place("relu_", kRelu, *this); }
Tensor& Tensor::tanh_() { return apply_in_place("tanh_", kTanh, *this); }
Tensor& Tensor::sigmoid_() { return apply_in_place("sigmoid_", kSigmoid, *this); }
Tensor& Tensor::sign_() { return apply_in_place("sign_", kSign, *this); }
Tensor& Tensor::floor_() { return round_in_place("floor_", kFloor, *this); }
Tensor& Tensor::ceil_() { return round_in_place("ceil_", kCeil, *this); }
Tensor& Tensor::round_() { return round_in_place("round_", kRound, *this); }
Tensor& Tensor::clamp_(double min, double max) {
  check_limits("clamp_", min, max);
  check_in_place("clamp_", *this, widened_by(dtype(), min, max) ? as_floating(dtype()) : dtype());
  return apply_in_place("clamp_", kClamp, *this, {min, max});
}

Tensor relu(Tensor&& x) { return join_relu(x) ? std::move(x) : x.relu(); }

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
  return apply_raised({"softplus", PointwiseOp::softplus, softplus_grad, Needs::input}, x, {beta, threshold});
}

}  // namespace tandem::inline v0
