#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tandem/tensor/tensor.h>

// Differentiable functions. A function that is also a method of Tensor has the same meaning.

namespace tandem::inline v0 {

// ---- arithmetic: broadcasting as in NumPy, dtypes by promote_types() ----
TANDEM_API Tensor operator+(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator-(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator*(const Tensor& a, const Tensor& b);
/// True division: integers become f32.
TANDEM_API Tensor operator/(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator+(const Tensor& a, Scalar b);
TANDEM_API Tensor operator-(const Tensor& a, Scalar b);
TANDEM_API Tensor operator*(const Tensor& a, Scalar b);
TANDEM_API Tensor operator/(const Tensor& a, Scalar b);
TANDEM_API Tensor operator-(Scalar a, const Tensor& b);
TANDEM_API Tensor operator/(Scalar a, const Tensor& b);
inline Tensor operator+(Scalar a, const Tensor& b) { return b + a; }
inline Tensor operator*(Scalar a, const Tensor& b) { return b * a; }
inline Tensor operator-(const Tensor& a) { return a.neg(); }
inline Tensor& operator+=(Tensor& a, const Tensor& b) { return a.add_(b); }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return a.sub_(b); }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return a.mul_(b); }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return a.div_(b); }
inline Tensor& operator+=(Tensor& a, Scalar b) { return a.add_(b); }
inline Tensor& operator-=(Tensor& a, Scalar b) { return a.sub_(b); }
inline Tensor& operator*=(Tensor& a, Scalar b) { return a.mul_(b); }
inline Tensor& operator/=(Tensor& a, Scalar b) { return a.div_(b); }
// Overloads for unnamed views: `x[0] += 1`.
inline void operator+=(Tensor&& a, const Tensor& b) { a.add_(b); }
inline void operator-=(Tensor&& a, const Tensor& b) { a.sub_(b); }
inline void operator*=(Tensor&& a, const Tensor& b) { a.mul_(b); }
inline void operator/=(Tensor&& a, const Tensor& b) { a.div_(b); }
inline void operator+=(Tensor&& a, Scalar b) { a.add_(b); }
inline void operator-=(Tensor&& a, Scalar b) { a.sub_(b); }
inline void operator*=(Tensor&& a, Scalar b) { a.mul_(b); }
inline void operator/=(Tensor&& a, Scalar b) { a.div_(b); }
/// The elementwise maximum or minimum. Equal elements each get half the gradient. NaN propagates.
TANDEM_API Tensor maximum(const Tensor& a, const Tensor& b);
TANDEM_API Tensor minimum(const Tensor& a, const Tensor& b);

// ---- functions of one tensor; integers become f32 where the result is not an integer ----
inline Tensor exp(const Tensor& x) { return x.exp(); }
inline Tensor expm1(const Tensor& x) { return x.expm1(); }
inline Tensor log(const Tensor& x) { return x.log(); }
inline Tensor log1p(const Tensor& x) { return x.log1p(); }
inline Tensor sqrt(const Tensor& x) { return x.sqrt(); }
inline Tensor rsqrt(const Tensor& x) { return x.rsqrt(); }
inline Tensor sin(const Tensor& x) { return x.sin(); }
inline Tensor cos(const Tensor& x) { return x.cos(); }
inline Tensor abs(const Tensor& x) { return x.abs(); }
inline Tensor sign(const Tensor& x) { return x.sign(); }
inline Tensor floor(const Tensor& x) { return x.floor(); }
inline Tensor ceil(const Tensor& x) { return x.ceil(); }
inline Tensor round(const Tensor& x) { return x.round(); }
inline Tensor clamp(const Tensor& x, double min, double max) { return x.clamp(min, max); }
inline Tensor pow(const Tensor& x, Scalar exponent) { return x.pow(exponent); }
inline Tensor pow(const Tensor& x, const Tensor& exponent) { return x.pow(exponent); }

// ---- activations ----
/// max(x, 0).
inline Tensor relu(const Tensor& x) { return x.relu(); }
/// max(x, 0). `relu(fc1(x))` overwrites the result of linear(), because nothing else can use that result.
TANDEM_API Tensor relu(Tensor&& x);
/// Hyperbolic tangent.
inline Tensor tanh(const Tensor& x) { return x.tanh(); }
/// 1 / (1 + exp(-x)).
inline Tensor sigmoid(const Tensor& x) { return x.sigmoid(); }
/// x * sigmoid(x), also called swish.
TANDEM_API Tensor silu(const Tensor& x);
/// The formula that gelu() uses.
enum class GELUApproximation : std::uint8_t { none, tanh };
/// x * Phi(x), where Phi is the normal distribution function, or its approximation by tanh (Hendrycks and Gimpel,
/// 2016).
TANDEM_API Tensor gelu(const Tensor& x, GELUApproximation approximate = GELUApproximation::none);
/// x where x > 0, else negative_slope * x.
TANDEM_API Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// x where x > 0, else alpha * (exp(x) - 1).
TANDEM_API Tensor elu(const Tensor& x, double alpha = 1);
/// log(1 + exp(beta * x)) / beta, or x where beta * x > threshold.
TANDEM_API Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);

// ---- comparisons: bool results, without gradient ----
TANDEM_API Tensor operator==(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator!=(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator<(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator<=(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator>(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator>=(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator==(const Tensor& a, Scalar b);
TANDEM_API Tensor operator!=(const Tensor& a, Scalar b);
TANDEM_API Tensor operator<(const Tensor& a, Scalar b);
TANDEM_API Tensor operator<=(const Tensor& a, Scalar b);
TANDEM_API Tensor operator>(const Tensor& a, Scalar b);
TANDEM_API Tensor operator>=(const Tensor& a, Scalar b);
inline Tensor operator==(Scalar a, const Tensor& b) { return b == a; }
inline Tensor operator!=(Scalar a, const Tensor& b) { return b != a; }
inline Tensor operator<(Scalar a, const Tensor& b) { return b > a; }
inline Tensor operator<=(Scalar a, const Tensor& b) { return b >= a; }
inline Tensor operator>(Scalar a, const Tensor& b) { return b < a; }
inline Tensor operator>=(Scalar a, const Tensor& b) { return b <= a; }
/// Logical functions; every nonzero element counts as true.
TANDEM_API Tensor logical_and(const Tensor& a, const Tensor& b);
TANDEM_API Tensor logical_or(const Tensor& a, const Tensor& b);
TANDEM_API Tensor logical_xor(const Tensor& a, const Tensor& b);
TANDEM_API Tensor logical_not(const Tensor& x);
/// Logical operators for masks. Throws DTypeError unless the operands are bool.
TANDEM_API Tensor operator&(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator|(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator^(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator~(const Tensor& x);
TANDEM_API Tensor isnan(const Tensor& x);
/// a where the bool `condition` is true, else b; all three broadcast. The gradient flows to the selected values.
TANDEM_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
TANDEM_API Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
TANDEM_API Tensor where(const Tensor& condition, Scalar a, const Tensor& b);

inline Tensor matmul(const Tensor& a, const Tensor& b) { return a.matmul(b); }
inline Tensor cumsum(const Tensor& x, std::int64_t dim) { return x.cumsum(dim); }
inline Tensor softmax(const Tensor& x, int dim) { return x.softmax(dim); }
inline Tensor log_softmax(const Tensor& x, int dim) { return x.log_softmax(dim); }

// ---- joining ----
/// Joins along an existing dimension; all other sizes must be equal. Different dtypes are promoted, also in stack().
TANDEM_API Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
/// Joins along a new dimension; all sizes must be equal.
TANDEM_API Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);

// ---- layers as functions ----
/// x [..., in] times the transpose of weight [out, in], plus bias [out] if given: [..., out].
TANDEM_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// relu(linear(x, weight, bias)) in one pass over the result.
TANDEM_API Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// Sets each element to zero with probability p and scales the others by 1 / (1 - p). Returns x itself unless
/// `training`. Throws ConfigError unless 0 <= p <= 1.
TANDEM_API Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
/// Row indices[p] of `weight` [rows, dim] for every position p of the i64 (or i32) `indices`: [..., dim]. The row
/// `padding_idx` gets no gradient; a negative value counts from the end. Throws ValueError naming position and value of
/// an index outside [0, rows), ConfigError for a padding_idx out of range.
TANDEM_API Tensor embedding(const Tensor& indices, const Tensor& weight,
                            std::optional<std::int64_t> padding_idx = std::nullopt);
/// (x - mean) / sqrt(var + eps) * weight + bias. Mean and (biased) variance are taken over the last dimensions, whose
/// sizes are `normalized_shape`; weight and bias, if given, have these sizes (Ba et al., 2016).
TANDEM_API Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                             const Tensor& bias = {}, double eps = 1e-5);
/// (x - mean) / sqrt(var + eps) * weight + bias for each channel. x is [batch, channels, ...], all other tensors are
/// [channels] (Ioffe and Szegedy, 2015). In training, mean and (biased) variance are those of x, and the running
/// statistics, if given, are updated in place to (1 - momentum) * running + momentum * value, with the unbiased
/// variance. Outside training, the running statistics are used. Throws ValueError in training with one value per
/// channel. An empty batch changes nothing.
TANDEM_API Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                             const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                             double momentum = 0.1, double eps = 1e-5);

// ---- losses ----
/// How a loss combines the losses of its elements.
enum class Reduction : std::uint8_t { none, mean, sum };

/// (input - target)^2. In this loss and all losses below, shapes must be equal: broadcasting [n] against [n, 1] is a
/// well-known silent mistake. Gradients flow to input and target. The mean of no elements is NaN. Different dtypes are
/// promoted as in arithmetic wherever PyTorch does so: in mse_loss, l1_loss (except bool) and smooth_l1_loss. The other
/// losses require equal dtypes.
TANDEM_API Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// |input - target|; the gradient is 0 where they are equal.
TANDEM_API Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// With d = |input - target|: d^2 / (2 beta) where d < beta, else d - beta / 2. A beta of 0 gives l1_loss (Girshick,
/// 2015). Throws ConfigError for a negative beta.
TANDEM_API Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean,
                                 double beta = 1);
/// With d = |input - target|: d^2 / 2 where d <= delta, else delta * (d - delta / 2) (Huber, 1964). Throws ConfigError
/// unless delta > 0.
TANDEM_API Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean,
                             double delta = 1);

/// Options of binary_cross_entropy.
struct BCELossOptions {
  Tensor weight = {};                     // factors of the losses, broadcast to the input; default 1
  Reduction reduction = Reduction::mean;  // the mean divides by the number of losses, regardless of weights
};
/// -(target * log(input) + (1 - target) * log(1 - input)) of probabilities; logarithms are clamped at -100. Throws
/// ValueError for an input outside [0, 1]. For the output of a sigmoid, prefer binary_cross_entropy_with_logits.
TANDEM_API Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const BCELossOptions& options = {});

/// Options of binary_cross_entropy_with_logits.
struct BCEWithLogitsLossOptions {
  Tensor weight = {};                     // factors of the losses, broadcast to the logits; default 1
  Reduction reduction = Reduction::mean;  // the mean divides by the number of losses, regardless of weights
  Tensor pos_weight = {};                 // factors of target * log(sigmoid(logits)) only, broadcast to the logits
};
/// Binary cross-entropy of sigmoid(logits), in a form that is accurate for logits of any size.
TANDEM_API Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                                   const BCEWithLogitsLossOptions& options = {});

/// Options of nll_loss.
struct NLLLossOptions {
  Tensor weight = {};                     // [classes], in the dtype of the input; default 1
  std::int64_t ignore_index = -100;       // targets with this value have neither loss nor gradient
  Reduction reduction = Reduction::mean;  // the mean divides by the sum of the weights of the counted targets
};
/// -weight[target] * log_probs[target]. log_probs is [classes], [rows, classes] or [rows, classes, ...]; targets are
/// i64 with these sizes, without the classes. Throws ValueError naming value and position of a target that is neither
/// in [0, classes) nor ignore_index. If no target counts, the mean is NaN and all gradients are 0.
TANDEM_API Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const NLLLossOptions& options = {});

/// Options of cross_entropy.
struct CrossEntropyLossOptions {
  Tensor weight = {};                     // [classes], in the dtype of the logits; default 1
  std::int64_t ignore_index = -100;       // class indices with this value have neither loss nor gradient
  Reduction reduction = Reduction::mean;  // the mean divides as in nll_loss; for probabilities, by the number of rows
  double label_smoothing = 0;             // this share of each target is spread evenly over all classes
};
/// nll_loss of log_softmax(logits), with the same shapes, in one pass. Targets may also be probabilities with the shape
/// and dtype of the logits. The loss is then -sum(weight * target * log_softmax(logits)) over the classes, and the
/// targets have a gradient. Throws ConfigError unless 0 <= label_smoothing <= 1, or for probabilities with an
/// ignore_index >= 0.
TANDEM_API Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                                const CrossEntropyLossOptions& options = {});

}  // namespace tandem::inline v0
