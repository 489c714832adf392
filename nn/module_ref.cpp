#include <tandem/nn/module_ref.h>

#include <algorithm>
#include <unordered_set>

#include <tandem/autograd/node.h>
#include <tandem/autograd/parameter.h>
#include <tandem/core/check.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/module_state.h>

namespace tandem::inline v0::nn {

namespace detail {

ModuleState::~ModuleState() {
  for (auto& [name, state] : children) {
    state->parent = nullptr;
  }
  release_slots();
}

ModuleState& state_of(const ModuleRef& module) { return module.live_state(); }

void ModuleState::release_slots() noexcept {
  for (auto* list : {&parameters, &buffers}) {
    for (const auto& [name, tensor] : *list) {
      --tensor.unresolved()->registrations;
    }
    list->clear();
  }
}

std::string join(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

NamedTensors unique_slots(const ModuleState& state, bool parameters, bool recurse) {
  NamedTensors found;
  std::unordered_set<const void*> seen;
  const auto collect = [&](std::string name, const Tensor& slot, bool is_parameter) {
    if (is_parameter == parameters && seen.insert(slot.unresolved()).second) {
      found.emplace_back(std::move(name), slot);
    }
  };
  for_each_slot(state, "", collect, recurse);
  return found;
}

}  // namespace detail

namespace {

using detail::for_each_module;
using detail::for_each_slot;
using detail::ModuleState;
using detail::unique_slots;

template <class T>
std::vector<T> without_names(const std::vector<std::pair<std::string, T>>& named) {
  std::vector<T> values;
  values.reserve(named.size());
  for (const auto& [name, value] : named) {
    values.push_back(value);
  }
  return values;
}

template <class List>
auto find(List& list, std::string_view name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.first == name; });
}

// Throws for a name that is not in `list` and suggests a similar one.
template <class List>
[[noreturn]] void fail_missing(const ModuleState& from, const char* what, std::string_view target, const List& list) {
  std::vector<std::string> names;
  names.reserve(list.size());
  for (const auto& [name, value] : list) {
    names.push_back(name);
  }
  const std::string near = core::nearest(target, names);
  fail<ConfigError>("{}: there is no {} '{}'{} [TDM-E312]", from.type, what, target,
                    near.empty() ? "" : fmt::format(" (is it '{}'?)", near));
}

// The tensor of that name, which may belong to a module below.
Tensor find_slot(const ModuleState& state, bool parameters, std::string_view target) {
  const char* what = parameters ? "parameter" : "buffer";
  const ModuleState* owner = &state;
  std::string_view name = target;
  for (auto dot = name.find('.'); owner != nullptr && dot != std::string_view::npos; dot = name.find('.')) {
    const auto child = find(owner->children, name.substr(0, dot));
    owner = child == owner->children.end() ? nullptr : child->second.get();
    name.remove_prefix(dot + 1);
  }
  if (owner != nullptr) {
    const NamedTensors& list = parameters ? owner->parameters : owner->buffers;
    if (const auto found = find(list, name); found != list.end()) {
      return found->second;
    }
  }
  fail_missing(state, what, target, unique_slots(state, parameters));
}

}  // namespace

ModuleState& ModuleRef::live_state() const {
  check<ConfigError>(state_ != nullptr, "this module was moved from: use the one that it was moved to");
  return *state_;
}

const std::string& ModuleRef::type_name() const { return live_state().type; }
const std::string& ModuleRef::path() const { return live_state().path; }
const std::string& ModuleRef::description() const { return live_state().description; }
bool ModuleRef::is_training() const { return live_state().training.get(); }

NamedTensors ModuleRef::named_parameters(bool recurse) const { return unique_slots(live_state(), true, recurse); }
NamedTensors ModuleRef::named_buffers(bool recurse) const { return unique_slots(live_state(), false, recurse); }
std::vector<Tensor> ModuleRef::parameters(bool recurse) const { return without_names(named_parameters(recurse)); }
std::vector<Tensor> ModuleRef::buffers(bool recurse) const { return without_names(named_buffers(recurse)); }
Tensor ModuleRef::get_parameter(std::string_view target) const { return find_slot(live_state(), true, target); }
Tensor ModuleRef::get_buffer(std::string_view target) const { return find_slot(live_state(), false, target); }

NamedModules ModuleRef::named_modules() const {
  NamedModules found{{"", *this}};
  for (const auto& [name, child] : named_children()) {
    for (const auto& [below, module] : child.named_modules()) {
      found.emplace_back(below.empty() ? name : detail::join(name, below), module);
    }
  }
  return found;
}

NamedModules ModuleRef::named_children() const {
  NamedModules found;
  for (const auto& [name, child] : live_state().children) {
    found.emplace_back(name, ModuleRef(child));
  }
  return found;
}

std::vector<ModuleRef> ModuleRef::modules() const { return without_names(named_modules()); }
std::vector<ModuleRef> ModuleRef::children() const { return without_names(named_children()); }

ModuleRef ModuleRef::get_submodule(std::string_view target) const {
  live_state();
  std::shared_ptr<ModuleState> state = state_;
  for (std::string_view rest = target; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    const auto child = find(state->children, name);
    if (child == state->children.end() || name.size() + 1 == rest.size()) {
      fail_missing(*state_, "module", target, named_modules());
    }
    state = child->second;
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  return ModuleRef(std::move(state));
}

// Iterates by index and holds each child, because fn may add children.
void ModuleRef::apply(const std::function<void(ModuleRef)>& fn) const {
  const std::shared_ptr<ModuleState> state = state_;
  for (std::size_t i = 0; i < live_state().children.size(); ++i) {
    ModuleRef(state->children[i].second).apply(fn);
  }
  fn(ModuleRef(state));
}

std::int64_t ModuleRef::num_parameters(bool trainable_only) const {
  std::int64_t count = 0;
  for (const auto& [name, slot] : unique_slots(live_state(), true)) {
    count += !trainable_only || slot.requires_grad() ? slot.numel() : 0;
  }
  return count;
}

std::int64_t ModuleRef::num_bytes() const {
  std::int64_t bytes = 0;
  for (const bool parameters : {true, false}) {
    for (const auto& [name, slot] : unique_slots(live_state(), parameters)) {
      bytes += slot.numel() * static_cast<std::int64_t>(item_size(slot.dtype()));
    }
  }
  return bytes;
}

void ModuleRef::train(bool on) {
  for_each_module(live_state(), [on](ModuleState& state) { state.training.set(on); });
}

void ModuleRef::requires_grad_(bool on) {
  for (auto& [name, slot] : unique_slots(live_state(), true)) {
    slot.requires_grad_(on);
  }
}

// `wanted(tensor)` returns the replacement, or the same tensor if nothing changes.
template <class Convert>
void ModuleRef::convert(Convert&& wanted) {
  const NoGradGuard no_grad;
  for (const bool parameters : {true, false}) {
    for (auto& [name, slot] : unique_slots(live_state(), parameters)) {
      const Tensor old = slot.detach();
      const Tensor moved = wanted(old);
      if (moved.unresolved() == old.unresolved()) {
        continue;
      }
      const autograd::Leaf* leaf = autograd::leaf_of(*slot.unresolved());
      const Tensor grad = leaf != nullptr && !leaf->is_taken() && !leaf->has_only_part() ? slot.grad() : Tensor();
      autograd::replace_elements(slot, moved);
      if (grad.defined()) {
        autograd::leaf_of(*slot.unresolved())->set_grad(wanted(grad));
      }
    }
  }
}

void ModuleRef::to(Device device) {
  require_available(device);
  convert([&](const Tensor& tensor) { return tensor.to(device); });
}

void ModuleRef::to(DType dtype) {
  check<DTypeError>(is_floating_point(dtype), "{}: to: a module is of floating point, not {}", live_state().type,
                    dtype);
  convert([&](const Tensor& tensor) { return is_floating_point(tensor.dtype()) ? tensor.to(dtype) : tensor; });
}

void ModuleRef::zero_grad() {
  if (const core::Frame* frame = core::thread_state().frame; frame != nullptr) {
    fail<ConfigError>(
        "zero_grad: called within replica {} of {} of this module, while the others compute; call it outside of "
        "forward()",
        frame->replica().index, frame->replica().count);
  }
  for_each_slot(live_state(), "", [](const std::string&, const Tensor& slot, bool) { slot.zero_grad(); });
}

}  // namespace tandem::inline v0::nn
