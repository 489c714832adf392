#include <tandem/data/standardizer.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <tandem/core/grad_mode.h>
#include <tandem/core/check.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

// f64 while measuring: the mean of large numbers eats the digits of their spread.
Tensor finite_f64(const Tensor& x) {
  const Tensor values = x.to(DType::f64).contiguous();
  const std::int64_t width = x.dim() < 2 ? 1 : x.numel() / std::max<std::int64_t>(x.size(0), 1);
  std::int64_t at = 0;
  for (const double value : values.span<double>()) {
    check<ValueError>(std::isfinite(value), "Standardizer: the value at row {}, column {} is {}", at / width,
                      at % width, value);
    ++at;
  }
  return values;
}

Tensor nonzero_std(const Tensor& variance) {
  Tensor std = variance.sqrt();
  for (double& value : std.mutable_span<double>()) {
    value = value > 0 ? value : 1;
  }
  return std;
}

}  // namespace

Standardizer::Standardizer(Tensor mean, Tensor std) : mean_(std::move(mean)), std_(std::move(std)) {}

Standardizer Standardizer::per_column(const Tensor& x) {
  const NoGradGuard no_grad;
  check<ShapeError>(x.dim() == 2 && x.size(0) > 0,
                    "Standardizer: expected [rows, columns] with at least one row, got {}", x.shape());
  const Tensor values = finite_f64(x);
  const Tensor mean = values.mean({0});
  return {mean.to(DType::f32), nonzero_std(values.clone().sub_(mean).pow(2).mean({0})).to(DType::f32)};
}

Standardizer Standardizer::of_all(const Tensor& x) {
  const NoGradGuard no_grad;
  check<ShapeError>(x.numel() > 0, "Standardizer: {} has no elements to measure", x.shape());
  const Tensor values = finite_f64(x);
  const Tensor mean = values.mean();
  return {mean.to(DType::f32), nonzero_std(values.clone().sub_(mean).pow(2).mean()).to(DType::f32)};
}

Tensor Standardizer::apply(const Tensor& x) const { return x.to(DType::f32).clone().sub_(mean_).div_(std_); }
Tensor Standardizer::invert(const Tensor& x) const { return x.clone().mul_(std_).add_(mean_); }

}  // namespace tandem::inline v0::data
