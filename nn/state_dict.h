#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::nn {

/// Tensors by name, in order of registration.
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

  /// Number of entries.
  std::size_t size() const noexcept { return entries_.size(); }
  /// The entries in order.
  auto begin() const noexcept { return entries_.begin(); }
  /// Behind the last entry.
  auto end() const noexcept { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

/// What a non-strict load left alone.
struct LoadReport {
  std::vector<std::string> missing;     // in the module, not in the state
  std::vector<std::string> unexpected;  // in the state, not in the module
};

}  // namespace tandem::inline v0::nn
