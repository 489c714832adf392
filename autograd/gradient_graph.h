#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/autograd/saved.h>
#include <tandem/tensor/tensor.h>

// Internal: how an op computes gradients that have gradients themselves.

namespace tandem::inline v0::autograd {

/// A body that computes with tensors sees its pass through this class, as kernels do through Gradients. An op whose
/// closure takes `auto&` has two bodies: `if constexpr (is_graph<decltype(g)>)` begins the one of a pass with
/// create_graph. Both must compute the same.
class GradientGraph {
 public:
  /// The gradient of an input.
  struct Input {
    Tensor gradient{};
    bool wanted = false;
    bool is_zero = false;  // while `gradient` is undefined
  };

  /// The gradients of the wanted inputs are added to `inputs`, which has one for each edge of `node`.
  GradientGraph(Node& node, const std::vector<Tensor>& outputs, std::vector<Input>& inputs) noexcept
      : node_(node), outputs_(outputs), inputs_(inputs) {}

  const char* op() const noexcept { return node_.op(); }
  /// The gradient of result `i`; undefined if nothing depended on it.
  const Tensor& output(std::uint32_t i = 0) const { return outputs_[i]; }
  bool wants(std::uint32_t i) const noexcept { return inputs_[i].wanted; }
  const Shape& input_sizes(std::uint32_t i) const noexcept { return target(i).sizes; }
  DType input_dtype(std::uint32_t i) const noexcept { return target(i).dtype; }
  /// Input `i`, whose elements were saved, with the history that it had.
  Tensor input(std::uint32_t i, const Saved& saved) const;
  /// Result `i`, whose elements were saved, with this op as its history.
  Tensor result(const Saved& saved, std::uint32_t i = 0) const;
  /// As input(), through a node of its own: for give_by().
  Tensor alias(std::uint32_t i, const Saved& saved) const;
  /// The elements that were saved, as constants.
  Tensor constant(const Saved& saved) const { return Tensor(saved.get(*this)); }
  /// Adds to the gradient of input `i`. What the op has broadcast is summed up.
  void give(std::uint32_t i, const Tensor& gradient);
  /// The gradient of input `i` is 0. What lies before it is not computed either.
  void give_zero(std::uint32_t i) noexcept { inputs_[i].is_zero = true; }
  /// Gives the gradients of these inputs by a formula: `result` is what the op computes, by ops that have second
  /// derivatives, from `inputs`, each an alias(). Weights other than these may take part.
  void give_by(const Tensor& result, const std::vector<std::pair<std::uint32_t, Tensor>>& inputs);

 private:
  detail::View as_input(std::uint32_t i, const Saved& saved) const;
  Output& target(std::uint32_t i) const noexcept { return node_.edge(i).node->output(node_.edge(i).output); }

  Node& node_;
  const std::vector<Tensor>& outputs_;
  std::vector<Input>& inputs_;
};

/// Whether a closure is called to build a graph.
template <class AnyGradients>
inline constexpr bool is_graph = std::is_same_v<std::remove_cvref_t<AnyGradients>, GradientGraph>;

/// `tensor` summed up over what a broadcast from `sizes` has repeated.
Tensor sum_to_size(const Tensor& tensor, const Shape& sizes);

}  // namespace tandem::inline v0::autograd
