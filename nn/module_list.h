#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/nn/module.h>

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
  template <std::same_as<M>... Modules>
  explicit ModuleList(Modules... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// Appends a module and returns the element.
  M& push_back(M module) {
    static_assert(OwnModule<M>, "a module derives from nn::Module of itself: struct Net : nn::Module<Net>");
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

}  // namespace tandem::inline v0::nn
