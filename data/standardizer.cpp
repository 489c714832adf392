#include <tandem/data/standardizer.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
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

// The deviation to divide by: 1 where there is none but rounding, or where f32 cannot hold it.
Tensor usable_std(const Tensor& mean, const Tensor& variance) {
  constexpr double kRounding = 1e-12;
  Tensor std = variance.sqrt();
  const std::vector<double> centre = mean.to_vector<double>();
  std::size_t at = 0;
  for (double& value : std.mutable_span<double>()) {
    value = value > kRounding * std::abs(centre[at++]) && static_cast<float>(value) > 0 ? value : 1;
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
  return {mean, usable_std(mean, values.clone().sub_(mean).pow(2).mean({0}))};
}

Standardizer Standardizer::of_all(const Tensor& x) {
  const NoGradGuard no_grad;
  check<ShapeError>(x.numel() > 0, "Standardizer: {} has no elements to measure", x.shape());
  const Tensor values = finite_f64(x);
  const Tensor mean = values.mean();
  return {mean, usable_std(mean, values.clone().sub_(mean).pow(2).mean())};
}

Tensor Standardizer::apply(const Tensor& x) const {
  return x.to(DType::f64).clone().sub_(mean_).div_(std_).to(x.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

Tensor Standardizer::invert(const Tensor& x) const {
  return x.to(DType::f64).clone().mul_(std_).add_(mean_).to(x.dtype());
}

}  // namespace tandem::inline v0::data
