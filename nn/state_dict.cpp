#include <tandem/nn/module_ref.h>

#include <algorithm>

#include <tandem/autograd/sharding.h>
#include <tandem/core/check.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/module_state.h>

namespace tandem::inline v0::nn {

using detail::for_each_slot;

StateDict ModuleRef::state_dict() const {
  StateDict state;
  const autograd::ReadingScope reads(parameters());
  for_each_slot(live_state(), "", [&](std::string name, const Tensor& slot, bool) {
    const Tensor value = slot.detach();
    state.set(std::move(name), autograd::is_kept_in_parts(slot) ? value.clone() : value);
  });
  return state;
}

namespace {

// Returns "module." if every name of the state begins with it and no name of the module does, as in the state of a
// wrapped model. Otherwise empty.
std::string foreign_prefix(const StateDict& state, const std::vector<std::string>& names) {
  if (state.size() == 0 || names.empty()) {
    return {};
  }
  const std::string& first = state.begin()->first;
  const std::string prefix = first.substr(0, first.find('.') + 1);
  const auto has_it = [&](const std::string& name) { return name.starts_with(prefix); };
  const bool foreign =
      !prefix.empty() && std::none_of(names.begin(), names.end(), has_it) &&
      std::all_of(state.begin(), state.end(), [&](const auto& entry) { return has_it(entry.first); }) &&
      std::find(names.begin(), names.end(), first.substr(prefix.size())) != names.end();
  return foreign ? prefix : std::string();
}

}  // namespace

LoadReport ModuleRef::load_state_dict(const StateDict& state, bool strict) {
  LoadReport report;
  std::vector<std::string> names;
  for_each_slot(live_state(), "", [&](std::string name, const Tensor&, bool) { names.push_back(std::move(name)); });
  const std::string prefix = foreign_prefix(state, names);
  if (prefix == "module.") {
    StateDict bare;
    for (const auto& [name, value] : state) {
      bare.set(name.substr(prefix.size()), value);
    }
    report = load_state_dict(bare, strict);
    report.stripped = prefix;
    return report;
  }
  std::vector<std::string> problems;
  std::vector<std::pair<Tensor, const Tensor*>> copies;
  for_each_slot(live_state(), "", [&](std::string name, const Tensor& slot, bool) {
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
  if (!prefix.empty()) {
    problems.push_back(
        fmt::format("all {} names in the state begin with '{}', such as '{}': it is of a model that was wrapped; take "
                    "the prefix off",
                    state.size(), prefix, state.begin()->first));
  } else if (strict) {
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
  check<ConfigError>(problems.empty(),
                     "load_state_dict: the state does not fit {}; nothing was loaded\n  {} [TDM-E314]",
                     live_state().type, fmt::join(problems, "\n  "));
  detail::for_each_module(live_state(), [](const detail::ModuleState& module) {
    if (module.batch_norm != nullptr && !module.batch_norm->folded.empty()) {
      tandem::detail::note_step_change();  // the norm computes again
    }
  });
  const NoGradGuard no_grad;
  const autograd::ReadingScope writes(parameters());
  for (auto& [slot, value] : copies) {
    slot.copy_(*value);
  }
  return report;
}

}  // namespace tandem::inline v0::nn
