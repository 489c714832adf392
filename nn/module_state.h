#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tandem/autograd/batch_exchange.h>
#include <tandem/nn/module_ref.h>
#include <tandem/tensor/recorder.h>

// Internal: the nodes of a tree of modules.

namespace tandem::inline v0::nn::detail {

struct ModuleState;

/// A BatchNorm's part of its module's state.
struct BatchNormState {
  double eps;
  std::shared_ptr<autograd::BatchExchange> exchange = nullptr;  // with those who have parts of each batch; may be null
  // The norm's tensors as they were when it was folded into the layer before it: storage and version. Empty if it was
  // not.
  std::vector<std::pair<const void*, std::uint32_t>> folded = {};
  int folded_dims = 0;  // of the layer's outputs
};

/// A Linear's or convolution's part of its module's state.
struct ProductState {
  int dims;                              // of outputs whose second dimension counts the weight's outputs
  std::weak_ptr<ModuleState> norm = {};  // the norm that is folded into this layer, if that gives the layer a bias
};

/// The part of a module that stays in place when the C++ object moves.
struct ModuleState {
  std::string type;
  const std::type_info* cpp_type = nullptr;
  std::string path;
  std::string description;  // its options, as they are printed
  ModuleState* parent = nullptr;
  tandem::detail::WatchedFlag training{true};
  bool has_parameters = false;  // in this module or below
  NamedTensors parameters;
  NamedTensors buffers;
  std::vector<std::pair<std::string, std::shared_ptr<ModuleState>>> children;
  std::unique_ptr<BatchNormState> batch_norm;
  std::unique_ptr<ProductState> product;

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

/// The state behind a handle.
ModuleState& state_of(const ModuleRef& module);

/// Whether the BatchNorm is part of the layer before it: its tensors have not changed since, and none of them records.
bool is_folded(const ModuleState& norm);
/// The bias of a norm that is folded into the layer, else `own`.
const Tensor& folded_bias(const ModuleState& layer, const Tensor& own);
/// The bias of a Linear or convolution, which may be that of the norm that is folded into it.
inline const Tensor& bias_of(const ModuleState& layer, const Tensor& own) {
  return layer.product->norm.expired() ? own : folded_bias(layer, own);
}

/// Parameters (or buffers) with their names, each once.
NamedTensors unique_slots(const ModuleState& state, bool parameters, bool recurse = true);

}  // namespace tandem::inline v0::nn::detail
