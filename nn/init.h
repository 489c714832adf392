#pragma once

#include <cstdint>
#include <optional>

#include <tandem/tensor/tensor.h>

// Initialisation of parameters in place, without recording: names, defaults and formulas of torch.nn.init. Draws come
// from the current generator. Each returns its tensor, and takes a handle:
// `xavier_uniform_(m.get_parameter("weight"))`.
//
// "fan in" is how many inputs an output of the layer has, "fan out" how many outputs an input reaches: for a weight
// [out, in, ...] in and out, times the sizes of the dimensions after them. A tensor with fewer than two dimensions has
// neither: ShapeError.

namespace tandem::inline v0::nn::init {

/// U(low, high).
TANDEM_API Tensor uniform_(Tensor tensor, double low = 0, double high = 1);
/// N(mean, std^2).
TANDEM_API Tensor normal_(Tensor tensor, double mean = 0, double std = 1);
/// N(mean, std^2) without what is outside [low, high], by the inverse of the distribution function. Throws ConfigError
/// unless std > 0 and low < high, or when that is further than 38 std from the mean, where no double is.
TANDEM_API Tensor trunc_normal_(Tensor tensor, double mean = 0, double std = 1, double low = -2, double high = 2);
/// Every element `value`.
TANDEM_API Tensor constant_(Tensor tensor, double value);
/// Every element 1.
TANDEM_API Tensor ones_(Tensor tensor);
/// Every element 0.
TANDEM_API Tensor zeros_(Tensor tensor);
/// 1 on the diagonal of a matrix, else 0: as many inputs as go in pass through. Throws ShapeError for other than two
/// dimensions.
TANDEM_API Tensor eye_(Tensor tensor);

/// What follows a layer. `linear` is nothing.
enum class Nonlinearity : std::uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// Which size keeps its variance: that of values on their way forward, or of gradients on their way back.
enum class FanMode : std::uint8_t { fan_in, fan_out };

/// By what factor the standard deviation of a weight has to be larger than 1 / sqrt(fan): 1 for linear and sigmoid,
/// 5/3 for tanh, sqrt(2) for relu, sqrt(2 / (1 + param^2)) for leaky_relu, whose negative slope is param (0.01 unless
/// given), 3/4 for selu. Other functions take no param: ConfigError.
TANDEM_API double calculate_gain(Nonlinearity nonlinearity, std::optional<double> param = std::nullopt);

/// U(-bound, bound) with bound = gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010).
TANDEM_API Tensor xavier_uniform_(Tensor tensor, double gain = 1);
/// N(0, std^2) with std = gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010).
TANDEM_API Tensor xavier_normal_(Tensor tensor, double gain = 1);
/// U(-bound, bound) with bound = gain * sqrt(3 / fan) (He et al., 2015); `a` is the negative slope of a leaky_relu, and
/// without meaning for others. With the defaults gain is sqrt(2); a = sqrt(5) is how nn::Linear starts.
TANDEM_API Tensor kaiming_uniform_(Tensor tensor, double a = 0, FanMode mode = FanMode::fan_in,
                                   Nonlinearity nonlinearity = Nonlinearity::leaky_relu);
/// N(0, std^2) with std = gain / sqrt(fan) (He et al., 2015).
TANDEM_API Tensor kaiming_normal_(Tensor tensor, double a = 0, FanMode mode = FanMode::fan_in,
                                  Nonlinearity nonlinearity = Nonlinearity::leaky_relu);

/// `gain` times a matrix whose rows (or columns, where those are fewer) have length 1 and are at right angles, drawn
/// uniformly from all such (Saxe et al., 2014); dimensions after the first count as one. Throws ShapeError for fewer
/// than two dimensions. Computed in f64.
TANDEM_API Tensor orthogonal_(Tensor tensor, double gain = 1);

}  // namespace tandem::inline v0::nn::init
