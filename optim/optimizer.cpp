#include <tandem/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include <tandem/autograd/node.h>
#include <tandem/autograd/parameter.h>
#include <tandem/core/check.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::optim {

/// A parameter and what the optimiser knows of it. Its buffers are parts of those of its slice.
struct Optimizer::Member {
  Tensor parameter;
  const void* values = nullptr;  // where it was when the slices were cut
  std::uint32_t generation = 0;  // and which: after a move memory may be used again
  bool in_slice = false;
  std::size_t slice = 0;
  std::int64_t steps = 0;               // while in no slice
  std::vector<detail::View> buffers{};  // dense, of the padded size

  autograd::Leaf* leaf() const { return autograd::leaf_of(*parameter.unresolved()); }
  bool changed_since_cut() const {
    const autograd::Leaf* at = leaf();
    return in_slice != (at != nullptr && at->fresh()) || values != parameter.unresolved()->view.data() ||
           (at != nullptr && generation != at->generation());
  }
};

namespace {

std::vector<Tensor> trained(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> result;
  for (const Tensor& parameter : parameters) {
    if (parameter.requires_grad()) {
      result.push_back(parameter);
    }
  }
  return result;
}

}  // namespace

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(const char* name, const std::vector<Tensor>& parameters, double learning_rate, int num_buffers)
    : name_(name), num_buffers_(num_buffers), parameters_(parameters) {
  set_learning_rate(learning_rate);
  check<ConfigError>(!parameters.empty(), "{}: the list of parameters is empty (did the model register its layers?)",
                     name);
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check<ConfigError>(parameters[i].defined(), "{}: parameter {} is undefined", name, i);
    check<ConfigError>(parameters[i].is_leaf(), "{}: parameter {} is the result of an op; only leaves can be optimised",
                       name, i);
    check<ConfigError>(seen.insert(parameters[i].unresolved()).second, "{}: parameter {} '{}' appears twice", name, i,
                       autograd::parameter_name(parameters[i]));
  }
  ParameterStore::ensure(trained(parameters));
  for (const Tensor& parameter : sorted_by_place(parameters)) {
    members_.push_back({parameter});
  }
}

void Optimizer::set_learning_rate(double learning_rate) {
  check<ConfigError>(std::isfinite(learning_rate) && learning_rate >= 0,
                     "{}: the learning rate must be a number >= 0, got {}", name_, learning_rate);
  learning_rate_ = learning_rate;
}

void Optimizer::zero_grad() {
  for (const Member& member : members_) {
    if (autograd::Leaf* leaf = member.leaf(); leaf != nullptr) {
      leaf->set_stale();
    }
  }
}

bool Optimizer::layout_changed() const {
  return std::any_of(members_.begin(), members_.end(), [](const Member& member) { return member.changed_since_cut(); });
}

// Cuts the members that have a gradient into slices. Happens at the first step, and again only when other parameters
// get gradients than before or when the module moved; then what was kept moves along.
void Optimizer::cut() {
  for (Member& member : members_) {
    member.steps = member.in_slice ? slices_[member.slice]->state.step : member.steps;
    member.in_slice = false;
  }
  ParameterStore::ensure(trained(parameters_));  // after a move they are in no store
  const std::vector<Tensor> sorted = sorted_by_place(parameters_);
  std::unordered_map<const void*, std::size_t> place;
  for (const Tensor& parameter : sorted) {
    place.emplace(parameter.unresolved(), place.size());
  }
  const auto place_of = [&](const Member& member) { return place.at(member.parameter.unresolved()); };
  std::sort(members_.begin(), members_.end(),
            [&](const Member& a, const Member& b) { return place_of(a) < place_of(b); });

  std::vector<std::unique_ptr<Slice>> slices;
  const auto same_steps = [&](std::size_t i, std::size_t j) { return members_[i].steps == members_[j].steps; };
  for (const ParameterRun& run : gradient_runs(sorted, same_steps)) {
    slices.push_back(
        std::make_unique<Slice>(Slice{.run = run, .state = {.step = members_[run.first].steps}, .buffers = {}}));
    for (int buffer = 0; buffer < num_buffers_; ++buffer) {
      slices.back()->buffers.push_back(gather_buffer(run, static_cast<std::size_t>(buffer)));
    }
    for (std::size_t i = run.first; i < run.last; ++i) {
      members_[i].in_slice = true;
      members_[i].slice = slices.size() - 1;
    }
  }
  slices_ = std::move(slices);
  for (Member& member : members_) {
    member.values = member.parameter.unresolved()->view.data();
    member.generation = member.leaf() != nullptr ? member.leaf()->generation() : 0;
  }
}

// One of the buffers of a new slice: what its members had before, zero for those that had nothing.
void* Optimizer::gather_buffer(const ParameterRun& run, std::size_t buffer) {
  const detail::View whole = detail::empty_view({run.numel}, run.dtype, run.device);
  detail::fill(whole, 0);
  std::int64_t at = 0;
  for (std::size_t i = run.first; i < run.last; ++i) {
    Member& member = members_[i];
    const std::int64_t padded = detail::single_run(member.parameter, i).numel;
    const detail::View part = detail::narrow(whole, 0, at, padded);
    if (buffer < member.buffers.size()) {
      // The gap behind a parameter depends on its dtype: copy the elements alone.
      const std::int64_t numel = member.parameter.unresolved()->view.numel();
      detail::copy(detail::narrow(part, 0, 0, numel), detail::narrow(member.buffers[buffer], 0, 0, numel));
      member.buffers[buffer] = part;
    } else {
      member.buffers.push_back(part);
    }
    at += padded;
  }
  return whole.data();
}

void Optimizer::step() {
  if (layout_changed()) {
    cut();
  }
  for (const auto& slice : slices_) {
    slice->state.step += 1;
    slice->state.learning_rate = learning_rate_;
    update(*slice);
  }
  for (const Member& member : members_) {
    if (member.in_slice) {
      member.parameter.unresolved()->view.storage->bump_version();
    }
  }
}

}  // namespace tandem::inline v0::optim
