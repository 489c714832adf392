#pragma once

#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tandem/nn/module_ref.h>
#include <tandem/tensor/recorder.h>

// Internal: the nodes of a tree of modules.

namespace tandem::inline v0::nn::detail {

/// The part of a module that stays in place when the C++ object moves.
struct ModuleState {
  std::string type;
  std::string path;
  std::string description;  // its options, as they are printed
  ModuleState* parent = nullptr;
  tandem::detail::WatchedFlag training{true};
  bool has_parameters = false;  // in this module or below
  NamedTensors parameters;
  NamedTensors buffers;
  std::vector<std::pair<std::string, std::shared_ptr<ModuleState>>> children;

  ModuleState() = default;
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;
  ~ModuleState();

  /// Unregisters this module's own parameters and buffers.
  void release_slots() noexcept;
};

/// "tandem::v0::nn::Linear" gives "Linear"; template arguments are dropped.
std::string short_type_name(const std::type_info& type);

/// "encoder" and "0" give "encoder.0"; "" and "0" give "0".
std::string join(const std::string& path, const std::string& name);

/// Calls visit(full name, slot, is_parameter) in state-dict order: own parameters, own buffers, then (`recurse`)
/// children.
template <class Visit>
void for_each_slot(const ModuleState& state, const std::string& prefix, Visit&& visit, bool recurse = true) {
  for (const auto& [name, tensor] : state.parameters) {
    visit(join(prefix, name), tensor, true);
  }
  for (const auto& [name, tensor] : state.buffers) {
    visit(join(prefix, name), tensor, false);
  }
  if (recurse) {
    for (const auto& [name, child] : state.children) {
      for_each_slot(*child, join(prefix, name), visit);
    }
  }
}

/// Calls visit(module) for this module and all below, each before its children.
template <class Visit>
void for_each_module(ModuleState& state, Visit&& visit) {
  visit(state);
  for (auto& [name, child] : state.children) {
    for_each_module(*child, visit);
  }
}

/// Parameters (or buffers) with their names, each once.
NamedTensors unique_slots(const ModuleState& state, bool parameters, bool recurse = true);

}  // namespace tandem::inline v0::nn::detail
