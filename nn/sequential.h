#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tandem/nn/activation.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/module.h>
#include <tandem/nn/module_list.h>

namespace tandem::inline v0::nn {

/// A module that makes one tensor of one tensor.
template <class M>
concept Layer = OwnModule<M> && requires(const M& module, const Tensor& x) {
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
    add(std::to_string(size()), std::move(layer));
  }

  /// One more layer with a name of its own: `nn::Sequential().add("fc1", nn::Linear(4, 8)).add("act", nn::ReLU())`.
  template <Layer M>
  Sequential& add(const std::string& name, M layer) & {
    adopt(name, layer);
    steps_.push_back(std::make_unique<Held<M>>(std::move(layer)));
    return *this;
  }
  template <Layer M>
  Sequential&& add(const std::string& name, M layer) && {
    return std::move(add(name, std::move(layer)));
  }

  /// Layer number `index`, which is an M: `net.get<nn::Linear>(0).weight`. Throws ConfigError when there are not so
  /// many, or when it is of another type.
  template <Layer M>
  M& get(std::size_t index) {
    return held<M>(index).module;
  }
  template <Layer M>
  const M& get(std::size_t index) const {
    return held<M>(index).module;
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

  template <class M>
  Held<M>& held(std::size_t index) const {
    auto* found = dynamic_cast<Held<M>*>(steps_[detail::checked_index(*this, index, size())].get());
    if (found == nullptr) {
      throw_other_type(index, typeid(M));
    }
    return *found;
  }
  [[noreturn]] void throw_other_type(std::size_t index, const std::type_info& expected) const;

  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace tandem::inline v0::nn
