#pragma once

#include <cstdint>
#include <optional>

#include <tandem/tensor/tensor.h>

// Initialisation of parameters in place, without recording. Names, defaults and formulas are those of torch.nn.init.
// Draws come from the current generator. Each function returns its tensor and takes a handle:
// `xavier_uniform_(m.get_parameter("weight"))`.
//
// "fan in" is the number of inputs that each output of the layer depends on; "fan out" is the number of outputs that
// each input reaches. For a weight [out, in, ...] they are in and out, each times the sizes of the remaining
// dimensions. A tensor with fewer than two dimensions has neither: ShapeError.

namespace tandem::inline v0::nn::init {

/// U(low, high).
TANDEM_API Tensor uniform_(Tensor tensor, double low = 0, double high = 1);
/// N(mean, std^2).
TANDEM_API Tensor normal_(Tensor tensor, double mean = 0, double std = 1);
/// N(mean, std^2) truncated to [low, high], drawn by the inverse of the distribution function. Throws ConfigError
/// unless std > 0 and low < high, and for an interval further than 38 std from the mean, where no double can hold the
/// probability.
TANDEM_API Tensor trunc_normal_(Tensor tensor, double mean = 0, double std = 1, double low = -2, double high = 2);
/// Sets every element to `value`.
TANDEM_API Tensor constant_(Tensor tensor, double value);
/// Sets every element to 1.
TANDEM_API Tensor ones_(Tensor tensor);
/// Sets every element to 0.
TANDEM_API Tensor zeros_(Tensor tensor);
/// 1 on the diagonal of a matrix, 0 elsewhere: as many inputs as possible pass through. Throws ShapeError unless the
/// tensor has two dimensions.
TANDEM_API Tensor eye_(Tensor tensor);

/// The function that follows a layer. `linear` means none.
enum class Nonlinearity : std::uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// The direction in which variance is preserved: values on the way forward, or gradients on the way back.
enum class FanMode : std::uint8_t { fan_in, fan_out };

/// The factor by which the standard deviation of a weight must exceed 1 / sqrt(fan): 1 for linear and sigmoid, 5/3 for
/// tanh, sqrt(2) for relu, sqrt(2 / (1 + param^2)) for leaky_relu, whose negative slope is param (default 0.01), and
/// 3/4 for selu. Only leaky_relu takes a param: ConfigError for others.
TANDEM_API double calculate_gain(Nonlinearity nonlinearity, std::optional<double> param = std::nullopt);

/// U(-bound, bound) with bound = gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010).
TANDEM_API Tensor xavier_uniform_(Tensor tensor, double gain = 1);
/// N(0, std^2) with std = gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010).
TANDEM_API Tensor xavier_normal_(Tensor tensor, double gain = 1);
/// U(-bound, bound) with bound = gain * sqrt(3 / fan) (He et al., 2015). `a` is the negative slope of a leaky_relu and
/// is ignored for other functions. With the defaults the gain is sqrt(2). nn::Linear starts with a = sqrt(5).
TANDEM_API Tensor kaiming_uniform_(Tensor tensor, double a = 0, FanMode mode = FanMode::fan_in,
                                   Nonlinearity nonlinearity = Nonlinearity::leaky_relu);
/// N(0, std^2) with std = gain / sqrt(fan) (He et al., 2015).
TANDEM_API Tensor kaiming_normal_(Tensor tensor, double a = 0, FanMode mode = FanMode::fan_in,
                                  Nonlinearity nonlinearity = Nonlinearity::leaky_relu);

/// `gain` times a matrix with orthonormal rows (or orthonormal columns, if it has fewer columns than rows), drawn
/// uniformly from all such matrices (Saxe et al., 2014). Dimensions after the first count as one. Throws ShapeError for
/// fewer than two dimensions. Computed in f64.
TANDEM_API Tensor orthogonal_(Tensor tensor, double gain = 1);

}  // namespace tandem::inline v0::nn::init
