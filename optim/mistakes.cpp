#include <algorithm>

#include <fmt/format.h>

#include <tandem/autograd/parameter.h>
#include <tandem/core/check.h>
#include <tandem/core/progress_page.h>
#include <tandem/core/warning.h>
#include <tandem/optim/member.h>
#include <tandem/optim/optimizer.h>

// Steps that run, and that train less than was meant. Each kind is told once.

namespace tandem::inline v0::optim {

namespace {

// The step in which a parameter without any gradient is told: some get their first one late.
constexpr std::int64_t kLate = 10;

}  // namespace

void Optimizer::count_call() {
  core::note_update();
  autograd::note_optimizer_step();
  if (++calls_ == kLate) {
    warn_of_idle_parameters();
  }
}

void Optimizer::look_for_mistakes() {
  const auto first =
      std::find_if(members_.begin(), members_.end(), [](const Member& member) { return member.in_slice; });
  if (first == members_.end()) {
    core::warn_once(
        fmt::format("{}: step() finds no gradient in any parameter; call loss.backward() after zero_grad() and before "
                    "each step() [TDM-W202]",
                    name_));
    return;
  }
  autograd::Leaf& leaf = *first->leaf();
  if (leaf.is_used_by(this)) {
    core::warn_once(
        fmt::format("{}: step() uses the gradients of the step before once more; call loss.backward() before each "
                    "step() [TDM-W202]",
                    name_));
  } else if (leaf.is_added_to_use_of(this)) {
    core::warn_once(fmt::format(
        "{}: step() uses sums of new gradients and those of the step before; call zero_grad() in each step, "
        "before loss.backward() [TDM-W201]",
        name_));
  }
  leaf.set_used_by(this);
}

void Optimizer::warn_of_idle_parameters() const {
  std::string names;
  std::int64_t more = -1;
  for (const Member& member : members_) {
    if (!member.in_slice && member.steps == 0 && member.parameter.requires_grad() && ++more == 0) {
      const std::string name = autograd::parameter_name(member.parameter);
      names = name.empty() ? fmt::format("{} {}", member.index, member.parameter.shape()) : fmt::format("'{}'", name);
    }
  }
  if (more >= 0) {
    core::warn_once(fmt::format(
        "{}: parameter {}{} had no gradient in {} steps, and stays as it is: it takes no part in the loss. Use it, or "
        "leave it out (requires_grad_(false)) [TDM-W203]",
        name_, names, more > 0 ? fmt::format(" and {} more", more) : "", kLate));
  }
}

}  // namespace tandem::inline v0::optim
