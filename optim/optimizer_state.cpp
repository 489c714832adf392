#include <algorithm>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_state.h>
#include <tandem/optim/member.h>
#include <tandem/optim/state_reader.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::optim {

namespace {

// Positions in Optimizer::parameters() of the members of a group that begins at `first`.
std::vector<std::int64_t> indices(const Group& group, std::size_t first) {
  std::vector<std::int64_t> result(group.params().size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<std::int64_t>(first + i);
  }
  return result;
}

std::vector<std::int64_t> sizes_of(const Tensor& parameter) {
  const Shape& sizes = parameter.unresolved()->view.sizes;
  return {sizes.begin(), sizes.end()};
}

Tensor scalar(double value) { return tensor(value, {.dtype = DType::f64}); }

// Reads a group's options from a state and notes what is wrong with them.
Group::Options read_options(StateReader& reader, const Group& group, const std::string& prefix) {
  Group::Options options{.lr = reader.number(prefix + "lr", group.lr()),
                         .weight_decay = reader.number(prefix + "weight_decay", group.weight_decay())};
  if (group.momentum()) {
    options.momentum = reader.number(prefix + "momentum", *group.momentum());
  }
  if (reader.has(prefix + "initial_lr")) {
    options.initial_lr = reader.number(prefix + "initial_lr", group.initial_lr());
  }
  return options;
}

}  // namespace

StateDict Optimizer::state_dict(StateParts parts) const {
  const NoGradGuard no_grad;
  StateDict state;
  std::vector<const Member*> in_order(members_.size());
  for (const Member& member : members_) {
    in_order[member.index] = &member;
  }
  const std::int64_t skipped = skipped_steps();
  for (std::size_t i = 0; i < in_order.size(); ++i) {
    const Member& member = *in_order[i];
    const std::int64_t steps = steps_of(member, skipped);
    if (steps == 0) {
      continue;
    }
    if (parts == StateParts::none) {
      for (std::size_t b = 0; b < member.buffers.size() && member.part.by != nullptr; ++b) {
        state_of(member, b, StateParts::all);
      }
      continue;
    }
    state.set(fmt::format("state.{}.step", i), tensor(steps));
    for (std::size_t b = 0; b < member.buffers.size(); ++b) {
      state.set(fmt::format("state.{}.{}", i, buffers_[b].name), state_of(member, b, parts));
    }
    if (const autograd::LeafPart part = member.part_now(); part.by != nullptr && parts == StateParts::own) {
      state.set(fmt::format("state.{}.part", i),
                from_data(std::vector<std::int64_t>{part.first_of(member.numel()), part.count_of(member.numel()),
                                                    part.by->rank(), part.by->size()}));
      state.set(fmt::format("state.{}.shape", i), from_data(sizes_of(member.parameter)));
    }
  }
  std::size_t first = 0;
  for (std::size_t g = 0; g < groups_.size() && parts != StateParts::none; ++g) {
    add_options(g, state);
    state.set(fmt::format("param_groups.{}.params", g), from_data(indices(groups_[g], first)));
    first += groups_[g].params().size();
  }
  return state;
}

void Optimizer::add_options(std::size_t group, StateDict& state) const {
  const Group::Options& options = groups_[group].options();
  const std::string prefix = fmt::format("param_groups.{}.", group);
  state.set(prefix + "lr", scalar(options.lr));
  state.set(prefix + "weight_decay", scalar(options.weight_decay));
  if (options.momentum) {
    state.set(prefix + "momentum", scalar(*options.momentum));
  }
  if (options.initial_lr) {
    state.set(prefix + "initial_lr", scalar(*options.initial_lr));
  }
}

StateDict Optimizer::group_options() const {
  StateDict state;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    add_options(g, state);
  }
  return state;
}

void Optimizer::load_state_dict(const StateDict& state) {
  const NoGradGuard no_grad;
  StateReader reader(state, name_);
  struct Loaded {
    std::int64_t steps = 0;
    std::vector<Tensor> buffers{};
  };
  std::vector<Loaded> loaded(parameters_.size());
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const std::string prefix = fmt::format("state.{}.", i);
    if (reader.has(prefix + "part")) {
      reader.note(
          fmt::format("state.{}: is the part of one rank; make the whole of all ranks' parts with "
                      "join_state_parts()",
                      i));
      reader.has(prefix + "shape");
      reader.has(prefix + "step");
      std::ranges::for_each(buffers_, [&](const BufferKind& buffer) { reader.has(prefix + buffer.name); });
      continue;
    }
    const bool any = reader.has(prefix + "step") ||
                     std::any_of(buffers_.begin(), buffers_.end(),
                                 [&](const BufferKind& buffer) { return reader.has(prefix + buffer.name); });
    if (!any) {
      continue;
    }
    loaded[i].steps = reader.integer(prefix + "step", 1);
    // A state without a master, or a parameter whose type needs none, leaves no master to load.
    const bool named = master_weights_ && reader.has(prefix + buffers_.back().name);
    const bool without = master_weights_ && !(named && has_master(parameters_[i].dtype()));
    for (std::size_t b = 0; b < buffers_.size() - (without ? 1 : 0); ++b) {
      loaded[i].buffers.push_back(reader.tensor(prefix + buffers_[b].name, parameters_[i].unresolved()->view.sizes));
    }
  }
  std::vector<Group::Options> options;
  std::size_t first = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::string prefix = fmt::format("param_groups.{}.", g);
    options.push_back(read_options(reader, groups_[g], prefix));
    try {
      groups_[g].check_options(options.back());
    } catch (const ConfigError& error) {
      reader.note(fmt::format("group {}: {}", g, error.what()));
    }
    const std::vector<std::int64_t> expected = indices(groups_[g], first);
    const std::vector<double> found = reader.numbers(prefix + "params", expected.size());
    if (!found.empty() && !std::equal(expected.begin(), expected.end(), found.begin(),
                                      [](std::int64_t a, double b) { return static_cast<double>(a) == b; })) {
      reader.note(fmt::format("value of '{}params': {} has parameters {} ... {} in this group, the state others",
                              prefix, name_, expected.front(), expected.back()));
    }
    first += expected.size();
  }
  reader.finish();

  std::vector<std::vector<detail::View>> views(loaded.size());
  const core::MemoryUseScope counted(core::MemoryUse::optimizer);
  for (const Member& member : members_) {
    const std::size_t i = member.index;
    const std::int64_t begin = member.part_now().first_of(member.numel());
    const std::int64_t count = member.part_now().count_of(member.numel());
    for (const Tensor& buffer : loaded[i].buffers) {
      const detail::View view =
          detail::empty_view({count}, kept_dtype(parameters_[i].dtype()), parameters_[i].device());
      detail::copy(view, detail::narrow(detail::contiguous(buffer.flatten().raw()), 0, begin, count));
      views[i].push_back(view);
    }
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].set_options(options[g]);
  }
  watched_->changed();
  forget_skipped_steps();
  slices_.clear();  // the next step cuts new slices from the loaded state
  for (Member& member : members_) {
    member.in_slice = false;
    member.steps = loaded[member.index].steps;
    member.buffers = std::move(views[member.index]);
    member.part = member.part_now();
  }
}

}  // namespace tandem::inline v0::optim
