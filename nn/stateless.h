#pragma once

#include <utility>

#include <tandem/autograd/ops.h>
#include <tandem/autograd/spatial.h>
#include <tandem/nn/module.h>

// Layers without parameters: activations, dropout, Upsample, Flatten, Identity.

namespace tandem::inline v0::nn {

/// max(x, 0), element by element.
class ReLU : public Module<ReLU> {
 public:
  Tensor forward(Tensor x) const { return relu(std::move(x)); }
};

/// Hyperbolic tangent, element by element.
class Tanh : public Module<Tanh> {
 public:
  Tensor forward(const Tensor& x) const { return tanh(x); }
};

/// 1 / (1 + exp(-x)), element by element.
class Sigmoid : public Module<Sigmoid> {
 public:
  Tensor forward(const Tensor& x) const { return sigmoid(x); }
};

/// x * sigmoid(x), element by element; also called swish (Hendrycks and Gimpel, 2016).
class SiLU : public Module<SiLU> {
 public:
  Tensor forward(const Tensor& x) const { return silu(x); }
};

/// x * Phi(x), where Phi is the normal distribution function, or the approximation of it by tanh (Hendrycks and Gimpel,
/// 2016).
class TANDEM_API GELU : public Module<GELU> {
 public:
  explicit GELU(GELUApproximation approximate = GELUApproximation::none);
  Tensor forward(const Tensor& x) const { return gelu(x, approximate_); }

 private:
  GELUApproximation approximate_;
};

/// x where x > 0, else negative_slope * x (Maas et al., 2013).
class TANDEM_API LeakyReLU : public Module<LeakyReLU> {
 public:
  explicit LeakyReLU(double negative_slope = 0.01);
  Tensor forward(const Tensor& x) const { return leaky_relu(x, negative_slope_); }

 private:
  double negative_slope_;
};

/// x where x > 0, else alpha * (exp(x) - 1) (Clevert et al., 2016).
class TANDEM_API ELU : public Module<ELU> {
 public:
  explicit ELU(double alpha = 1);
  Tensor forward(const Tensor& x) const { return elu(x, alpha_); }

 private:
  double alpha_;
};

/// log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold.
class TANDEM_API Softplus : public Module<Softplus> {
 public:
  /// Throws ConfigError for a beta of 0.
  explicit Softplus(double beta = 1, double threshold = 20);
  Tensor forward(const Tensor& x) const { return softplus(x, beta_, threshold_); }

 private:
  double beta_;
  double threshold_;
};

/// exp(x) over the sum of exp(x) along a dimension. A negative dimension counts from the end.
class TANDEM_API Softmax : public Module<Softmax> {
 public:
  explicit Softmax(int dim);
  Tensor forward(const Tensor& x) const { return softmax(x, dim_); }

 private:
  int dim_;
};

/// The logarithm of Softmax, computed without overflow.
class TANDEM_API LogSoftmax : public Module<LogSoftmax> {
 public:
  explicit LogSoftmax(int dim);
  Tensor forward(const Tensor& x) const { return log_softmax(x, dim_); }

 private:
  int dim_;
};

/// In training, each element becomes zero with probability p and is otherwise scaled by 1 / (1 - p). Evaluation returns
/// x unchanged (Srivastava et al., 2014). Draws come from the current generator.
class TANDEM_API Dropout : public Module<Dropout> {
 public:
  /// Throws ConfigError unless 0 <= p <= 1.
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) const { return dropout(x, p_, is_training()); }

 private:
  double p_;
};

/// Dropout of whole channels: dropout2d().
class TANDEM_API Dropout2d : public Module<Dropout2d> {
 public:
  /// Throws ConfigError unless 0 <= p <= 1.
  explicit Dropout2d(double p = 0.5);
  Tensor forward(const Tensor& x) const { return dropout2d(x, p_, is_training()); }

 private:
  double p_;
};

/// Options of Upsample.
struct UpsampleOptions {
  InterpolateMode mode = InterpolateMode::nearest;  // see there
  bool align_corners = false;                       // whether corner elements keep their places
};

/// Images scale_factor times as large: interpolate().
class TANDEM_API Upsample : public Module<Upsample> {
 public:
  /// Throws ConfigError for a factor below 1.
  explicit Upsample(std::int64_t scale_factor, const UpsampleOptions& options = {});
  Tensor forward(const Tensor& x) const {
    const std::int64_t high = x.dim() == 4 ? x.size(2) * scale_factor_ : 1;
    const std::int64_t wide = x.dim() == 4 ? x.size(3) * scale_factor_ : 1;
    return interpolate(x, {high, wide}, options_.mode, options_.align_corners);
  }

 private:
  std::int64_t scale_factor_;
  UpsampleOptions options_;
};

/// Merges dimensions start_dim to end_dim (inclusive) into one: [batch, 1, 28, 28] becomes [batch, 784].
class TANDEM_API Flatten : public Module<Flatten> {
 public:
  explicit Flatten(int start_dim = 1, int end_dim = -1);
  Tensor forward(const Tensor& x) const { return x.flatten(start_dim_, end_dim_); }

 private:
  int start_dim_;
  int end_dim_;
};

/// Returns its input, the same tensor. Use it in place of a layer that is left out.
class Identity : public Module<Identity> {
 public:
  Tensor forward(const Tensor& x) const { return x; }
};

}  // namespace tandem::inline v0::nn
