#include <tandem/nn/module.h>

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/nn/module_state.h>

namespace tandem::inline v0::nn {

using detail::join;
using detail::ModuleState;

std::string detail::short_type_name(const std::type_info& type) {
  int status = 0;
  char* readable = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? readable : type.name();
  std::free(readable);
  name = name.substr(0, name.find('<'));
  const auto colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

namespace {

// A module's path is a prefix of the names below it, so a new parent changes them all.
void refresh_paths(ModuleState& state) {
  for (auto& [name, tensor] : state.parameters) {
    autograd::set_parameter_name(tensor, join(state.path, name));
  }
  for (auto& [name, child] : state.children) {
    child->path = join(state.path, name);
    refresh_paths(*child);
  }
}

void check_name(const ModuleState& state, const std::string& name) {
  check<ConfigError>(!name.empty() && name.find('.') == std::string::npos,
                     "{}: '{}' is no name for a member: it must not be empty nor hold a dot", state.type, name);
  const auto taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& entry) { return entry.first == name; });
  };
  check<ConfigError>(!taken(state.parameters) && !taken(state.buffers) && !taken(state.children),
                     "{}: the name '{}' is taken already [TDM-E309]", state.type, name);
}

// Throws ConfigError for a value that no slot can hold.
void check_value(const ModuleState& state, const char* what, const std::string& name, const Tensor& value) {
  check<ConfigError>(value.defined(), "{}: {} '{}' is undefined [TDM-E311]", state.type, what, name);
  check<ConfigError>(value.is_leaf(),
                     "{}: {} '{}' is the result of an op, expected a plain tensor; call detach() first [TDM-E311]",
                     state.type, what, name);
}

// Whether any parameter of the tree requires a gradient.
bool trains(const ModuleState& state) {
  bool any = false;
  detail::for_each_slot(state, "",
                        [&](const std::string&, const Tensor& slot, bool) { any = any || slot.requires_grad(); });
  return any;
}

const ModuleState& root_of(const ModuleState& state) {
  const ModuleState* root = &state;
  while (root->parent != nullptr) {
    root = root->parent;
  }
  return *root;
}

}  // namespace

ModuleBase::ModuleBase(const std::type_info& type) : ModuleRef(std::make_shared<ModuleState>()) {
  state_->type = detail::short_type_name(type);
  state_->cpp_type = &type;
}
ModuleBase::ModuleBase(ModuleBase&&) noexcept = default;
ModuleBase& ModuleBase::operator=(ModuleBase&& other) {
  // Assigning a whole module assigns its base first. The old state is released here, so the members that follow have no
  // parent any more.
  if (state_ != nullptr && state_->parent != nullptr && state_ != other.state_) {
    ModuleState& added = other.live_state();
    check<ConfigError>(added.parent == nullptr,
                       "{} '{}' cannot be replaced by '{}', which is a child of another module [TDM-E310]",
                       state_->type, state_->path, added.path);
    check<ConfigError>(&root_of(*state_) != &added, "{} '{}' cannot be replaced by a module around it", state_->type,
                       state_->path);
    ModuleState* parent = std::exchange(state_->parent, nullptr);
    const auto place = std::find_if(parent->children.begin(), parent->children.end(),
                                    [&](const auto& child) { return child.second == state_; });
    place->second = other.state_;
    added.parent = parent;
    added.path = state_->path;
    refresh_paths(added);
    for (ModuleState* around = parent; around != nullptr && added.has_parameters; around = around->parent) {
      around->has_parameters = true;
    }
  }
  if (state_ != nullptr && state_ != other.state_) {  // the module is overwritten next, member by member
    detail::for_each_module(*state_, [](ModuleState& state) { state.release_slots(); });
  }
  state_ = std::move(other.state_);
  return *this;
}
ModuleBase::~ModuleBase() = default;

namespace {
std::atomic<std::uint64_t> registered{0};
}  // namespace

std::uint64_t detail::structure_version() noexcept { return registered.load(std::memory_order_relaxed); }

Parameter ModuleBase::parameter(const std::string& name, Tensor value) {
  check_name(live_state(), name);
  check_value(live_state(), "parameter", name, value);
  check<DTypeError>(is_floating_point(value.dtype()),
                    "{}: parameter '{}' is {} {}, only floating point has gradients; convert with .to(DType::f32), or "
                    "make it a buffer() [TDM-E311]",
                    live_state().type, name, value.dtype(), value.shape());
  Parameter made(std::move(value));
  ++made.unresolved()->registrations;
  made.raw().storage->count_as(core::MemoryUse::parameters);
  live_state().parameters.emplace_back(name, made);
  ++registered;
  for (ModuleState* state = state_.get(); state != nullptr; state = state->parent) {
    state->has_parameters = true;
  }
  autograd::set_parameter_name(made, join(live_state().path, name));
  return made;
}

Buffer ModuleBase::buffer(const std::string& name, Tensor value) {
  check_name(live_state(), name);
  check_value(live_state(), "buffer", name, value);
  Buffer made(std::move(value));
  ++made.unresolved()->registrations;
  live_state().buffers.emplace_back(name, made);
  ++registered;
  return made;
}

void ModuleBase::adopt(const std::string& name, ModuleBase& module) {
  ModuleState& parent = live_state();
  ModuleState& added = module.live_state();
  check_name(parent, name);
  check<ConfigError>(added.parent == nullptr, "{}: child '{}' belongs to another module already [TDM-E310]",
                     parent.type, name);
  for (const ModuleState* around = &parent; around != nullptr; around = around->parent) {
    check<ConfigError>(around != &added, "{}: child '{}' is this module itself, or one around it", parent.type, name);
  }
  added.parent = &parent;
  added.path = join(parent.path, name);
  refresh_paths(added);
  parent.children.emplace_back(name, module.state_);
  ++registered;
  for (ModuleState* around = &parent; around != nullptr && added.has_parameters; around = around->parent) {
    around->has_parameters = true;
  }
}

void ModuleBase::tie(Parameter& slot, const Parameter& other) {
  check<ShapeError>(slot.shape() == other.shape() && slot.dtype() == other.dtype(), "{}: tie: {} {} and {} {} differ",
                    live_state().type, slot.dtype(), slot.shape(), other.dtype(), other.shape());
  bool found = false;
  detail::for_each_module(live_state(), [&](ModuleState& state) {
    for (auto& [name, tensor] : state.parameters) {
      if (tensor.unresolved() == slot.unresolved()) {
        --tensor.unresolved()->registrations;
        tensor = other;
        ++tensor.unresolved()->registrations;
        found = true;
      }
    }
  });
  check<ConfigError>(found, "{}: tie: the first parameter is not one of this module", live_state().type);
  tandem::detail::note_step_change(*slot.unresolved()->view.storage);
  static_cast<Tensor&>(slot) = other;
}

void ModuleBase::describe(std::string options) { live_state().description = std::move(options); }

bool ModuleBase::is_training() const {
  const ModuleState& state = live_state();
  const core::ModuleScope* scope = core::thread_state().scope;
  const bool called_inside = scope != nullptr && scope->path == state.path.c_str() && scope->parent != nullptr &&
                             scope->parent->tree != scope->tree;
  check<ConfigError>(!called_inside || state.parent != nullptr,
                     "{}a {} is called here but is no child of any module, so train() and eval() do not reach it. "
                     "Register it: child(\"name\", nn::{}(...)) [TDM-E308]",
                     core::MessagePrefix{""}, state.type, state.type);
  return state.training.get();
}

void ModuleBase::check_registered() const {
  const core::ModuleScope* scope = core::thread_state().scope;
  const ModuleState& state = live_state();
  if (scope == nullptr || !state.has_parameters || !core::thread_state().grad_enabled) {
    return;
  }
  // Looking at `parent` is not enough: the layer called may belong to a module that is itself registered nowhere.
  const ModuleState& root = root_of(state);
  if (scope->tree == &root || !trains(state)) [[likely]] {
    return;
  }
  check<ConfigError>(&state != &root,
                     "{}a {} with parameters is called here but is no child of any module, so it would not be trained. "
                     "Register it: child(\"name\", nn::{}(...)) [TDM-E308]",
                     core::MessagePrefix{""}, state.type, state.type);
  fail<ConfigError>(
      "{}{} '{}' of a {} is called here, but that {} is no child of any module, so it would not be trained. "
      "Register it: child(\"name\", {}(...)), and call it as a function [TDM-E308]",
      core::MessagePrefix{""}, state.type, state.path, root.type, root.type, root.type);
}

ModuleBase::CallScope::CallScope(const ModuleBase& module)
    : scope_{module.live_state().path.c_str(), module.live_state().type.c_str(), core::thread_state().scope,
             &root_of(*module.state_)} {
  module.check_registered();
  core::thread_state().scope = &scope_;
}

}  // namespace tandem::inline v0::nn
