#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/nn/activation.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// A module that makes one tensor of one tensor.
template <class M>
concept Layer = std::derived_from<M, ModuleBase> && requires(const M& module, const Tensor& x) {
  { module(x) } -> std::convertible_to<Tensor>;
};

/// Layers one after the other, named "0", "1", ... A Linear followed by a ReLU runs as one fused op, with the same
/// result to the bit.
class TANDEM_API Sequential : public Module<Sequential> {
 public:
  template <Layer... Layers>
  explicit Sequential(Layers... layers) {
    (push_back(std::move(layers)), ...);
  }

  /// One more layer at the end.
  template <Layer M>
  void push_back(M layer) {
    adopt(std::to_string(steps_.size()), layer);
    steps_.push_back(std::make_unique<Held<M>>(std::move(layer)));
  }

  /// Number of layers.
  std::size_t size() const noexcept { return steps_.size(); }
  Tensor forward(const Tensor& x) const;

 private:
  struct Step {
    virtual ~Step() = default;
    virtual Tensor call(const Tensor& x) const = 0;
    virtual const Linear* as_linear() const { return nullptr; }
    virtual bool is_relu() const { return false; }
  };
  template <class M>
  struct Held final : Step {
    explicit Held(M m) : module(std::move(m)) {}
    Tensor call(const Tensor& x) const override { return module(x); }
    const Linear* as_linear() const override {
      if constexpr (std::same_as<M, Linear>) {
        return &module;
      }
      return nullptr;
    }
    bool is_relu() const override { return std::same_as<M, ReLU>; }
    M module;
  };

  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace tandem::inline v0::nn
