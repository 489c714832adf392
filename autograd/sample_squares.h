#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/autograd/saved.h>
#include <tandem/tensor/tensor.h>

// Internal: how an op tells how large the gradient of its parameters is for each sample.

namespace tandem::inline v0::autograd {

/// A body that adds up squares sees its op through this class. Sample b is row b of the result and of the input.
class SampleSquares {
 public:
  /// `gradient`: of the op's result. `wanted`: the inputs that are parameters. `squares` [batch] takes the sums.
  SampleSquares(Node& node, const Tensor& gradient, std::vector<bool> wanted, Tensor& squares)
      : node_(node), gradient_(gradient), wanted_(std::move(wanted)), squares_(squares) {}

  const char* op() const noexcept { return node_.op(); }
  std::int64_t batch() const { return squares_.size(0); }
  const Tensor& output() const noexcept { return gradient_; }
  /// Whether input `i` is a parameter whose gradient counts. Whoever asks adds its squares.
  bool wants(std::uint32_t i) noexcept {
    const bool wanted = wanted_[i];
    wanted_[i] = false;
    return wanted;
  }
  /// Whether there is a parameter for which nobody has asked.
  bool has_left_out() const noexcept { return std::ranges::find(wanted_, true) != wanted_.end(); }
  /// Throws ShapeError unless the op has so many samples.
  void require_batch(std::int64_t samples) const;
  /// The elements that were saved.
  Tensor constant(const Saved& saved) const { return Tensor(saved.get(*this)); }
  /// In the type of the sums: 16 bits would be too few.
  Tensor squared(const Tensor& values) const { return values.to(squares_.dtype()).pow(2); }
  /// Adds the squares of a parameter's gradients, one for each sample: [batch, ...].
  void add(const Tensor& gradients) { add_squares(squared(gradients).reshape({batch(), -1}).sum({1})); }
  /// Adds squares [batch].
  void add_squares(const Tensor& squares) { squares_.add_(squares.to(squares_.device())); }
  /// Adds the squares of gradient_of(b), the gradient by sample b, for which only one gradient is in memory at a time.
  template <class GradientOf>
  void add_each(GradientOf&& gradient_of) {
    std::vector<Tensor> squares;
    for (std::int64_t b = 0; b < batch(); ++b) {
      squares.push_back(squared(gradient_of(b)).sum());
    }
    if (!squares.empty()) {
      add_squares(stacked(squares));
    }
  }

 private:
  static Tensor stacked(const std::vector<Tensor>& numbers);

  Node& node_;
  const Tensor& gradient_;
  std::vector<bool> wanted_;
  Tensor& squares_;
};

/// A closure with a body for SampleSquares, besides those for both kinds of gradients.
template <class Closure>
struct BySample : Closure {
  static constexpr bool kHasSamples = true;
};
template <class Closure>
BySample(Closure) -> BySample<Closure>;

/// Whether a closure is called to add up squares.
template <class AnyGradients>
inline constexpr bool is_samples = std::is_same_v<std::remove_cvref_t<AnyGradients>, SampleSquares>;

}  // namespace tandem::inline v0::autograd
