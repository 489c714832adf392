#include <cmath>

#include <tandem/autograd/ops/common.h>

// Reductions composed of other ops.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// Computes 16-bit values in f32 throughout, so the result is rounded once.
template <class Function>
Tensor in_f32(const Tensor& x, Function&& function) {
  if (is_reduced_floating_point(x.dtype())) {
    return function(x.to(DType::f32)).to(x.dtype());
  }
  return function(x);
}

// The number of elements per result.
double count_of(const char* op, const Tensor& x, const Shape& dims) {
  double count = 1;
  for (const std::int64_t dim : dims) {
    const int d = wrap_dim(dim, x.dim(), op);
    count *= x.dim() == 0 ? 1 : static_cast<double>(x.shape()[d]);
  }
  return dims.empty() ? static_cast<double>(x.numel()) : count;
}

// total ** (1 / p). The derivative at 0 is infinite; the gradient is defined as 0 there, as in PyTorch.
Tensor root(const Tensor& total, double p) {
  const Tensor safe = where(total == 0, 1, total);
  return where(total == 0, 0, p == 2 ? safe.sqrt() : safe.pow(1 / p));
}

}  // namespace

Tensor Tensor::var(const Shape& dims, std::int64_t correction, bool keepdim) const {
  check_floating("var", *this);
  const double count = count_of("var", *this, dims);
  return in_f32(*this, [&](const Tensor& x) {
    const Tensor apart = x - x.mean(dims, true);
    return (apart * apart).sum(dims, keepdim) / std::fmax(count - static_cast<double>(correction), 0);
  });
}

Tensor Tensor::std(const Shape& dims, std::int64_t correction, bool keepdim) const {
  check_floating("std", *this);
  return in_f32(*this, [&](const Tensor& x) { return root(x.var(dims, correction, keepdim), 2); });
}

Tensor Tensor::norm(double p, const Shape& dims, bool keepdim) const {
  if (raises({this})) [[unlikely]] {
    return raised(*this).norm(p, dims, keepdim);
  }
  check_floating("norm", *this);
  check<ConfigError>(!std::isnan(p), "norm: p must be a number");
  return in_f32(*this, [&](const Tensor& x) {
    if (p == 1) {
      return x.abs().sum(dims, keepdim);
    }
    if (p == 0) {
      return (x != 0).to(x.dtype()).sum(dims, keepdim);
    }
    if (std::isinf(p)) {
      const Tensor sizes = x.abs();
      if (p > 0 && x.numel() == 0) {
        return sizes.sum(dims, keepdim);
      }
      return p > 0 ? sizes.amax(dims, keepdim) : sizes.amin(dims, keepdim);
    }
    const Tensor powers = p == 2 ? x * x : x.abs().pow(p);
    return root(powers.sum(dims, keepdim), p);
  });
}

Tensor Tensor::logsumexp(const Shape& dims, bool keepdim) const {
  check_floating("logsumexp", *this);
  return in_f32(*this, [&](const Tensor& x) {
    if (x.numel() == 0) {
      return x.exp().sum(dims, keepdim).log();
    }
    // An infinite maximum is not subtracted, because infinity minus infinity is NaN.
    const Tensor highest = x.detach().amax(dims, true);
    const Tensor shift = where(highest.abs() == INFINITY, 0, highest);
    const Tensor result = (x - shift).exp().sum(dims, true).log() + shift;
    return keepdim ? result : result.sum(dims);
  });
}

}  // namespace tandem::inline v0
