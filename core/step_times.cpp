#include <tandem/core/step_times.h>

#include <algorithm>
#include <cstddef>

#include <tandem/core/thread_state.h>

namespace tandem::inline v0 {

namespace {

core::PhaseAccount process_account;

// The phases that are open on a thread, each within the one before.
struct OpenPhases {
  struct Open {
    Phase phase;
    std::int64_t others;  // nanoseconds of phases within it
  };
  std::array<Open, kPhases> stack;
  std::size_t depth = 0;
};
constinit thread_local OpenPhases open_phases{};

std::size_t index(Phase phase) noexcept { return static_cast<std::size_t>(phase); }

core::PhaseAccount& current_account() noexcept {
  core::PhaseAccount* account = core::thread_state().phases;
  return account != nullptr ? *account : process_account;
}

}  // namespace

std::atomic<int> detail::step_time_collectors{0};

bool detail::begin_phase(Phase phase) noexcept {
  const auto end = open_phases.stack.begin() + static_cast<std::ptrdiff_t>(open_phases.depth);
  if (std::any_of(open_phases.stack.begin(), end, [&](const auto& open) { return open.phase == phase; })) {
    return false;
  }
  open_phases.stack[open_phases.depth++] = {phase, 0};
  return true;
}

void detail::end_phase(Phase phase, std::chrono::nanoseconds time) noexcept {
  const std::int64_t others = open_phases.stack[--open_phases.depth].others;
  if (open_phases.depth > 0) {
    open_phases.stack[open_phases.depth - 1].others += time.count();
  }
  core::PhaseAccount& account = current_account();
  account.nanoseconds[index(phase)].fetch_add(time.count() - others, std::memory_order_relaxed);
  account.ended[index(phase)].fetch_add(1, std::memory_order_relaxed);
}

const char* to_string(Phase phase) noexcept {
  constexpr const char* kNames[kPhases] = {"input",  "scatter",  "replicate", "forward",
                                           "gather", "backward", "reduce",    "optimizer"};
  return kNames[index(phase)];
}

StepTimes::StepTimes() noexcept : account_(&current_account()) {
  reset();
  detail::step_time_collectors.fetch_add(1, std::memory_order_relaxed);
}

StepTimes::~StepTimes() { detail::step_time_collectors.fetch_sub(1, std::memory_order_relaxed); }

std::int64_t StepTimes::since(Phase phase) const noexcept {
  return account_->nanoseconds[index(phase)].load(std::memory_order_relaxed) - start_[index(phase)];
}

double StepTimes::seconds(Phase phase) const noexcept { return 1e-9 * static_cast<double>(since(phase)); }

double StepTimes::elapsed() const noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

std::int64_t StepTimes::steps() const noexcept {
  return account_->ended[index(Phase::optimizer)].load(std::memory_order_relaxed) - first_step_;
}

void StepTimes::reset() noexcept {
  for (std::size_t i = 0; i < kPhases; ++i) {
    start_[i] = account_->nanoseconds[i].load(std::memory_order_relaxed);
  }
  first_step_ = account_->ended[index(Phase::optimizer)].load(std::memory_order_relaxed);
  began_ = std::chrono::steady_clock::now();
}

}  // namespace tandem::inline v0
