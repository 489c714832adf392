#include <tandem/nn/module.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_set>

#include <tandem/autograd/node.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/suggest.h>

namespace tandem::inline v0::nn {

namespace detail {

/// The part of a module that stays in place when the C++ object moves, and that the tree is made of.
struct ModuleState {
  std::string type;
  std::string path;
  ModuleState* parent = nullptr;
  bool training = true;
  bool has_parameters = false;  // here or below
  NamedTensors parameters;
  NamedTensors buffers;
  std::vector<std::pair<std::string, std::shared_ptr<ModuleState>>> children;

  ModuleState() = default;
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;
  ~ModuleState() {
    for (auto& [name, state] : children) {
      state->parent = nullptr;
    }
    for (const auto* list : {&parameters, &buffers}) {
      for (const auto& [name, tensor] : *list) {
        --tensor.unresolved()->registrations;
      }
    }
  }
};

}  // namespace detail

namespace {

using detail::ModuleState;

// "tandem::v0::nn::Linear" -> "Linear"; template arguments are dropped.
std::string short_type_name(const std::type_info& type) {
  int status = 0;
  char* readable = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? readable : type.name();
  std::free(readable);
  name = name.substr(0, name.find('<'));
  const auto colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

std::string join(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

// Names are prefixes of what is below: a new parent changes them all.
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
                     "{}: the name '{}' is taken already", state.type, name);
}

// Calls visit(full name, slot, is_parameter) in state-dict order: own parameters, own buffers, then children.
template <class Visit>
void for_each_slot(const ModuleState& state, const std::string& prefix, Visit&& visit) {
  for (const auto& [name, tensor] : state.parameters) {
    visit(join(prefix, name), tensor, true);
  }
  for (const auto& [name, tensor] : state.buffers) {
    visit(join(prefix, name), tensor, false);
  }
  for (const auto& [name, child] : state.children) {
    for_each_slot(*child, join(prefix, name), visit);
  }
}

// Whether some parameter of the tree asks for a gradient.
bool trains(const ModuleState& state) {
  bool any = false;
  for_each_slot(state, "", [&](const std::string&, const Tensor& slot, bool) { any = any || slot.requires_grad(); });
  return any;
}

NamedTensors unique_slots(const ModuleState& state, bool parameters) {
  NamedTensors found;
  std::unordered_set<const void*> seen;
  for_each_slot(state, "", [&](std::string name, const Tensor& slot, bool is_parameter) {
    if (is_parameter == parameters && seen.insert(slot.unresolved()).second) {
      found.emplace_back(std::move(name), slot);
    }
  });
  return found;
}

std::vector<Tensor> without_names(const NamedTensors& named) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : named) {
    tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace

ModuleBase::ModuleBase(const std::type_info& type) : state_(std::make_shared<ModuleState>()) {
  state_->type = short_type_name(type);
}
ModuleBase::ModuleBase(ModuleBase&&) noexcept = default;
ModuleBase& ModuleBase::operator=(ModuleBase&& other) {
  // When a whole module is assigned its base comes first, and with its old state its members lose their parent.
  check<ConfigError>(state_ == nullptr || state_->parent == nullptr || state_ == other.state_,
                     "{} '{}' is a registered child and cannot be assigned: its parent would go on with the old one",
                     state_ != nullptr ? state_->type : "", state_ != nullptr ? state_->path : "");
  state_ = std::move(other.state_);
  return *this;
}
ModuleBase::~ModuleBase() = default;

detail::ModuleState& ModuleBase::live_state() const {
  check<ConfigError>(state_ != nullptr, "this module was moved from: use the one that it was moved to");
  return *state_;
}

const std::string& ModuleBase::type_name() const { return live_state().type; }
const std::string& ModuleBase::path() const { return live_state().path; }

Parameter ModuleBase::parameter(const std::string& name, Tensor value) {
  check_name(live_state(), name);
  Parameter made(std::move(value));
  ++made.unresolved()->registrations;
  live_state().parameters.emplace_back(name, made);
  for (ModuleState* state = state_.get(); state != nullptr; state = state->parent) {
    state->has_parameters = true;
  }
  autograd::set_parameter_name(made, join(live_state().path, name));
  return made;
}

Buffer ModuleBase::buffer(const std::string& name, Tensor value) {
  check_name(live_state(), name);
  Buffer made(std::move(value));
  ++made.unresolved()->registrations;
  live_state().buffers.emplace_back(name, made);
  return made;
}

void ModuleBase::adopt(const std::string& name, ModuleBase& module) {
  ModuleState& parent = live_state();
  ModuleState& added = module.live_state();
  check_name(parent, name);
  check<ConfigError>(added.parent == nullptr, "{}: child '{}' belongs to another module already", parent.type, name);
  for (const ModuleState* around = &parent; around != nullptr; around = around->parent) {
    check<ConfigError>(around != &added, "{}: child '{}' is this module itself, or one around it", parent.type, name);
  }
  added.parent = &parent;
  added.path = join(parent.path, name);
  refresh_paths(added);
  parent.children.emplace_back(name, module.state_);
  for (ModuleState* around = &parent; around != nullptr && added.has_parameters; around = around->parent) {
    around->has_parameters = true;
  }
}

void ModuleBase::tie(Parameter& slot, const Parameter& other) {
  check<ShapeError>(slot.shape() == other.shape() && slot.dtype() == other.dtype(), "{}: tie: {} {} and {} {} differ",
                    live_state().type, slot.dtype(), slot.shape(), other.dtype(), other.shape());
  bool found = false;
  const auto replace = [&](const auto& self, ModuleState& state) -> void {
    for (auto& [name, tensor] : state.parameters) {
      if (tensor.unresolved() == slot.unresolved()) {
        --tensor.unresolved()->registrations;
        tensor = other;
        ++tensor.unresolved()->registrations;
        found = true;
      }
    }
    for (auto& [name, child] : state.children) {
      self(self, *child);
    }
  };
  replace(replace, live_state());
  check<ConfigError>(found, "{}: tie: the first parameter is not one of this module", live_state().type);
  static_cast<Tensor&>(slot) = other;
}

NamedTensors ModuleBase::named_parameters() const { return unique_slots(live_state(), true); }
NamedTensors ModuleBase::named_buffers() const { return unique_slots(live_state(), false); }
std::vector<Tensor> ModuleBase::parameters() const { return without_names(named_parameters()); }
std::vector<Tensor> ModuleBase::buffers() const { return without_names(named_buffers()); }

StateDict ModuleBase::state_dict() const {
  StateDict state;
  for_each_slot(live_state(), "",
                [&](std::string name, const Tensor& slot, bool) { state.set(std::move(name), slot.detach()); });
  return state;
}

LoadReport ModuleBase::load_state_dict(const StateDict& state, bool strict) {
  LoadReport report;
  std::vector<std::string> names;
  std::vector<std::string> problems;
  std::vector<std::pair<Tensor, const Tensor*>> copies;
  for_each_slot(live_state(), "", [&](std::string name, const Tensor& slot, bool) {
    names.push_back(name);
    const Tensor* value = state.find(name);
    if (value == nullptr) {
      report.missing.push_back(std::move(name));
      return;
    }
    if (!value->defined()) {
      problems.push_back(fmt::format("value of '{}': the state has an undefined tensor", name));
    } else if (!(value->shape() == slot.shape())) {
      problems.push_back(
          fmt::format("shape of '{}': the module has {}, the state {}", name, slot.shape(), value->shape()));
    } else if (strict && value->dtype() != slot.dtype()) {
      problems.push_back(fmt::format("dtype of '{}': the module has {}, the state {}", name, tandem::name(slot.dtype()),
                                     tandem::name(value->dtype())));
    }
    copies.emplace_back(slot, value);
  });
  for (const auto& [name, value] : state) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      report.unexpected.push_back(name);
    }
  }
  if (strict) {
    for (const std::string& name : report.missing) {
      problems.push_back(fmt::format("missing: '{}'", name));
    }
    for (const std::string& name : report.unexpected) {
      const std::string near = core::nearest(name, report.missing);
      problems.push_back(
          fmt::format("unexpected: '{}'{}", name, near.empty() ? "" : fmt::format(" (is it '{}'?)", near)));
    }
  } else if (copies.empty() && !names.empty()) {
    problems.push_back(
        fmt::format("none of the {} names in the state is one of this module's, such as '{}'", state.size(), names[0]));
  }
  check<ConfigError>(problems.empty(), "load_state_dict: the state does not fit {}; nothing was loaded\n  {}",
                     live_state().type, fmt::join(problems, "\n  "));
  const NoGradGuard no_grad;
  for (auto& [slot, value] : copies) {
    slot.copy_(*value);
  }
  return report;
}

void ModuleBase::train(bool on) {
  const auto set = [on](const auto& self, ModuleState& state) -> void {
    state.training = on;
    for (auto& [name, child] : state.children) {
      self(self, *child);
    }
  };
  set(set, live_state());
}

bool ModuleBase::is_training() const {
  const ModuleState& state = live_state();
  const core::ModuleScope* scope = core::thread_state().scope;
  const bool called_inside = scope != nullptr && scope->path == state.path.c_str() && scope->parent != nullptr;
  check<ConfigError>(!called_inside || state.parent != nullptr,
                     "{}a {} is called here but is no child of any module, so train() and eval() do not reach it. "
                     "Register it: child(\"name\", nn::{}(...))",
                     core::MessagePrefix{""}, state.type, state.type);
  return state.training;
}

// `wanted(tensor)` is the tensor to take its place; the same one if nothing changes.
template <class Convert>
void ModuleBase::convert(Convert&& wanted) {
  const NoGradGuard no_grad;
  for (const bool parameters : {true, false}) {
    for (auto& [name, slot] : unique_slots(live_state(), parameters)) {
      const Tensor old = slot.detach();
      const Tensor moved = wanted(old);
      if (moved.unresolved() == old.unresolved()) {
        continue;
      }
      const Tensor grad = slot.requires_grad() ? slot.grad() : Tensor();
      autograd::replace_elements(slot, moved);
      if (grad.defined()) {
        autograd::leaf_of(*slot.unresolved())->set_grad(wanted(grad));
      }
    }
  }
}

void ModuleBase::to(Device device) {
  require_available(device);
  convert([&](const Tensor& tensor) { return tensor.to(device); });
}

void ModuleBase::to(DType dtype) {
  check<DTypeError>(is_floating_point(dtype), "{}: to: a module is of floating point, not {}", live_state().type,
                    dtype);
  convert([&](const Tensor& tensor) { return is_floating_point(tensor.dtype()) ? tensor.to(dtype) : tensor; });
}

void ModuleBase::zero_grad() {
  for_each_slot(live_state(), "", [](const std::string&, const Tensor& slot, bool) { slot.zero_grad(); });
}

ModuleBase::CallScope::CallScope(const ModuleBase& module)
    : scope_{module.live_state().path.c_str(), module.live_state().type.c_str(), core::thread_state().scope} {
  const ModuleState& state = *module.state_;  // scope_ was made of it: it is there
  check<ConfigError>(scope_.parent == nullptr || state.parent != nullptr || !state.has_parameters || !trains(state),
                     "{}a {} with parameters is called here but is no child of any module, so it would not be trained. "
                     "Register it: child(\"name\", nn::{}(...))",
                     core::MessagePrefix{""}, state.type, state.type);
  core::thread_state().scope = &scope_;
}

}  // namespace tandem::inline v0::nn
