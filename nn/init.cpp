#include <tandem/nn/init.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/normal_quantile.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn::init {

namespace {

struct Fans {
  double in;
  double out;
};

Fans fans_of(const char* what, const Tensor& weight) {
  check<ShapeError>(weight.dim() >= 2, "{}: the weight must be [out, in, ...], got {}", what, weight.shape());
  double field = 1;
  for (int i = 2; i < weight.dim(); ++i) {
    field *= static_cast<double>(weight.size(i));
  }
  return {static_cast<double>(weight.size(1)) * field, static_cast<double>(weight.size(0)) * field};
}

// gain^2 as a fraction. A bound then takes one division and one root, without intermediate rounding.
struct SquaredGain {
  double numerator;
  double denominator;
};

SquaredGain squared_gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::tanh: return {25, 9};
    case Nonlinearity::relu: return {2, 1};
    case Nonlinearity::leaky_relu: return {2, 1 + slope * slope};
    case Nonlinearity::selu: return {9, 16};
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid: break;
  }
  return {1, 1};
}

// sqrt(factor * gain^2 / fan). The scale is 0 for a layer without inputs (or outputs): such a weight has no elements to
// draw.
double kaiming_scale(const char* what, const Tensor& weight, double factor, double a, FanMode mode,
                     Nonlinearity nonlinearity) {
  const Fans fans = fans_of(what, weight);
  const double fan = mode == FanMode::fan_in ? fans.in : fans.out;
  const SquaredGain gain = squared_gain(nonlinearity, a);
  return fan > 0 ? std::sqrt(factor * gain.numerator / (gain.denominator * fan)) : 0.0;
}

double xavier_scale(const char* what, const Tensor& weight, double factor, double gain) {
  check<ConfigError>(gain >= 0, "{}: the gain is {}, it must not be negative", what, gain);
  const Fans fans = fans_of(what, weight);
  return fans.in + fans.out > 0 ? gain * std::sqrt(factor / (fans.in + fans.out)) : 0.0;
}

void check_floating(const char* what, const Tensor& tensor) {
  check<DTypeError>(is_floating_point(tensor.dtype()), "{}: the tensor is {}, it must be of floating point", what,
                    tensor.dtype());
}

// Elements are drawn in f64 in host memory and then converted, so that every type and device gets the same draws.
TensorOptions drawn() { return {.dtype = DType::f64, .device = "cpu:0"}; }

// Removes from `rows` their components along the rows of `basis`, which are orthonormal. Two passes are needed: the
// first leaves rounding errors as large as the components that it removed, and those may be most of a row.
void remove_parts(Tensor rows, const Tensor& basis) {
  for (int pass = 0; pass < 2; ++pass) {
    rows.sub_(rows.matmul(basis.t()).matmul(basis));
  }
}

// Gram-Schmidt on blocks of rows, so that nearly all work is matrix products.
void orthonormalize_rows(const Tensor& matrix) {
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t first = 0; first < matrix.size(0); first += kBlock) {
    const Tensor block = matrix.narrow(0, first, std::min(kBlock, matrix.size(0) - first));
    if (first > 0) {
      remove_parts(block, matrix.narrow(0, 0, first));
    }
    for (std::int64_t i = 0; i < block.size(0); ++i) {
      Tensor row = block.narrow(0, i, 1);
      if (i > 0) {
        remove_parts(row, block.narrow(0, 0, i));
      }
      row.div_(row.norm());
    }
  }
}

}  // namespace

// NOLINTBEGIN(performance-unnecessary-value-param): handles, changed and returned

Tensor uniform_(Tensor tensor, double low, double high) {
  const NoGradGuard no_grad;
  return tensor.uniform_(low, high);
}

Tensor normal_(Tensor tensor, double mean, double std) {
  const NoGradGuard no_grad;
  return tensor.normal_(mean, std);
}

Tensor trunc_normal_(Tensor tensor, double mean, double std, double low, double high) {
  check_floating("trunc_normal_", tensor);
  check<ConfigError>(std > 0 && std::isfinite(std) && std::isfinite(mean) && low < high,
                     "trunc_normal_: needs a mean and a std > 0 that are finite, and low < high; got mean {}, std {}, "
                     "[{}, {}]",
                     mean, std, low, high);
  double from = (low - mean) / std;
  double to = (high - mean) / std;
  // The draw is made in the lower half, where probabilities close to 0 keep all their digits.
  const double sign = from + to > 0 ? -1 : 1;
  if (sign < 0) {
    std::swap(from, to);
    from = -from;
    to = -to;
  }
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  const double start = below(from);
  const double width = below(to) - start;
  check<ConfigError>(width > 0, "trunc_normal_: [{}, {}] is too far from the mean {} for a std of {}, or too narrow",
                     low, high, mean, std);
  const NoGradGuard no_grad;
  Tensor values = rand(tensor.shape(), drawn());
  for (double& value : values.mutable_span<double>()) {
    const double p = std::clamp(start + value * width, 0x1p-1074, 1 - 0x1p-53);
    value = std::clamp(mean + std * sign * detail::normal_quantile(p), low, high);
  }
  return tensor.copy_(values);
}

Tensor constant_(Tensor tensor, double value) {
  const NoGradGuard no_grad;
  return tensor.fill_(value);
}

Tensor ones_(Tensor tensor) { return constant_(std::move(tensor), 1); }
Tensor zeros_(Tensor tensor) { return constant_(std::move(tensor), 0); }

Tensor eye_(Tensor tensor) {
  check<ShapeError>(tensor.dim() == 2, "eye_: needs a matrix, got {}", tensor.shape());
  const NoGradGuard no_grad;
  tensor.zero_();
  const std::int64_t count = std::min(tensor.size(0), tensor.size(1));
  tensor.narrow(0, 0, count)
      .narrow(1, 0, count)
      .copy_(eye(count, {.dtype = tensor.dtype(), .device = tensor.device()}));
  return tensor;
}

double calculate_gain(Nonlinearity nonlinearity, std::optional<double> param) {
  check<ConfigError>(!param.has_value() || nonlinearity == Nonlinearity::leaky_relu,
                     "calculate_gain: only leaky_relu takes a param, its negative slope; got {}", param.value_or(0));
  const SquaredGain gain = squared_gain(nonlinearity, param.value_or(0.01));
  return std::sqrt(gain.numerator / gain.denominator);
}

Tensor xavier_uniform_(Tensor tensor, double gain) {
  const double bound = xavier_scale("xavier_uniform_", tensor, 6, gain);
  return init::uniform_(std::move(tensor), -bound, bound);
}

Tensor xavier_normal_(Tensor tensor, double gain) {
  const double std = xavier_scale("xavier_normal_", tensor, 2, gain);
  return init::normal_(std::move(tensor), 0, std);
}

Tensor kaiming_uniform_(Tensor tensor, double a, FanMode mode, Nonlinearity nonlinearity) {
  const double bound = kaiming_scale("kaiming_uniform_", tensor, 3, a, mode, nonlinearity);
  return init::uniform_(std::move(tensor), -bound, bound);
}

Tensor kaiming_normal_(Tensor tensor, double a, FanMode mode, Nonlinearity nonlinearity) {
  const double std = kaiming_scale("kaiming_normal_", tensor, 1, a, mode, nonlinearity);
  return init::normal_(std::move(tensor), 0, std);
}

Tensor orthogonal_(Tensor tensor, double gain) {
  check_floating("orthogonal_", tensor);
  check<ShapeError>(tensor.dim() >= 2, "orthogonal_: needs at least two dimensions, got {}", tensor.shape());
  if (tensor.numel() == 0) {
    return tensor;
  }
  const NoGradGuard no_grad;
  const std::int64_t rows = tensor.size(0);
  const std::int64_t cols = tensor.numel() / rows;
  Tensor matrix = randn({std::min(rows, cols), std::max(rows, cols)}, drawn());
  orthonormalize_rows(matrix);
  matrix.mul_(gain);
  return tensor.copy_((rows > cols ? matrix.t() : matrix).reshape(tensor.shape()));
}

// NOLINTEND(performance-unnecessary-value-param)

}  // namespace tandem::inline v0::nn::init
