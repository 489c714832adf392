#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tandem/nn/conv.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/module.h>
#include <tandem/nn/stateless.h>

// Modules that hold other modules: ModuleList and Sequential.

namespace tandem::inline v0::nn {

namespace detail {
/// Returns `index`. Throws ConfigError unless it is below `size`, the number of modules in `list`.
TANDEM_API std::size_t checked_index(const ModuleRef& list, std::size_t index, std::size_t size);
}  // namespace detail

/// Modules of one type M, which the model calls as it likes. Their names are "0", "1", ... in the order of addition:
/// `nn::ModuleList<nn::Linear> layers = child("layers", nn::ModuleList<nn::Linear>());`, then
/// `layers.push_back(nn::Linear(3, 4))` and `for (const auto& layer : layers) { x = layer(x); }`. Elements keep their
/// addresses when the list grows or is moved. For layers of different types see Sequential.
template <std::derived_from<ModuleBase> M>
class ModuleList : public Module<ModuleList<M>> {
  using Held = std::vector<std::unique_ptr<M>>;

  template <class Element>
  class Iterator {
   public:
    using iterator_concept = std::random_access_iterator_tag;
    using value_type = M;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    explicit Iterator(typename Held::const_iterator at) : at_(at) {}
    Element& operator*() const { return **at_; }
    Element* operator->() const { return at_->get(); }
    Element& operator[](difference_type i) const { return *at_[i]; }
    Iterator& operator++() { return *this += 1; }
    Iterator& operator--() { return *this += -1; }
    Iterator operator++(int) { return Iterator(at_++); }
    Iterator operator--(int) { return Iterator(at_--); }
    Iterator& operator+=(difference_type i) {
      at_ += i;
      return *this;
    }
    Iterator& operator-=(difference_type i) { return *this += -i; }
    friend Iterator operator+(Iterator a, difference_type i) { return a += i; }
    friend Iterator operator+(difference_type i, Iterator a) { return a += i; }
    friend Iterator operator-(Iterator a, difference_type i) { return a -= i; }
    friend difference_type operator-(const Iterator& a, const Iterator& b) { return a.at_ - b.at_; }
    friend bool operator==(const Iterator&, const Iterator&) = default;
    friend auto operator<=>(const Iterator&, const Iterator&) = default;

   private:
    typename Held::const_iterator at_;
  };

 public:
  /// `nn::ModuleList<nn::Linear>(nn::Linear(2, 3), nn::Linear(3, 1))`; may be empty.
  template <class... Modules>
    requires(std::same_as<std::remove_cvref_t<Modules>, M> && ...)
  explicit ModuleList(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }

  /// Appends a module and returns the element.
  template <class Module = M>
    requires std::same_as<std::remove_cvref_t<Module>, M>
  M& push_back(Module&& module) {
    static_assert(OwnModule<M>, "a module derives from nn::Module of itself: struct Net : nn::Module<Net>");
    static_assert(std::same_as<Module, M>, "a module is moved in, not copied: layers.push_back(std::move(layer))");
    auto held = std::make_unique<M>(std::move(module));
    this->adopt(std::to_string(size()), *held);
    modules_.push_back(std::move(held));
    return *modules_.back();
  }
  /// push_back(M(args...)).
  template <class... Args>
  M& emplace_back(Args&&... args) {
    return push_back(M(std::forward<Args>(args)...));
  }

  /// Number of modules.
  std::size_t size() const noexcept { return modules_.size(); }
  /// Whether the list is empty.
  bool empty() const noexcept { return modules_.empty(); }
  /// The module at `index`. Throws ConfigError when the list is too short.
  M& operator[](std::size_t index) { return *modules_[detail::checked_index(*this, index, size())]; }
  const M& operator[](std::size_t index) const { return *modules_[detail::checked_index(*this, index, size())]; }

  /// The modules in order, as M&.
  auto begin() noexcept { return Iterator<M>(modules_.cbegin()); }
  /// One past the last module.
  auto end() noexcept { return Iterator<M>(modules_.cend()); }
  /// The modules in order, as const M&.
  auto begin() const noexcept { return Iterator<const M>(modules_.cbegin()); }
  /// One past the last module.
  auto end() const noexcept { return Iterator<const M>(modules_.cend()); }

 private:
  Held modules_;
};

/// A module that makes one tensor of one tensor.
template <class M>
concept Layer = OwnModule<M> && requires(const M& module, const Tensor& x) {
  { module(x) } -> std::convertible_to<Tensor>;
};

class Sequential;

namespace detail {
/// Whether the only one of these types is a Sequential, or derived from it.
template <class... Layers>
inline constexpr bool is_one_sequential = sizeof...(Layers) == 1 && (std::derived_from<Layers, Sequential> && ...);
}  // namespace detail

/// Layers one after the other, named "0", "1", ... A Linear, Conv1d or Conv2d followed by a ReLU runs as one fused op.
/// On CPUs its result is the same to the bit.
class TANDEM_API Sequential : public Module<Sequential> {
 public:
  /// One Sequential alone is moved instead, also in the constructors of a derived class.
  template <class... Layers>
    requires(Layer<std::remove_cvref_t<Layers>> && ...) && (!detail::is_one_sequential<std::remove_cvref_t<Layers>...>)
  explicit Sequential(Layers&&... layers) {
    (push_back(std::forward<Layers>(layers)), ...);
  }

  /// One more layer at the end.
  template <class M>
    requires Layer<std::remove_cvref_t<M>>
  void push_back(M&& layer) {
    add(std::to_string(size()), std::forward<M>(layer));
  }

  /// One more layer with a name of its own: `nn::Sequential().add("fc1", nn::Linear(4, 8)).add("act", nn::ReLU())`.
  template <class M>
    requires Layer<std::remove_cvref_t<M>>
  Sequential& add(const std::string& name, M&& layer) & {
    static_assert(std::same_as<M, std::remove_cvref_t<M>>,
                  "a layer is moved in, not copied: nn::Sequential(std::move(fc1), nn::ReLU())");
    adopt(name, layer);
    steps_.push_back(std::make_unique<Held<std::remove_cvref_t<M>>>(std::move(layer)));
    return *this;
  }
  template <class M>
    requires Layer<std::remove_cvref_t<M>>
  Sequential&& add(const std::string& name, M&& layer) && {
    return std::move(add(name, std::forward<M>(layer)));
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
  Tensor forward(const Tensor& x) const { return forward(x, 0, size()); }
  /// Layers `first` to `last` - 1 alone. Throws ConfigError unless first <= last <= size().
  Tensor forward(const Tensor& x, std::size_t first, std::size_t last) const;

 private:
  struct Step {
    virtual ~Step() = default;
    virtual Tensor call(const Tensor& x) const = 0;
    Tensor (*call_relu)(const Step& step, const Tensor& x) = nullptr;  // null unless it takes a ReLU
    bool is_relu = false;
  };
  template <class M>
  struct Held final : Step {
    explicit Held(M m) : module(std::move(m)) {
      if constexpr (std::same_as<M, Linear> || std::same_as<M, Conv1d> || std::same_as<M, Conv2d>) {
        call_relu = [](const Step& step, const Tensor& x) {
          const M& layer = static_cast<const Held&>(step).module;
          const CallScope scope(layer);
          return layer.forward_relu(x);
        };
      }
      is_relu = std::same_as<M, ReLU>;
    }
    Tensor call(const Tensor& x) const override { return module(x); }
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
