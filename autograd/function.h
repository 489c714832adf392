#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::autograd {

/// The forward() of a Function leaves here what its backward() needs. Names are those of torch.autograd.Function.
class TANDEM_API FunctionContext {
 public:
  /// Keeps tensors for backward(): inputs, results, or others. Call it once. Only elements are kept, so that saving a
  /// result makes no cycle; a later change in place is an error in the backward pass.
  template <class... Tensors>
  void save(const Tensors&... tensors) {
    kept_ = {tensors...};
  }
  /// In backward(): the tensors of save(), in order: `const auto [x, y] = ctx.saved<2>()`. Throws AutogradError for
  /// another number.
  template <std::size_t N>
  std::array<Tensor, N> saved() const {
    check_count(N);
    std::array<Tensor, N> tensors;
    for (std::size_t i = 0; i < N; ++i) {
      tensors[i] = values_[i];
    }
    return tensors;
  }
  /// This result of forward() has no gradient. Integers have none anyway.
  void mark_non_differentiable(const Tensor& result) { constants_.push_back(result); }
  /// backward() has no derivative itself: grad(create_graph) refuses the function instead of computing something wrong.
  /// Call it in forward().
  void set_once_differentiable() { is_once_differentiable_ = true; }
  /// In backward(): whether the gradient of the function's tensor argument `i` is asked for.
  bool wants(std::size_t i) const { return i < wanted_.size() && wanted_[i]; }

 private:
  friend class FunctionNode;
  friend struct FunctionCall;
  void check_count(std::size_t count) const;

  std::vector<Tensor> kept_;       // until forward() has returned
  std::vector<Tensor> constants_;  // likewise
  std::vector<Tensor> values_;     // during backward()
  std::vector<bool> wanted_;       // likewise
  bool is_once_differentiable_ = false;
};

/// Internal: a call of a Function, without its types.
struct TANDEM_API FunctionCall {
  /// Computes the gradients of the inputs from those of the results.
  using Backward = std::function<std::vector<Tensor>(FunctionContext&, const std::vector<Tensor>&)>;

  /// Gives `results` a history whose gradients `backward` computes, if one of `inputs` requires a gradient.
  static std::vector<Tensor> record(const std::string& name, FunctionContext context, const std::vector<Tensor>& inputs,
                                    const std::vector<Tensor>& results, Backward backward);
  /// The name of a type as the source has it, without namespaces.
  static std::string name_of(const char* type);
};

/// A function with a gradient of its own, as torch.autograd.Function:
///
///     struct Swish : autograd::Function<Swish> {
///       static Tensor forward(Context& context, const Tensor& x) {
///         context.save(x);
///         return x * sigmoid(x);
///       }
///       static Tensor backward(Context& context, const Tensor& grad) {
///         const auto [x] = context.saved<1>();
///         const Tensor s = sigmoid(x);
///         return grad * s * (1 + x * (1 - s));
///       }
///     };
///     Tensor y = Swish::apply(x);
///
/// forward() computes without history and takes tensors, which may be undefined, and other values. It returns a Tensor,
/// a std::array or a std::vector of them. backward() gets a gradient for each result (0 where nothing depended on it),
/// as so many arguments or as one std::vector, and returns one for each tensor among the arguments, in order; undefined
/// where there is none. Written in ops that have gradients, backward() has gradients, too.
///
/// Throws AutogradError, with the function's name, for another number of gradients, and ShapeError, DTypeError or
/// DeviceError for one that does not fit its input.
template <class Derived>
class Function {
 public:
  /// The argument of forward() and backward().
  using Context = FunctionContext;

  /// Calls forward() and records it.
  template <class... Arguments>
  static auto apply(Arguments&&... arguments) {
    Context context;
    std::vector<Tensor> inputs;
    (add(inputs, arguments), ...);
    const auto results = [&] {
      const NoGradGuard no_grad;
      return Derived::forward(context, std::forward<Arguments>(arguments)...);
    }();
    using Results = std::remove_cvref_t<decltype(results)>;
    static const std::string name = FunctionCall::name_of(typeid(Derived).name());
    const std::vector<Tensor> recorded = FunctionCall::record(
        name, std::move(context), inputs, list_of(results),
        [](Context& c, const auto& gradients) { return list_of(backward_of<Results>(c, gradients)); });
    if constexpr (std::is_same_v<Results, Tensor>) {
      return recorded.front();
    } else if constexpr (std::is_same_v<Results, std::vector<Tensor>>) {
      return recorded;
    } else {
      Results same;
      std::copy(recorded.begin(), recorded.end(), same.begin());
      return same;
    }
  }

 private:
  template <class Argument>
  static void add(std::vector<Tensor>& inputs, const Argument& argument) {
    if constexpr (std::is_convertible_v<const Argument&, const Tensor&>) {
      inputs.push_back(argument);
    }
  }

  static std::vector<Tensor> list_of(const Tensor& tensor) { return {tensor}; }
  static std::vector<Tensor> list_of(std::vector<Tensor> tensors) { return tensors; }
  template <std::size_t N>
  static std::vector<Tensor> list_of(const std::array<Tensor, N>& tensors) {
    return {tensors.begin(), tensors.end()};
  }

  template <class Results>
  static auto backward_of(Context& context, const std::vector<Tensor>& gradients) {
    if constexpr (requires { Derived::backward(context, gradients); }) {
      return Derived::backward(context, gradients);
    } else if constexpr (std::is_same_v<Results, Tensor>) {
      return Derived::backward(context, gradients[0]);
    } else {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return Derived::backward(context, gradients[I]...);
      }(std::make_index_sequence<std::tuple_size_v<Results>>());
    }
  }
};

}  // namespace tandem::inline v0::autograd
