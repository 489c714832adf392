#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <utility>

#include <tandem/autograd/ops/common.h>

// Elementwise functions of one tensor.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// The value that the gradient needs besides the gradient of the result.
enum class Needs : std::uint8_t { input, result, nothing, no_slope };

// The derivative of a slope, as a function of the same value v.
struct Bend {
  using Formula = Tensor (*)(const Tensor& v, detail::Scalars scalars);

  constexpr Bend(std::nullptr_t) {}  // 0
  constexpr Bend(Formula of_value) : formula(of_value) {}
  template <std::convertible_to<Formula> F>
  constexpr Bend(F of_value) : formula(of_value) {}
  static constexpr Bend one() {
    Bend bend(nullptr);
    bend.is_one = true;
    return bend;
  }
  static constexpr Bend multiple(double factor) {  // of v
    Bend bend(nullptr);
    bend.factor = factor;
    return bend;
  }
  bool is_flat() const { return formula == nullptr && factor == 0 && !is_one; }

  Formula formula = nullptr;
  double factor = 0;
  bool is_one = false;
};

// s * a * b * c.
Tensor scale_product(const Tensor& a, const Tensor& b, const Tensor& c, double s) {
  View out = detail::empty_view(a.shape(), a.dtype(), a.device());
  detail::pointwise(PointwiseOp::scaled_product, out, {&a.raw(), &b.raw(), &c.raw()}, {.s = s});
  return record("scaled_product", std::move(out), {&a, &b, &c}, [&] {
    return [factors = std::array{Saved(a), Saved(b), Saved(c)}, s](auto& g) {
      for (std::uint32_t i = 0; i < 3; ++i) {
        const std::uint32_t j = (i + 1) % 3;
        const std::uint32_t k = (i + 2) % 3;
        if (!g.wants(i)) {
          continue;
        }
        if constexpr (is_graph<decltype(g)>) {
          g.give(i, scale_product(g.output(), g.input(j, factors[j]), g.input(k, factors[k]), s));
        } else {
          pointwise_gradient(g, i, PointwiseOp::scaled_product, {&g.output(), &factors[j].get(g), &factors[k].get(g)},
                             {.s = s});
        }
      }
    };
  });
}

// y = forward(x). The gradient of x is backward(g, x), backward(g, y), backward(g) or 0: g times the slope, a function
// of x or y.
struct Function {
  const char* name;
  PointwiseOp forward;
  PointwiseOp backward;
  Needs needs;
  Bend bend;
};

// The gradient of a function as an op: backward(g, v).
Tensor times_slope(const Function& function, const Tensor& g, const Tensor& v, detail::Scalars scalars) {
  View out = detail::empty_view(g.shape(), g.dtype(), g.device());
  detail::pointwise(function.backward, out, {&g.raw(), &v.raw()}, scalars);
  return record(function.name, std::move(out), {&g, &v}, [&] {
    return [function, scalars, factor = Saved(g), v = Saved(v)](auto& h) {
      const Bend& bend = function.bend;
      if constexpr (is_graph<decltype(h)>) {
        const Tensor at = h.input(1, v);
        if (h.wants(0)) {
          h.give(0, times_slope(function, h.output(), at, scalars));
        }
        if (bend.is_flat()) {
          h.give_zero(1);
        } else if (h.wants(1)) {
          const Tensor g_again = h.input(0, factor);
          h.give(1, bend.is_one               ? h.output() * g_again
                    : bend.formula == nullptr ? scale_product(h.output(), g_again, at, bend.factor)
                                              : scale_product(h.output(), g_again, bend.formula(at, scalars), 1));
        }
      } else {
        pointwise_gradient(h, 0, function.backward, {&h.output(), &v.get(h)}, scalars);
        if (bend.is_flat()) {
          h.give_zero(1);
        } else if (h.wants(1) && bend.is_one) {
          pointwise_gradient(h, 1, PointwiseOp::mul, {&h.output(), &factor.get(h)});
        } else if (h.wants(1)) {
          const Tensor at(v.get(h));
          // An AutocastScope may raise a formula.
          const Tensor slope = bend.formula == nullptr ? at : bend.formula(at, scalars).to(at.dtype());
          pointwise_gradient(h, 1, PointwiseOp::scaled_product, {&h.output(), &factor.get(h), &slope.raw()},
                             {.s = bend.formula == nullptr ? bend.factor : 1});
        }
      }
    };
  });
}

Tensor apply(const Function& function, const Tensor& x, detail::Scalars scalars = {}) {
  if (function.forward > kernels::kLastIntegerPointwise && !is_floating_point(x.dtype())) {
    return apply(function, as_floating(x), scalars);
  }
  check<DTypeError>(x.dtype() != DType::boolean, "{}not defined for bool; convert with .to(DType::i64)",
                    core::MessagePrefix{function.name});
  const View& in = x.raw();
  View out = detail::empty_like(in);
  detail::pointwise(function.forward, out, {&in}, scalars);
  if (!records({&x})) {
    return Tensor(std::move(out));
  }
  switch (function.needs) {
    case Needs::input:
      return record(function.name, std::move(out), {&x}, [&] {
        return [x = Saved(x), function, scalars](auto& g) {
          if constexpr (is_graph<decltype(g)>) {
            g.give(0, times_slope(function, g.output(), g.input(0, x), scalars));
          } else {
            pointwise_gradient(g, 0, function.backward, {&g.output(), &x.get(g)}, scalars);
          }
        };
      });
    case Needs::result: {
      Tensor result = record(function.name, out, {&x}, [&] {
        return [y = Saved(out), function, scalars](auto& g) {
          if constexpr (is_graph<decltype(g)>) {
            g.give(0, times_slope(function, g.output(), g.result(y), scalars));
          } else if (g.is_as_noted()) {
            g.deliver(0, g.output(), false);
          } else {
            pointwise_gradient(g, 0, function.backward, {&g.output(), &y.get(g)}, scalars);
          }
        };
      });
      if (function.backward == PointwiseOp::relu_grad) {
        let_products_mask(result);
      }
      return result;
    }
    case Needs::no_slope:
      return record(function.name, std::move(out), {&x}, [] {
        return [](auto& g) {
          if constexpr (is_graph<decltype(g)>) {
            g.give(0, g.output() * 0);
          } else {
            g.sum(0);
          }
        };
      });
    case Needs::nothing: break;
  }
  return record(function.name, std::move(out), {&x}, [&] {
    return [function, scalars](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, apply(function, g.output(), scalars));  // neg
      } else {
        pointwise_gradient(g, 0, function.backward, {&g.output()}, scalars);
      }
    };
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

// Constants with the density of the normal distribution.
constexpr double kInverseSqrtTwoPi = 0.39894228040143267794;

// 1 where `condition` holds, else 0.
Tensor indicator(const Tensor& condition, const Tensor& like) { return condition.to(like.dtype()); }

Tensor bend_of_silu(const Tensor& x, detail::Scalars /*scalars*/) {
  const Tensor s = x.sigmoid();
  return s * (1 - s) * (x * (1 - s * 2) + 2);
}

// The slope is 0.5 (1 + t) + 0.5 x (1 - t^2) u', with t = tanh(u) and u = k (x + c x^3).
Tensor bend_of_gelu_tanh(const Tensor& x, detail::Scalars /*scalars*/) {
  constexpr double kK = 0.79788456080286535588;  // sqrt(2 / pi)
  constexpr double kC = 0.044715;
  const Tensor square = x * x;
  const Tensor t = ((x + x * square * kC) * kK).tanh();
  const Tensor slope = (square * (3 * kC) + 1) * kK;
  return (1 - t * t) * (slope + x * 0.5 * (x * (6 * kC * kK) - t * slope * slope * 2));
}

// The slope is the sigmoid of beta x, and 1 from the threshold on.
Tensor bend_of_softplus(const Tensor& x, detail::Scalars scalars) {
  const Tensor s = (x * scalars.s).sigmoid();
  return s * (1 - s) * scalars.s * indicator(x * scalars.s <= scalars.t, x);
}

constexpr Function kNeg{"neg", neg, neg, Needs::nothing, nullptr};
constexpr Function kAbs{"abs", abs, abs_grad, Needs::input, nullptr};
constexpr Function kExp{"exp", exp, mul, Needs::result, Bend::one()};
constexpr Function kExpm1{"expm1", expm1, expm1_grad, Needs::result, Bend::one()};
constexpr Function kLog{"log", log, div, Needs::input, [](const Tensor& x, detail::Scalars) { return -1 / (x * x); }};
constexpr Function kLog1p{"log1p", log1p, log1p_grad, Needs::input,
                          [](const Tensor& x, detail::Scalars) { return -1 / ((x + 1) * (x + 1)); }};
constexpr Function kSqrt{"sqrt", sqrt, sqrt_grad, Needs::result,
                         [](const Tensor& y, detail::Scalars) { return -0.5 / (y * y); }};
constexpr Function kRsqrt{"rsqrt", rsqrt, rsqrt_grad, Needs::result,
                          [](const Tensor& y, detail::Scalars) { return y * y * -1.5; }};
constexpr Function kSin{"sin", sin, sin_grad, Needs::input, [](const Tensor& x, detail::Scalars) { return -x.sin(); }};
constexpr Function kCos{"cos", cos, cos_grad, Needs::input, [](const Tensor& x, detail::Scalars) { return -x.cos(); }};
constexpr Function kClamp{"clamp", clamp, clamp_grad, Needs::input, nullptr};
constexpr Function kRelu{"relu", relu, relu_grad, Needs::result, nullptr};
constexpr Function kTanh{"tanh", tanh, tanh_grad, Needs::result, Bend::multiple(-2)};
constexpr Function kSigmoid{"sigmoid", sigmoid, sigmoid_grad, Needs::result,
                            [](const Tensor& y, detail::Scalars) { return 1 - y * 2; }};

// Step functions.
constexpr Function kSign{"sign", sign, sign, Needs::no_slope, nullptr};
constexpr Function kFloor{"floor", floor, floor, Needs::no_slope, nullptr};
constexpr Function kCeil{"ceil", ceil, ceil, Needs::no_slope, nullptr};
constexpr Function kRound{"round", round, round, Needs::no_slope, nullptr};

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

Tensor autograd::relu_gradient(const Tensor& grad, const Tensor& result) {
  return times_slope(kRelu, grad, result, {});
}

Tensor relu(Tensor&& x) { return join_relu(x) ? std::move(x) : x.relu(); }

Tensor silu(const Tensor& x) { return apply({"silu", PointwiseOp::silu, silu_grad, Needs::input, bend_of_silu}, x); }

Tensor gelu(const Tensor& x, GELUApproximation approximate) {
  return approximate == GELUApproximation::tanh
             ? apply({"gelu", PointwiseOp::gelu_tanh, gelu_tanh_grad, Needs::input, bend_of_gelu_tanh}, x)
             : apply({"gelu", PointwiseOp::gelu, gelu_grad, Needs::input,
                      [](const Tensor& v, detail::Scalars) {
                        return (v * v * -0.5).exp() * (2 - v * v) * kInverseSqrtTwoPi;
                      }},
                     x);
}

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return apply({"leaky_relu", PointwiseOp::leaky_relu, leaky_relu_grad, Needs::input, nullptr}, x, {negative_slope});
}

Tensor elu(const Tensor& x, double alpha) {
  return apply({"elu", PointwiseOp::elu, elu_grad, Needs::input,
                [](const Tensor& v, detail::Scalars scalars) {
                  return where(v > 0, 0, v.clamp(-std::numeric_limits<double>::infinity(), 0).exp() * scalars.s);
                }},
               x, {alpha});
}

Tensor softplus(const Tensor& x, double beta, double threshold) {
  check<ConfigError>(beta != 0, "softplus: beta must not be 0");
  return apply_raised({"softplus", PointwiseOp::softplus, softplus_grad, Needs::input, bend_of_softplus}, x,
                      {beta, threshold});
}

}  // namespace tandem::inline v0
