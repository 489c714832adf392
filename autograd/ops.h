#pragma once

#include <cstdint>
#include <vector>

#include <tandem/tensor/tensor.h>

// Differentiable functions. Those that are also methods of Tensor mean the same.

namespace tandem::inline v0 {

// ---- arithmetic, broadcasting as NumPy does ----
TANDEM_API Tensor operator+(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator-(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator*(const Tensor& a, const Tensor& b);
/// Floating point only.
TANDEM_API Tensor operator/(const Tensor& a, const Tensor& b);
TANDEM_API Tensor operator+(const Tensor& a, double b);
TANDEM_API Tensor operator-(const Tensor& a, double b);
TANDEM_API Tensor operator*(const Tensor& a, double b);
TANDEM_API Tensor operator/(const Tensor& a, double b);
TANDEM_API Tensor operator-(double a, const Tensor& b);
TANDEM_API Tensor operator/(double a, const Tensor& b);
inline Tensor operator+(double a, const Tensor& b) { return b + a; }
inline Tensor operator*(double a, const Tensor& b) { return b * a; }
inline Tensor operator-(const Tensor& a) { return a.neg(); }
inline Tensor& operator+=(Tensor& a, const Tensor& b) { return a.add_(b); }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return a.sub_(b); }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return a.mul_(b); }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return a.div_(b); }
inline Tensor& operator+=(Tensor& a, double b) { return a.add_(b); }
inline Tensor& operator-=(Tensor& a, double b) { return a.sub_(b); }
inline Tensor& operator*=(Tensor& a, double b) { return a.mul_(b); }
inline Tensor& operator/=(Tensor& a, double b) { return a.div_(b); }

inline Tensor exp(const Tensor& x) { return x.exp(); }
inline Tensor log(const Tensor& x) { return x.log(); }
inline Tensor sqrt(const Tensor& x) { return x.sqrt(); }
inline Tensor abs(const Tensor& x) { return x.abs(); }
inline Tensor pow(const Tensor& x, double exponent) { return x.pow(exponent); }
inline Tensor relu(const Tensor& x) { return x.relu(); }
inline Tensor matmul(const Tensor& a, const Tensor& b) { return a.matmul(b); }
inline Tensor softmax(const Tensor& x, int dim) { return x.softmax(dim); }
inline Tensor log_softmax(const Tensor& x, int dim) { return x.log_softmax(dim); }

// ---- joining ----
/// Along an existing dimension; all other sizes are equal.
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

// ---- losses ----
/// What a loss makes of its elements' losses.
enum class Reduction : std::uint8_t { none, mean, sum };

/// -log(softmax(logits)[target]): logits [rows, classes] and i64 targets [rows], or logits [classes] and a scalar
/// target. Throws ValueError naming row and value of a target outside [0, classes).
TANDEM_API Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction = Reduction::mean);
/// (input - target)^2. Shapes must be equal: broadcasting [n] against [n, 1] here is a well-known silent mistake.
TANDEM_API Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

}  // namespace tandem::inline v0
