#include <tandem/optim/optimizer.h>

#include <algorithm>
#include <cmath>

#include <tandem/autograd/node.h>
#include <tandem/core/check.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::optim {

/// A parameter and what the optimiser knows of it. Its buffers are parts of those of its slice.
struct Optimizer::Member {
  Tensor parameter;
  core::Ref<autograd::Leaf> leaf;
  const void* values = nullptr;  // where it was when the slices were cut
  bool in_slice = false;
  std::size_t slice = 0;
  std::int64_t steps = 0;               // while in no slice
  std::vector<detail::View> buffers{};  // dense, of the padded size
};

Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

Optimizer::Optimizer(const char* name, const std::vector<Tensor>& parameters, double learning_rate, int num_buffers)
    : name_(name), num_buffers_(num_buffers), parameters_(parameters) {
  set_learning_rate(learning_rate);
  check<ConfigError>(!parameters.empty(), "{}: the list of parameters is empty (did the model register its layers?)",
                     name);
  std::vector<Tensor> trained;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check<ConfigError>(parameters[i].defined(), "{}: parameter {} is undefined", name, i);
    check<ConfigError>(parameters[i].is_leaf(), "{}: parameter {} is the result of an op; only leaves can be optimised",
                       name, i);
    const bool repeated = std::any_of(parameters.begin(), parameters.begin() + static_cast<std::ptrdiff_t>(i),
                                      [&](const Tensor& t) { return t.unresolved() == parameters[i].unresolved(); });
    check<ConfigError>(!repeated, "{}: parameter {} '{}' appears twice", name, i,
                       autograd::leaf_of(*parameters[i].unresolved()) != nullptr
                           ? autograd::leaf_of(*parameters[i].unresolved())->name
                           : "");
    if (parameters[i].requires_grad()) {
      trained.push_back(parameters[i]);
    }
  }
  ParameterStore::ensure(trained);
  for (const Tensor& parameter : sorted_by_place(trained)) {
    members_.push_back({parameter, core::Ref<autograd::Leaf>(autograd::leaf_of(*parameter.unresolved()))});
  }
}

void Optimizer::set_learning_rate(double learning_rate) {
  check<ConfigError>(std::isfinite(learning_rate) && learning_rate >= 0,
                     "{}: the learning rate must be a number >= 0, got {}", name_, learning_rate);
  learning_rate_ = learning_rate;
}

void Optimizer::zero_grad() {
  for (Member& member : members_) {
    member.leaf->set_stale();
  }
}

bool Optimizer::layout_changed() const {
  return std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.in_slice != member.leaf->fresh() || member.values != member.parameter.unresolved()->view.data();
  });
}

// Cuts the members that have a gradient into slices. Happens at the first step, and again only when other parameters
// get gradients than before or when the module moved; then what was kept moves along.
void Optimizer::cut() {
  std::vector<Tensor> sorted;
  for (Member& member : members_) {
    if (member.in_slice) {
      member.steps = slices_[member.slice]->state.step;
      member.in_slice = false;
    }
    sorted.push_back(member.parameter);
  }
  if (std::any_of(members_.begin(), members_.end(), [](const Member& m) { return !m.leaf->place.store; })) {
    ParameterStore::ensure(sorted);  // the module moved: pack what is there now
    std::vector<Member> members;
    for (const Tensor& parameter : sorted_by_place(sorted)) {
      members.push_back(*std::find_if(members_.begin(), members_.end(), [&](const Member& m) {
        return m.parameter.unresolved() == parameter.unresolved();
      }));
    }
    members_ = std::move(members);
    sorted.clear();
    for (const Member& member : members_) {
      sorted.push_back(member.parameter);
    }
  }
  std::vector<std::unique_ptr<Slice>> slices;
  const auto same_steps = [&](std::size_t i, std::size_t j) { return members_[i].steps == members_[j].steps; };
  for (const ParameterRun& run : gradient_runs(sorted, same_steps)) {
    auto slice = std::make_unique<Slice>(Slice{.run = run, .state = {.step = members_[run.first].steps}, .buffers = {}});
    for (int b = 0; b < num_buffers_; ++b) {
      const detail::View whole = detail::empty_view({run.numel}, run.dtype, run.device);
      detail::fill(whole, 0);
      slice->buffers.push_back(whole.data());
      std::int64_t at = 0;
      for (std::size_t i = run.first; i < run.last; ++i) {
        Member& member = members_[i];
        const std::int64_t padded = detail::single_run(member.parameter, i).numel;
        const detail::View part = detail::narrow(whole, 0, at, padded);
        auto& kept = member.buffers;
        if (kept.size() > static_cast<std::size_t>(b)) {
          // The gap behind a parameter depends on its dtype: copy what both have.
          const std::int64_t numel = member.parameter.unresolved()->view.numel();
          detail::copy(detail::narrow(part, 0, 0, numel), detail::narrow(kept[static_cast<std::size_t>(b)], 0, 0, numel));
          kept[static_cast<std::size_t>(b)] = part;
        } else {
          kept.push_back(part);
        }
        at += padded;
      }
    }
    for (std::size_t i = run.first; i < run.last; ++i) {
      members_[i].in_slice = true;
      members_[i].slice = slices.size();
    }
    slices.push_back(std::move(slice));
  }
  slices_ = std::move(slices);
  for (Member& member : members_) {
    member.values = member.parameter.unresolved()->view.data();
  }
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
