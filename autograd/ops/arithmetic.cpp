#include <tandem/autograd/ops/common.h>
#include <tandem/tensor/factories.h>

// Arithmetic on two tensors, or on a tensor and a number, with broadcasting and type promotion.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// Applies an operation to tensors of two dtypes in their common dtype.
Tensor promoted(const char* op, const Tensor& a, const Tensor& b, Tensor (*apply)(const Tensor&, const Tensor&)) {
  check_same_device(op, a, b);
  const DType dtype = result_type(a, b);
  return apply(a.to(dtype), b.to(dtype));
}

bool one_type(const Tensor& a, const Tensor& b) { return a.dtype() == b.dtype(); }

View broadcast_result(const char* op, const Tensor& a, const Tensor& b) {
  check_same_kind(op, a, b);
  const View& x = a.raw();
  const View& y = b.raw();
  const Shape sizes = broadcast_shapes(x.sizes, y.sizes, op);
  return detail::empty_view(sizes, x.dtype, x.device(), format_of_result(sizes, {&x, &y}));
}

[[noreturn]] void no_bool(const char* op) {
  fail<DTypeError>("{}: not defined for bool; convert with .to(DType::i64)", op);
}

View same_result(const char* op, const Tensor& x) {
  const View& in = x.raw();
  if (in.dtype == DType::boolean) [[unlikely]] {
    no_bool(op);
  }
  return detail::empty_like(in);
}

bool widens(const Tensor& x, Scalar number) { return result_type(x, number) != x.dtype(); }

}  // namespace

Tensor operator+(const Tensor& a, const Tensor& b) {
  if (!one_type(a, b)) [[unlikely]] {
    return promoted("add", a, b, [](const Tensor& x, const Tensor& y) { return x + y; });
  }
  if (a.dtype() == DType::boolean) [[unlikely]] {
    return logical_or(a, b);
  }
  View out = broadcast_result("add", a, b);
  detail::pointwise(PointwiseOp::add, out, {&a.raw(), &b.raw()});
  return record("add", std::move(out), {&a, &b}, [] {
    return [](auto& g) {
      for (std::uint32_t i : {0u, 1u}) {
        if constexpr (is_graph<decltype(g)>) {
          g.give(i, g.output());
        } else if (g.wants(i) && g.input_sizes(i) == g.output().sizes) {
          g.deliver(i, g.output(), false);
        } else {
          pointwise_gradient(g, i, PointwiseOp::copy, {&g.output()});
        }
      }
    };
  });
}

Tensor operator-(const Tensor& a, const Tensor& b) {
  if (!one_type(a, b)) [[unlikely]] {
    return promoted("sub", a, b, [](const Tensor& x, const Tensor& y) { return x - y; });
  }
  if (a.dtype() == DType::boolean) [[unlikely]] {
    fail<DTypeError>("sub: not defined for two bools; use logical_xor() or convert with .to(DType::i64)");
  }
  View out = broadcast_result("sub", a, b);
  detail::pointwise(PointwiseOp::sub, out, {&a.raw(), &b.raw()});
  return record("sub", std::move(out), {&a, &b}, [] {
    return [](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, g.output());
        if (g.wants(1)) {
          g.give(1, -g.output());
        }
      } else {
        pointwise_gradient(g, 0, PointwiseOp::copy, {&g.output()});
        pointwise_gradient(g, 1, PointwiseOp::neg, {&g.output()});
      }
    };
  });
}

Tensor operator*(const Tensor& a, const Tensor& b) {
  if (!one_type(a, b)) [[unlikely]] {
    return promoted("mul", a, b, [](const Tensor& x, const Tensor& y) { return x * y; });
  }
  if (a.dtype() == DType::boolean) [[unlikely]] {
    return logical_and(a, b);
  }
  View out = broadcast_result("mul", a, b);
  detail::pointwise(PointwiseOp::mul, out, {&a.raw(), &b.raw()});
  return record("mul", std::move(out), {&a, &b}, [&] {
    return [a = saved_for(b, a), b = saved_for(a, b)](auto& g) {
      if (g.wants(0)) {
        if constexpr (is_graph<decltype(g)>) {
          g.give(0, g.output() * g.input(1, b));
        } else {
          pointwise_gradient(g, 0, PointwiseOp::mul, {&g.output(), &b.get(g)});
        }
      }
      if (g.wants(1)) {
        if constexpr (is_graph<decltype(g)>) {
          g.give(1, g.output() * g.input(0, a));
        } else {
          pointwise_gradient(g, 1, PointwiseOp::mul, {&g.output(), &a.get(g)});
        }
      }
    };
  });
}

Tensor operator/(const Tensor& a, const Tensor& b) {
  if (!one_type(a, b) || !is_floating_point(a.dtype())) [[unlikely]] {
    return promoted("div", a, b, [](const Tensor& x, const Tensor& y) { return as_floating(x) / as_floating(y); });
  }
  View out = broadcast_result("div", a, b);
  detail::pointwise(PointwiseOp::div, out, {&a.raw(), &b.raw()});
  return record("div", std::move(out), {&a, &b}, [&] {
    return [a = saved_for(b, a), b = Saved(b)](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor share = g.output() / g.input(1, b);
        g.give(0, share);
        if (g.wants(1)) {
          g.give(1, -share * (g.input(0, a) / g.input(1, b)));
        }
      } else {
        pointwise_gradient(g, 0, PointwiseOp::div, {&g.output(), &b.get(g)});
        if (g.wants(1)) {
          pointwise_gradient(g, 1, PointwiseOp::div_grad, {&g.output(), &a.get(g), &b.get(g)});
        }
      }
    };
  });
}

Tensor operator+(const Tensor& a, Scalar b) {
  if (widens(a, b)) [[unlikely]] {
    return a.to(b.kind()) + b;
  }
  if (a.dtype() == DType::boolean) [[unlikely]] {
    return a + full({}, b.value(), {.dtype = DType::boolean, .device = a.device()});
  }
  View out = same_result("add", a);
  detail::pointwise(PointwiseOp::add_scalar, out, {&a.raw()}, {b.value()});
  return record("add", std::move(out), {&a}, [] {
    return [](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, g.output());
      } else {
        g.deliver(0, g.output(), false);
      }
    };
  });
}

Tensor operator-(const Tensor& a, Scalar b) { return a + -b; }

Tensor operator*(const Tensor& a, Scalar b) {
  if (widens(a, b)) [[unlikely]] {
    return a.to(b.kind()) * b;
  }
  if (a.dtype() == DType::boolean) [[unlikely]] {
    return a * full({}, b.value(), {.dtype = DType::boolean, .device = a.device()});
  }
  View out = same_result("mul", a);
  detail::pointwise(PointwiseOp::mul_scalar, out, {&a.raw()}, {b.value()});
  return record("mul", std::move(out), {&a}, [&] {
    return [s = b.value()](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, g.output() * s);
      } else {
        pointwise_gradient(g, 0, PointwiseOp::mul_scalar, {&g.output()}, {s});
      }
    };
  });
}

Tensor operator/(const Tensor& a, Scalar b) {
  if (!is_floating_point(a.dtype())) [[unlikely]] {
    return as_floating(a) / b;
  }
  if (is_reduced_floating_point(a.dtype())) {
    return (a.to(DType::f32) / b).to(a.dtype());  // the divisor itself needs more than 16 bits
  }
  View out = same_result("div", a);
  const View divisor = scalar_view(b.value(), out);
  detail::pointwise(PointwiseOp::div, out, {&a.raw(), &divisor});  // a * (1 / b) would round twice
  return record("div", std::move(out), {&a}, [&] {
    return [divisor](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, g.output() / Tensor(divisor));
      } else {
        pointwise_gradient(g, 0, PointwiseOp::div, {&g.output(), &divisor});
      }
    };
  });
}

Tensor operator-(Scalar a, const Tensor& b) {
  if (widens(b, a)) [[unlikely]] {
    return a - b.to(a.kind());
  }
  View out = same_result("sub", b);
  detail::pointwise(PointwiseOp::rsub_scalar, out, {&b.raw()}, {a.value()});
  return record("sub", std::move(out), {&b}, [] {
    return [](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, -g.output());
      } else {
        pointwise_gradient(g, 0, PointwiseOp::neg, {&g.output()});
      }
    };
  });
}

Tensor operator/(Scalar a, const Tensor& b) {
  if (!is_floating_point(b.dtype())) [[unlikely]] {
    return a / as_floating(b);
  }
  if (raises({&b})) [[unlikely]] {
    return a / raised(b);
  }
  View out = same_result("div", b);
  detail::pointwise(PointwiseOp::rdiv_scalar, out, {&b.raw()}, {a.value()});
  return record("div", std::move(out), {&b}, [&] {
    return [s = a.value(), b = Saved(b)](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor divisor = g.input(0, b);
        g.give(0, -g.output() * (s / (divisor * divisor)));
      } else {
        pointwise_gradient(g, 0, PointwiseOp::rdiv_scalar_grad, {&g.output(), &b.get(g)}, {s});
      }
    };
  });
}

Tensor Tensor::pow(Scalar exponent) const {
  if (raises({this})) [[unlikely]] {
    return raised(*this).pow(exponent);
  }
  if (widens(*this, exponent)) {
    return to(exponent.kind()).pow(exponent);
  }
  View out = same_result("pow", *this);
  check<ValueError>(is_floating_point(out.dtype) || exponent.value() >= 0,
                    "pow: integers have no negative powers; convert with .to(DType::f32)");
  check<ValueError>(out.dtype != DType::u8 || exponent.value() <= 255,
                    "pow: the exponent {} does not fit into u8; convert with .to(DType::i64)", exponent.value());
  detail::pointwise(PointwiseOp::pow_scalar, out, {&raw()}, {exponent.value()});
  return record("pow", std::move(out), {this}, [&] {
    return [x = Saved(*this), s = exponent.value()](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        // x^0 has the slope 0 at 0, too, where 0 * x^-1 is NaN.
        g.give(0, s == 0 ? g.output() * 0 : g.output() * (g.input(0, x).pow(s - 1) * s));
      } else {
        pointwise_gradient(g, 0, PointwiseOp::pow_scalar_grad, {&g.output(), &x.get(g)}, {s});
      }
    };
  });
}

Tensor Tensor::pow(const Tensor& exponent) const {
  if (raises({this, &exponent})) [[unlikely]] {
    return raised(*this).pow(raised(exponent));
  }
  if (!one_type(*this, exponent)) {
    return promoted("pow", *this, exponent, [](const Tensor& x, const Tensor& y) { return x.pow(y); });
  }
  if (dtype() == DType::boolean) {
    no_bool("pow");
  }
  View out = broadcast_result("pow", *this, exponent);
  detail::pointwise(PointwiseOp::pow, out, {&raw(), &exponent.raw()});
  return record("pow", std::move(out), {this, &exponent}, [&] {
    return [a = Saved(*this), b = Saved(exponent)](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor base = g.input(0, a);
        const Tensor power = g.input(1, b);
        if (g.wants(0)) {  // the slope of x^0 is 0 at 0, too
          const Tensor is_zero = power == 0;
          g.give(0, g.output() * where(is_zero, 0, power * base.pow(power.masked_fill(is_zero, 1) - 1)));
        }
        if (g.wants(1)) {  // and so is that of 0^x
          const Tensor is_zero = base == 0;
          g.give(1, g.output() * where(is_zero, 0, base.pow(power) * base.masked_fill(is_zero, 1).log()));
        }
      } else {
        pointwise_gradient(g, 0, PointwiseOp::pow_grad_base, {&g.output(), &a.get(g), &b.get(g)});
        pointwise_gradient(g, 1, PointwiseOp::pow_grad_exponent, {&g.output(), &a.get(g), &b.get(g)});
      }
    };
  });
}

namespace {

Tensor extreme_of(const char* op, PointwiseOp kernel, const Tensor& a, const Tensor& b) {
  View out = broadcast_result(op, a, b);
  detail::pointwise(kernel, out, {&a.raw(), &b.raw()});
  return record(op, std::move(out), {&a, &b}, [&] {
    return [a = Saved(a), b = Saved(b), max = kernel == PointwiseOp::maximum](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor x = g.constant(a);
        const Tensor y = g.constant(b);
        const DType dtype = x.dtype();
        const Tensor half = (x == y).to(dtype) * 0.5;  // equal elements share the gradient
        if (g.wants(0)) {
          g.give(0, g.output() * ((max ? x > y : x < y).to(dtype) + half));
        }
        if (g.wants(1)) {
          g.give(1, g.output() * ((max ? y > x : y < x).to(dtype) + half));
        }
        return;
      } else {
        const View* x = &a.get(g);
        const View* y = &b.get(g);
        if (!max) {
          std::swap(x, y);
        }
        pointwise_gradient(g, 0, PointwiseOp::extreme_grad, {&g.output(), x, y});
        pointwise_gradient(g, 1, PointwiseOp::extreme_grad, {&g.output(), y, x});
      }
    };
  });
}

}  // namespace

Tensor maximum(const Tensor& a, const Tensor& b) {
  if (!one_type(a, b)) {
    return promoted("maximum", a, b, [](const Tensor& x, const Tensor& y) { return maximum(x, y); });
  }
  return a.dtype() == DType::boolean ? logical_or(a, b) : extreme_of("maximum", PointwiseOp::maximum, a, b);
}

Tensor minimum(const Tensor& a, const Tensor& b) {
  if (!one_type(a, b)) {
    return promoted("minimum", a, b, [](const Tensor& x, const Tensor& y) { return minimum(x, y); });
  }
  return a.dtype() == DType::boolean ? logical_and(a, b) : extreme_of("minimum", PointwiseOp::minimum, a, b);
}

}  // namespace tandem::inline v0
