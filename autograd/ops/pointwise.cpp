#include <tandem/autograd/ops/common.h>

// Arithmetic and element-wise functions.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

View broadcast_result(const char* op, const Tensor& a, const Tensor& b) {
  check_same_kind(op, a, b);
  const View& x = a.raw();
  return detail::empty_view(broadcast_shapes(x.sizes, b.raw().sizes, op), x.dtype, x.device());
}

// A result of x's shape; integers only where integer arithmetic is defined.
View same_result(const char* op, const Tensor& x, bool floating = true) {
  if (floating) {
    check_floating(op, x);
  }
  const View& in = x.raw();
  check<DTypeError>(in.dtype != DType::boolean, "{}: arithmetic on bool is not defined; convert with .to(DType::i64)",
                    op);
  return detail::empty_view(in.sizes, in.dtype, in.device());
}

}  // namespace

Tensor operator+(const Tensor& a, const Tensor& b) {
  View out = broadcast_result("add", a, b);
  detail::pointwise(PointwiseOp::add, out, {&a.raw(), &b.raw()});
  return record("add", std::move(out), {&a, &b}, [] {
    return [](Gradients& g) {
      for (const std::uint32_t i : {0u, 1u}) {
        if (g.wants(i) && g.input_sizes(i) == g.output().sizes) {
          g.deliver(i, g.output(), false);
        } else {
          pointwise_gradient(g, i, PointwiseOp::copy, {&g.output()});
        }
      }
    };
  });
}

Tensor operator-(const Tensor& a, const Tensor& b) {
  View out = broadcast_result("sub", a, b);
  detail::pointwise(PointwiseOp::sub, out, {&a.raw(), &b.raw()});
  return record("sub", std::move(out), {&a, &b}, [] {
    return [](Gradients& g) {
      pointwise_gradient(g, 0, PointwiseOp::copy, {&g.output()});
      pointwise_gradient(g, 1, PointwiseOp::neg, {&g.output()});
    };
  });
}

Tensor operator*(const Tensor& a, const Tensor& b) {
  View out = broadcast_result("mul", a, b);
  detail::pointwise(PointwiseOp::mul, out, {&a.raw(), &b.raw()});
  return record("mul", std::move(out), {&a, &b}, [&] {
    return [a = saved_for(b, a), b = saved_for(a, b)](Gradients& g) {
      if (g.wants(0)) {
        pointwise_gradient(g, 0, PointwiseOp::mul, {&g.output(), &b.get(g)});
      }
      if (g.wants(1)) {
        pointwise_gradient(g, 1, PointwiseOp::mul, {&g.output(), &a.get(g)});
      }
    };
  });
}

Tensor operator/(const Tensor& a, const Tensor& b) {
  check_floating("div", a);
  View out = broadcast_result("div", a, b);
  detail::pointwise(PointwiseOp::div, out, {&a.raw(), &b.raw()});
  return record("div", std::move(out), {&a, &b}, [&] {
    return [a = saved_for(b, a), b = Saved(b)](Gradients& g) {
      pointwise_gradient(g, 0, PointwiseOp::div, {&g.output(), &b.get(g)});
      if (g.wants(1)) {
        pointwise_gradient(g, 1, PointwiseOp::div_grad, {&g.output(), &a.get(g), &b.get(g)});
      }
    };
  });
}

Tensor operator+(const Tensor& a, double b) {
  View out = same_result("add", a, false);
  detail::pointwise(PointwiseOp::add_scalar, out, {&a.raw()}, b);
  return record("add", std::move(out), {&a}, [] { return [](Gradients& g) { g.deliver(0, g.output(), false); }; });
}

Tensor operator-(const Tensor& a, double b) { return a + -b; }

Tensor operator*(const Tensor& a, double b) {
  View out = same_result("mul", a, false);
  detail::pointwise(PointwiseOp::mul_scalar, out, {&a.raw()}, b);
  return record("mul", std::move(out), {&a}, [&] {
    return [b](Gradients& g) { pointwise_gradient(g, 0, PointwiseOp::mul_scalar, {&g.output()}, b); };
  });
}

Tensor operator/(const Tensor& a, double b) {
  View out = same_result("div", a);
  const View divisor = detail::empty_view({}, out.dtype, out.device());
  detail::fill(divisor, b);
  detail::pointwise(PointwiseOp::div, out, {&a.raw(), &divisor});  // a * (1 / b) would round twice
  return record("div", std::move(out), {&a}, [&] {
    return [divisor](Gradients& g) { pointwise_gradient(g, 0, PointwiseOp::div, {&g.output(), &divisor}); };
  });
}

Tensor operator-(double a, const Tensor& b) {
  View out = same_result("sub", b, false);
  detail::pointwise(PointwiseOp::rsub_scalar, out, {&b.raw()}, a);
  return record("sub", std::move(out), {&b},
                [] { return [](Gradients& g) { pointwise_gradient(g, 0, PointwiseOp::neg, {&g.output()}); }; });
}

Tensor operator/(double a, const Tensor& b) {
  View out = same_result("div", b);
  detail::pointwise(PointwiseOp::rdiv_scalar, out, {&b.raw()}, a);
  return record("div", std::move(out), {&b}, [&] {
    return [a, b = Saved(b)](Gradients& g) {
      pointwise_gradient(g, 0, PointwiseOp::rdiv_scalar_grad, {&g.output(), &b.get(g)}, a);
    };
  });
}

Tensor Tensor::neg() const {
  View out = same_result("neg", *this, false);
  detail::pointwise(PointwiseOp::neg, out, {&raw()});
  return record("neg", std::move(out), {this},
                [] { return [](Gradients& g) { pointwise_gradient(g, 0, PointwiseOp::neg, {&g.output()}); }; });
}

Tensor Tensor::exp() const {
  View out = same_result("exp", *this);
  detail::pointwise(PointwiseOp::exp, out, {&raw()});
  return record("exp", out, {this}, [&] {
    return [y = Saved(out)](Gradients& g) { pointwise_gradient(g, 0, PointwiseOp::mul, {&g.output(), &y.get(g)}); };
  });
}

Tensor Tensor::log() const {
  View out = same_result("log", *this);
  detail::pointwise(PointwiseOp::log, out, {&raw()});
  return record("log", std::move(out), {this}, [&] {
    return [x = Saved(*this)](Gradients& g) { pointwise_gradient(g, 0, PointwiseOp::div, {&g.output(), &x.get(g)}); };
  });
}

Tensor Tensor::sqrt() const {
  View out = same_result("sqrt", *this);
  detail::pointwise(PointwiseOp::sqrt, out, {&raw()});
  return record("sqrt", out, {this}, [&] {
    return
        [y = Saved(out)](Gradients& g) { pointwise_gradient(g, 0, PointwiseOp::sqrt_grad, {&g.output(), &y.get(g)}); };
  });
}

Tensor Tensor::abs() const {
  View out = same_result("abs", *this);
  detail::pointwise(PointwiseOp::abs, out, {&raw()});
  return record("abs", std::move(out), {this}, [&] {
    return
        [x = Saved(*this)](Gradients& g) { pointwise_gradient(g, 0, PointwiseOp::abs_grad, {&g.output(), &x.get(g)}); };
  });
}

Tensor Tensor::pow(double exponent) const {
  View out = same_result("pow", *this);
  detail::pointwise(PointwiseOp::pow_scalar, out, {&raw()}, exponent);
  return record("pow", std::move(out), {this}, [&] {
    return [x = Saved(*this), exponent](Gradients& g) {
      pointwise_gradient(g, 0, PointwiseOp::pow_scalar_grad, {&g.output(), &x.get(g)}, exponent);
    };
  });
}

Tensor Tensor::relu() const {
  View out = same_result("relu", *this);
  detail::pointwise(PointwiseOp::relu, out, {&raw()});
  return record("relu", out, {this}, [&] {
    return
        [y = Saved(out)](Gradients& g) { pointwise_gradient(g, 0, PointwiseOp::relu_grad, {&g.output(), &y.get(g)}); };
  });
}

}  // namespace tandem::inline v0
