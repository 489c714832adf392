#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

/// Tensors by name, in the order in which they were added: what modules, optimisers and schedules save. Numbers are
/// tensors without dimensions.
class TANDEM_API StateDict {
 public:
  /// A name and its tensor.
  using Entry = std::pair<std::string, Tensor>;

  /// Adds or replaces.
  void set(std::string name, Tensor value);
  /// Null when there is none.
  const Tensor* find(std::string_view name) const;
  /// Throws ConfigError when there is none.
  const Tensor& at(std::string_view name) const;
  /// Whether there is one.
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Takes it out; false when there is none.
  bool erase(std::string_view name);
  /// The same names with copies of the values: what a model's state was, for later.
  StateDict clone() const;

  /// Number of entries.
  std::size_t size() const noexcept { return entries_.size(); }
  /// The entries in order.
  auto begin() const noexcept { return entries_.begin(); }
  /// Behind the last entry.
  auto end() const noexcept { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace tandem::inline v0
