#include <tandem/data/preprocessing.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/dispatch.h>
#include <tandem/core/grad_mode.h>
#include <tandem/kernels/math.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

void check_table(const Tensor& x) {
  check<ShapeError>(x.dim() == 2, "Imputer: expected [rows, columns], got {}", x.shape());
}

/// `measure` reduces the numbers present in a column to one number.
template <class Measure>
Tensor measure_columns(const Tensor& x, Measure&& measure) {
  check_table(x);
  const NoGradGuard no_grad;
  const std::vector<double> values = x.to_vector<double>();
  const std::int64_t rows = x.size(0);
  const std::int64_t columns = x.size(1);
  std::vector<double> fill;
  std::vector<double> there;
  for (std::int64_t c = 0; c < columns; ++c) {
    there.clear();
    for (std::int64_t r = 0; r < rows; ++r) {
      const double value = values[static_cast<std::size_t>(r * columns + c)];
      check<ValueError>(!std::isinf(value), "Imputer: the value at row {}, column {} is {}", r, c, value);
      if (!std::isnan(value)) {
        there.push_back(value);
      }
    }
    check<ValueError>(!there.empty(), "Imputer: column {} has no value in any of the {} rows; remove the column", c,
                      rows);
    fill.push_back(measure(there));
  }
  return from_data(fill, {columns}, {.device = "cpu"});
}

}  // namespace

Imputer::Imputer(Tensor fill) : fill_(std::move(fill)) {}

Imputer Imputer::mean(const Tensor& x) {
  return Imputer(measure_columns(x, [](const std::vector<double>& values) {
    // A running mean; a sum could overflow.
    double mean = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto count = static_cast<double>(i + 1);
      mean += values[i] / count - mean / count;
    }
    return mean;
  }));
}

Imputer Imputer::median(const Tensor& x) {
  return Imputer(measure_columns(x, [](std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return values.size() % 2 == 1 ? *middle : std::midpoint(*std::max_element(values.begin(), middle), *middle);
  }));
}

Imputer Imputer::constant(double value) {
  check<ConfigError>(std::isfinite(value), "Imputer: the constant is {}; expected a finite number", value);
  return Imputer(from_data(std::vector<double>{value}, {}, {.device = "cpu"}));
}

Tensor Imputer::apply(const Tensor& x) const {
  check_table(x);
  check<ShapeError>(fill_.dim() == 0 || fill_.size(0) == x.size(1), "Imputer: fitted on {} columns, got {}",
                    fill_.numel(), x.shape());
  const NoGradGuard no_grad;
  const std::int64_t columns = x.size(1);
  const double* fill = fill_.data<double>();
  const bool per_column = fill_.dim() == 1;
  Tensor host = x.detach().to("cpu").clone();
  core::dispatch_floating(x.dtype(), "Imputer", [&]<class T>() {
    std::int64_t at = 0;
    for (T& value : host.mutable_span<T>()) {
      if (std::isnan(value)) {
        value = kernels::convert<T>(fill[per_column ? at % columns : 0]);
      }
      ++at;
    }
  });
  return host.to(x.device());
}

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
