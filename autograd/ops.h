#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tandem/tensor/tensor.h>

// Differentiable functions. Those that are also methods of Tensor mean the same.

namespace tandem::inline v0 {

// ---- arithmetic: broadcasting as NumPy does, types as promote_types() says ----
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
// The same for a view that has no name: `x[0] += 1`.
inline void operator+=(Tensor&& a, const Tensor& b) { a.add_(b); }
inline void operator-=(Tensor&& a, const Tensor& b) { a.sub_(b); }
inline void operator*=(Tensor&& a, const Tensor& b) { a.mul_(b); }
inline void operator/=(Tensor&& a, const Tensor& b) { a.div_(b); }
inline void operator+=(Tensor&& a, Scalar b) { a.add_(b); }
inline void operator-=(Tensor&& a, Scalar b) { a.sub_(b); }
inline void operator*=(Tensor&& a, Scalar b) { a.mul_(b); }
inline void operator/=(Tensor&& a, Scalar b) { a.div_(b); }
/// Element by element; where both are equal each gets half the gradient. NaN wins.
TANDEM_API Tensor maximum(const Tensor& a, const Tensor& b);
TANDEM_API Tensor minimum(const Tensor& a, const Tensor& b);

// ---- functions of one tensor; integers become f32 where the result is no integer ----
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
/// Hyperbolic tangent.
inline Tensor tanh(const Tensor& x) { return x.tanh(); }
/// 1 / (1 + exp(-x)).
inline Tensor sigmoid(const Tensor& x) { return x.sigmoid(); }
/// x * sigmoid(x), also called swish.
TANDEM_API Tensor silu(const Tensor& x);
/// How gelu() is computed.
enum class GELUApproximation : std::uint8_t { none, tanh };
/// x * Phi(x), Phi the normal distribution function, or the approximation by tanh (Hendrycks and Gimpel, 2016).
TANDEM_API Tensor gelu(const Tensor& x, GELUApproximation approximate = GELUApproximation::none);
/// x where x > 0, else negative_slope * x.
TANDEM_API Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// x where x > 0, else alpha * (exp(x) - 1).
TANDEM_API Tensor elu(const Tensor& x, double alpha = 1);
/// log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold.
TANDEM_API Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);

// ---- comparing: bool results, which have no gradient ----
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
/// Anything but 0 counts as true.
TANDEM_API Tensor logical_and(const Tensor& a, const Tensor& b);
TANDEM_API Tensor logical_or(const Tensor& a, const Tensor& b);
TANDEM_API Tensor logical_xor(const Tensor& a, const Tensor& b);
TANDEM_API Tensor logical_not(const Tensor& x);
/// The same for masks. Throws DTypeError unless both are bool.
TANDEM_API Tensor operator&(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator|(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator^(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator~(const Tensor& x);
TANDEM_API Tensor isnan(const Tensor& x);
/// a where the bool `condition` holds, else b; all three broadcast. Gradients go where the values came from.
TANDEM_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
TANDEM_API Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
TANDEM_API Tensor where(const Tensor& condition, Scalar a, const Tensor& b);

inline Tensor matmul(const Tensor& a, const Tensor& b) { return a.matmul(b); }
inline Tensor cumsum(const Tensor& x, std::int64_t dim) { return x.cumsum(dim); }
inline Tensor softmax(const Tensor& x, int dim) { return x.softmax(dim); }
inline Tensor log_softmax(const Tensor& x, int dim) { return x.log_softmax(dim); }

// ---- joining ----
/// Along an existing dimension; all other sizes are equal. Different types are promoted, here and in stack().
TANDEM_API Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
/// Along a new dimension; all sizes are equal.
TANDEM_API Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);

// ---- layers as functions ----
/// x [..., in] times weight [out, in] transposed, plus bias [out] if given: [..., out].
TANDEM_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// relu(linear(x, weight, bias)) in one pass over the result.
TANDEM_API Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// Each element is zero with probability p and scaled by 1 / (1 - p) otherwise; x itself unless `training`.
/// Throws ConfigError unless 0 <= p <= 1.
TANDEM_API Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
/// Row indices[p] of `weight` [rows, dim] for every position p of the i64 (or i32) `indices`: [..., dim]. The row
/// `padding_idx` (negative: from the end) gets no gradient. Throws ValueError naming position and value of an index
/// outside [0, rows), ConfigError for such a padding_idx.
TANDEM_API Tensor embedding(const Tensor& indices, const Tensor& weight,
                            std::optional<std::int64_t> padding_idx = std::nullopt);
/// (x - mean) / sqrt(var + eps) * weight + bias, mean and (biased) variance over the last dimensions, which are
/// `normalized_shape`, as are weight and bias, if given (Ba et al., 2016).
TANDEM_API Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                             const Tensor& bias = {}, double eps = 1e-5);
/// (x - mean) / sqrt(var + eps) * weight + bias for each channel: x is [batch, channels, ...], the rest [channels]
/// (Ioffe and Szegedy, 2015). In training mean and (biased) variance are those of the values, and the running ones, if
/// given, become (1 - momentum) * running + momentum * value in place, the variance unbiased there; else they are the
/// running ones. Throws ValueError in training with one value per channel. A batch of none changes nothing.
TANDEM_API Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                             const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                             double momentum = 0.1, double eps = 1e-5);

// ---- losses ----
/// What a loss makes of its elements' losses.
enum class Reduction : std::uint8_t { none, mean, sum };

/// (input - target)^2. Here as in the losses below, shapes must be equal: broadcasting [n] against [n, 1] is a
/// well-known silent mistake. Gradients go to input and target. The mean of nothing is NaN. Two types are promoted as
/// in arithmetic where PyTorch does so: here, in l1_loss (but bools) and in smooth_l1_loss. The others want one type.
TANDEM_API Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// |input - target|; its gradient is 0 where they are equal.
TANDEM_API Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// With d = |input - target|: d^2 / (2 beta) where d < beta, else d - beta / 2; l1_loss for beta 0 (Girshick, 2015).
/// Throws ConfigError for a negative beta.
TANDEM_API Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean,
                                 double beta = 1);
/// With d = |input - target|: d^2 / 2 where d <= delta, else delta * (d - delta / 2) (Huber, 1964). Throws ConfigError
/// unless delta > 0.
TANDEM_API Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean,
                             double delta = 1);

/// What binary_cross_entropy can be told.
struct BCELossOptions {
  Tensor weight = {};                     // factors of the losses, broadcast to the input; none: 1
  Reduction reduction = Reduction::mean;  // the mean divides by the number of losses, whatever their weights
};
/// -(target * log(input) + (1 - target) * log(1 - input)) of probabilities; logarithms count as -100 at least. Throws
/// ValueError for an input outside [0, 1]. Of a sigmoid's output rather take binary_cross_entropy_with_logits.
TANDEM_API Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const BCELossOptions& options = {});

/// What binary_cross_entropy_with_logits can be told.
struct BCEWithLogitsLossOptions {
  Tensor weight = {};                     // factors of the losses, broadcast to the logits; none: 1
  Reduction reduction = Reduction::mean;  // the mean divides by the number of losses, whatever their weights
  Tensor pos_weight = {};                 // factors of target * log(sigmoid(logits)) alone, broadcast to the logits
};
/// Binary cross-entropy of sigmoid(logits), in a form that is exact for logits of any size.
TANDEM_API Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                                   const BCEWithLogitsLossOptions& options = {});

/// What nll_loss can be told.
struct NLLLossOptions {
  Tensor weight = {};                     // [classes], in the type of the input; none: 1
  std::int64_t ignore_index = -100;       // targets with this value have neither loss nor gradient
  Reduction reduction = Reduction::mean;  // the mean divides by the sum of the weights of the targets that count
};
/// -weight[target] * log_probs[target]: log_probs [classes], [rows, classes] or [rows, classes, ...], i64 targets of
/// these sizes without the classes. Throws ValueError naming value and place of a target that is neither in
/// [0, classes) nor ignore_index. If no target counts the mean is NaN, and all gradients are 0.
TANDEM_API Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const NLLLossOptions& options = {});

/// What cross_entropy can be told.
struct CrossEntropyLossOptions {
  Tensor weight = {};                     // [classes], in the type of the logits; none: 1
  std::int64_t ignore_index = -100;       // class indices with this value have neither loss nor gradient
  Reduction reduction = Reduction::mean;  // the mean divides as in nll_loss, for probabilities by their rows
  double label_smoothing = 0;             // this share of each target is spread evenly over all classes
};
/// nll_loss of log_softmax(logits), with the same shapes, in one pass. Targets may also be probabilities in the shape
/// and type of the logits: then -sum(weight * target * log_softmax(logits)) over the classes, and they have a gradient.
/// Throws ConfigError unless 0 <= label_smoothing <= 1, or for probabilities and an ignore_index >= 0.
TANDEM_API Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                                const CrossEntropyLossOptions& options = {});

}  // namespace tandem::inline v0
