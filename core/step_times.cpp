#include <tandem/core/step_times.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <new>
#include <unordered_set>

#include <tandem/core/progress_page.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0 {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

std::size_t index(Phase phase) noexcept { return static_cast<std::size_t>(phase); }

double to_seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

nanoseconds wait_of(const std::array<nanoseconds, kPhases>& phases) noexcept {
  return phases[index(Phase::reduce)] + phases[index(Phase::collective)] + phases[index(Phase::pipeline)];
}

}  // namespace

namespace core {

/// The open phases of a thread, each inside the previous one, and the collectors of their times.
class PhaseThread {
 public:
  detail::OpenPhase begin(Phase phase, const void* by) noexcept;
  /// Closes a phase and the open phases inside it. Does nothing if the phase was already closed with an outer one.
  void end(const detail::OpenPhase& open) noexcept;
  void add(StepTimes& collector);
  void remove(const StepTimes& collector) noexcept;
  /// The time that open phases have taken so far, for a collector that starts now.
  std::array<nanoseconds, kPhases> open_times(Clock::time_point now) const noexcept;

  std::mutex mutex;  // guards all members below except the open phases, which only the owning thread uses

 private:
  struct Open {
    Phase phase;
    Clock::time_point began;
    nanoseconds others;  // time in inner phases that have ended
    std::uint64_t number;
  };
  bool is_open(Phase phase) const noexcept {
    return std::any_of(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(depth_),
                       [&](const Open& open) { return open.phase == phase; });
  }

  std::array<Open, kPhases> open_{};  // each phase at most once
  std::size_t depth_ = 0;
  std::uint64_t begun_ = 0;
  std::vector<StepTimes*> collectors_;
  std::unordered_set<const void*> stepped_;  // optimisers that have stepped in the current step
};

}  // namespace core

namespace {

using core::PhaseThread;

// Keeps the thread's phases alive; collectors may hold them longer than the thread exists.
struct ThisThread {
  std::shared_ptr<PhaseThread> phases = std::make_shared<PhaseThread>();
  ~ThisThread();
};
constinit thread_local PhaseThread* this_thread = nullptr;  // null unless the thread has phases
ThisThread::~ThisThread() { this_thread = nullptr; }

std::shared_ptr<PhaseThread> phases_of_this_thread() {
  thread_local ThisThread mine;
  this_thread = mine.phases.get();
  return mine.phases;
}

}  // namespace

detail::OpenPhase PhaseThread::begin(Phase phase, const void* by) noexcept {
  const bool is_evaluation = phase == Phase::forward && !thread_state().grad_enabled;
  const bool is_inside =
      phase == Phase::collective && (is_open(Phase::reduce) || is_open(Phase::pipeline));  // as a part of that phase
  if (is_evaluation || is_inside || is_open(phase)) {
    return {};
  }
  if (phase == Phase::optimizer) {
    const std::lock_guard lock(mutex);
    if (stepped_.empty() || stepped_.contains(by)) {  // a new step begins when an optimiser steps for the second time
      stepped_.clear();
      std::ranges::for_each(collectors_, [](StepTimes* collector) { collector->begin_step(); });
    }
    try {
      stepped_.insert(by);
    } catch (const std::bad_alloc&) {  // one step too many is counted
    }
  }
  open_[depth_] = {phase, Clock::now(), nanoseconds(0), ++begun_};
  return {this, depth_++, begun_};
}

void PhaseThread::end(const detail::OpenPhase& open) noexcept {
  if (open.depth >= depth_ || open_[open.depth].number != open.number) {
    return;
  }
  const Clock::time_point now = Clock::now();
  while (depth_ > open.depth) {
    const Open& ended = open_[--depth_];
    const nanoseconds whole = now - ended.began;
    if (depth_ > 0) {
      open_[depth_ - 1].others += whole;
    }
    const std::lock_guard lock(mutex);
    for (StepTimes* collector : collectors_) {
      collector->phases_[index(ended.phase)] += whole - ended.others;
      if (ended.phase == Phase::optimizer) {
        collector->end_step(now);
      }
    }
  }
}

void PhaseThread::add(StepTimes& collector) {
  const std::lock_guard lock(mutex);
  collectors_.push_back(&collector);
  stepped_.clear();  // the next optimiser that steps begins the collector's first step
}

void PhaseThread::remove(const StepTimes& collector) noexcept {
  const std::lock_guard lock(mutex);
  std::erase(collectors_, &collector);
}

std::array<nanoseconds, kPhases> PhaseThread::open_times(Clock::time_point now) const noexcept {
  std::array<nanoseconds, kPhases> times{};
  Clock::time_point end = now;
  for (std::size_t i = depth_; i-- > 0;) {
    times[index(open_[i].phase)] = end - open_[i].began - open_[i].others;
    end = open_[i].began;
  }
  return times;
}

std::atomic<int> detail::step_time_collectors{0};

detail::OpenPhase detail::begin_phase(Phase phase, const void* by) noexcept {
  OpenPhase open = this_thread != nullptr ? this_thread->begin(phase, by) : OpenPhase{};
  if (core::ProgressPage* page = core::page_of_this_thread(); page != nullptr) {
    open.is_noted = true;
    open.outer = page->phase.load(std::memory_order_relaxed);
    page->phase.store(static_cast<std::int32_t>(phase), std::memory_order_relaxed);
  }
  return open;
}

void detail::end_phase(const OpenPhase& open) noexcept {
  if (open.thread != nullptr && open.thread == this_thread) {
    this_thread->end(open);
  }
  if (core::ProgressPage* page = core::page_of_this_thread(); open.is_noted && page != nullptr) {
    page->phase.store(open.outer, std::memory_order_relaxed);
  }
}

const char* to_string(Phase phase) noexcept {
  constexpr const char* kNames[kPhases] = {"input",  "scatter",    "replicate", "forward", "gather",  "backward",
                                           "reduce", "collective", "optimizer", "replay",  "pipeline"};
  return kNames[index(phase)];
}

StepTimes::StepTimes() : thread_(phases_of_this_thread()) {
  reset();
  thread_->add(*this);
  detail::step_time_collectors.fetch_add(1, std::memory_order_relaxed);
}

StepTimes::~StepTimes() {
  detail::step_time_collectors.fetch_sub(1, std::memory_order_relaxed);
  thread_->remove(*this);
}

void StepTimes::begin_step() noexcept {
  if (steps_ > 0) {
    waits_[static_cast<std::size_t>(steps_ - 1) % kWaits] = wait_of(last_end_.phases) - wait_of(previous_end_.phases);
  }
  previous_end_ = last_end_;
  ++steps_;
}

void StepTimes::end_step(Clock::time_point now) noexcept {
  last_end_ = {now, phases_};
  if (steps_ == 1) {
    first_end_ = last_end_;
  }
}

double StepTimes::seconds(Phase phase) const {
  const std::lock_guard lock(thread_->mutex);
  return std::max(0.0, to_seconds(phases_[index(phase)]));
}

double StepTimes::elapsed() const {
  const std::lock_guard lock(thread_->mutex);
  return to_seconds(Clock::now() - started_);
}

std::int64_t StepTimes::steps() const {
  const std::lock_guard lock(thread_->mutex);
  return steps_;
}

StepSums StepTimes::whole_steps() const {
  const std::lock_guard lock(thread_->mutex);
  if (steps_ == 0) {
    return {};
  }
  const Point begin = steps_ == 1 ? previous_end_ : first_end_;
  StepSums sums{.count = std::max<std::int64_t>(1, steps_ - 1), .elapsed = to_seconds(last_end_.at - begin.at)};
  for (std::size_t i = 0; i < kPhases; ++i) {
    sums.phases[i] = std::max(0.0, to_seconds(last_end_.phases[i] - begin.phases[i]));
  }
  const auto kept = std::min<std::int64_t>(sums.count, static_cast<std::int64_t>(kWaits));
  for (std::int64_t step = steps_ - kept; step < steps_ - 1; ++step) {
    sums.waits.push_back(to_seconds(waits_[static_cast<std::size_t>(step) % kWaits]));
  }
  sums.waits.push_back(to_seconds(wait_of(last_end_.phases) - wait_of(previous_end_.phases)));
  return sums;
}

void StepTimes::reset() {
  const Clock::time_point now = Clock::now();
  const Times open = thread_.get() == this_thread ? this_thread->open_times(now) : Times{};
  const std::lock_guard lock(thread_->mutex);
  started_ = now;
  std::ranges::transform(open, phases_.begin(), std::negate());  // end() adds the full time of these phases later
  steps_ = 0;
  first_end_ = previous_end_ = last_end_ = {now, phases_};
}

}  // namespace tandem::inline v0
