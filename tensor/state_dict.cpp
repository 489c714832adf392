#include <tandem/tensor/state_dict.h>

#include <algorithm>

#include <tandem/core/check.h>

namespace tandem::inline v0 {

void StateDict::set(std::string name, Tensor value) {
  for (Entry& entry : entries_) {
    if (entry.first == name) {
      entry.second = std::move(value);
      return;
    }
  }
  entries_.emplace_back(std::move(name), std::move(value));
}

const Tensor* StateDict::find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.first == name; });
  return found == entries_.end() ? nullptr : &found->second;
}

const Tensor& StateDict::at(std::string_view name) const {
  const Tensor* found = find(name);
  check<ConfigError>(found != nullptr, "state dict: there is no '{}'", name);
  return *found;
}

bool StateDict::erase(std::string_view name) {
  return std::erase_if(entries_, [&](const Entry& entry) { return entry.first == name; }) > 0;
}

StateDict StateDict::clone() const {
  StateDict copy;
  for (const auto& [name, value] : entries_) {
    copy.set(name, value.defined() ? value.detach().clone() : Tensor());
  }
  return copy;
}

}  // namespace tandem::inline v0
