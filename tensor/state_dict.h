#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

/// Tensors by name, in the order of insertion: the saved state of modules, optimisers and schedules. Numbers are stored
/// as tensors without dimensions.
class TANDEM_API StateDict {
 public:
  /// A name and its tensor.
  using Entry = std::pair<std::string, Tensor>;

  StateDict() = default;
  /// Takes entries over, whose names must differ.
  explicit StateDict(std::vector<Entry> entries) noexcept : entries_(std::move(entries)) {}

  /// Adds or replaces an entry.
  void set(std::string name, Tensor value);
  /// The tensor with this name, or null.
  const Tensor* find(std::string_view name) const;
  /// The tensor with this name. Throws ConfigError if the name is missing.
  const Tensor& at(std::string_view name) const;
  /// Whether an entry with this name exists.
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Removes an entry; returns false if the name is missing.
  bool erase(std::string_view name);
  /// A copy with cloned tensors, for example to keep the state of a model for later.
  StateDict clone() const;

  /// Number of entries.
  std::size_t size() const noexcept { return entries_.size(); }
  /// The entries in order.
  auto begin() const noexcept { return entries_.begin(); }
  /// The end of the entries.
  auto end() const noexcept { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace tandem::inline v0
