#include <tandem/checkpoint/module_tensors.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace tandem::inline v0::checkpoint {

namespace {

// Equal for two names of one tensor. Empty tensors share nothing.
std::pair<const void*, std::int64_t> place_of(const Tensor& tensor) {
  return tensor.numel() == 0 ? std::pair<const void*, std::int64_t>(tensor.get(), -1)
                             : std::pair<const void*, std::int64_t>(tensor.raw().storage.get(), tensor.raw().offset);
}

}  // namespace

StateDict state_of(const nn::ModuleRef& module) {
  std::map<std::string, Tensor> by_name;
  for (const auto& [name, value] : module.state_dict()) {
    by_name.emplace(name, value);
  }
  std::set<std::pair<const void*, std::int64_t>> seen;
  StateDict state;
  for (const auto& [name, value] : by_name) {
    if (seen.insert(place_of(value)).second) {
      state.set(name, value);
    }
  }
  return state;
}

nn::LoadReport load_into(nn::ModuleRef module, StateDict state, bool strict) {
  // Gives a tensor of the module the value that the file has under another of its names.
  std::map<std::pair<const void*, std::int64_t>, Tensor> values;
  const StateDict own = module.state_dict();
  for (const auto& [name, value] : own) {
    if (const Tensor* loaded = state.find(name)) {
      values.emplace(place_of(value), *loaded);
    }
  }
  for (const auto& [name, value] : own) {
    if (const auto known = values.find(place_of(value)); known != values.end() && !state.contains(name)) {
      state.set(name, known->second);
    }
  }
  return module.load_state_dict(state, strict);
}

}  // namespace tandem::inline v0::checkpoint
