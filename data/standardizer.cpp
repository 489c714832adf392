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

// Copies to f64 on the host, where each value is checked. With f32, the mean of large numbers would lose their spread.
Tensor finite_f64(const Tensor& x) {
  const Tensor values = x.to("cpu").to(DType::f64).contiguous();
  const std::int64_t width = x.dim() < 2 ? 1 : x.numel() / std::max<std::int64_t>(x.size(0), 1);
  std::int64_t at = 0;
  for (const double value : values.span<double>()) {
    check<ValueError>(std::isfinite(value), "Standardizer: the value at row {}, column {} is {}", at / width,
                      at % width, value);
    ++at;
  }
  return values;
}

// The divisors: 1 where the spread is only rounding error, or where f32 cannot hold it. The mean of a constant column
// is set to its exact value, so no rounding error remains to be divided.
Tensor usable_std(const Tensor& values, Tensor& mean) {
  constexpr double kRounding = 1e-12;
  const Tensor apart = values.clone().sub_(mean);
  Tensor std = (mean.dim() == 0 ? apart.pow(2).mean() : apart.pow(2).mean({0})).sqrt();
  double* centre = mean.mutable_data<double>();
  const double* first = values.data<double>();
  for (double& value : std.mutable_span<double>()) {
    if (!(value > kRounding * std::abs(*centre) && static_cast<float>(value) > 0)) {
      value = 1;
      *centre = *first;
    }
    ++centre;
    ++first;
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
  Tensor mean = values.mean({0});
  const Tensor std = usable_std(values, mean);
  return {mean, std};
}

Standardizer Standardizer::of_all(const Tensor& x) {
  const NoGradGuard no_grad;
  check<ShapeError>(x.numel() > 0, "Standardizer: {} has no elements to measure", x.shape());
  const Tensor values = finite_f64(x);
  Tensor mean = values.mean();
  const Tensor std = usable_std(values, mean);
  return {mean, std};
}

Tensor Standardizer::apply(const Tensor& x) const {
  const Tensor apart = x.to(DType::f64).clone().sub_(mean_.to(x.device())).div_(std_.to(x.device()));
  return apart.to(x.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

Tensor Standardizer::invert(const Tensor& x) const {
  return x.to(DType::f64).clone().mul_(std_.to(x.device())).add_(mean_.to(x.device())).to(x.dtype());
}

}  // namespace tandem::inline v0::data
