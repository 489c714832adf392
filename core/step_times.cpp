#include <tandem/core/step_times.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

#include <tandem/core/gpu_spans.h>
#include <tandem/core/gpu_steps.h>
#include <tandem/core/peak_place.h>
#include <tandem/core/span_thread.h>

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

std::atomic<int> detail::populating_listeners{0};

StepTimes::StepTimes(bool populates)
    : thread_(core::SpanThread::of_this_thread()), gpus_(core::gpu_phases_of_this_rank()), populates_(populates) {
  detail::populating_listeners.fetch_add(populates_ ? 1 : 0, std::memory_order_relaxed);
  reset();
  thread_->add(*this);
  detail::span_listeners.fetch_add(1, std::memory_order_relaxed);
}

StepTimes::~StepTimes() {
  detail::span_listeners.fetch_sub(1, std::memory_order_relaxed);
  detail::populating_listeners.fetch_sub(populates_ ? 1 : 0, std::memory_order_relaxed);
  thread_->remove(*this);
}

void StepTimes::begin_step() noexcept {
  if (steps_ > 0) {
    const std::size_t place = static_cast<std::size_t>(steps_ - 1) % kWaits;
    waits_[place] = wait_of(last_end_.phases) - wait_of(previous_end_.phases);
    gpu_ends_[place] = last_end_.gpu_phase;
  }
  if (steps_ > 1) {
    longest_ = std::max(longest_, last_end_.at - previous_end_.at);
  }
  previous_end_ = last_end_;
  ++steps_;
}

void StepTimes::add(Phase phase, nanoseconds time, Clock::time_point now) noexcept {
  phases_[index(phase)] += time;
  if (phase == Phase::optimizer) {
    last_end_ = {now, phases_, gpus_ != nullptr ? core::next_gpu_phase(*gpus_) : 0};
    last_efforts_ = totals_.sums();
    facts_ = core::said_facts().latest();
    rows_ += facts_[static_cast<std::size_t>(Fact::rows)];
    ++updates_;
    if (steps_ == 1) {
      first_end_ = last_end_;
      first_efforts_ = last_efforts_;
    }
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

// The ends of the last steps.
std::vector<std::uint64_t> StepTimes::gpu_ends() const {
  std::vector<std::uint64_t> ends;
  const auto kept = std::min<std::int64_t>(steps_ - 1, static_cast<std::int64_t>(kWaits));
  for (std::int64_t step = steps_ - 1 - kept; step < steps_ - 1; ++step) {
    ends.push_back(gpu_ends_[static_cast<std::size_t>(step) % kWaits]);
  }
  ends.push_back(last_end_.gpu_phase);
  return ends;
}

StepSums StepTimes::whole_steps() const {
  std::unique_lock lock(thread_->mutex);
  StepSums sums = host_steps();
  if (gpus_ == nullptr || steps_ < 2) {
    return sums;
  }
  const std::vector<std::uint64_t> ends = gpu_ends();
  const bool has_all = steps_ <= static_cast<std::int64_t>(kWaits);
  const std::uint64_t begin = has_all ? first_gpu_phase_ : ends.front();
  lock.unlock();  // training goes on while this thread waits for the GPU
  std::vector<core::GpuPhase> phases = core::gpu_phases_between(*gpus_, begin, ends.back());
  std::erase_if(phases, [&](const core::GpuPhase& phase) { return phase.thread != trains_; });
  core::tell_in_gpu_time(sums, std::move(phases), ends);
  return sums;
}

// Sums in the time of the host.
StepSums StepTimes::host_steps() const {
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
  sums.longest = to_seconds(std::max(longest_, last_end_.at - previous_end_.at));
  sums.efforts = last_efforts_;
  for (std::size_t i = 0; i < kEfforts && steps_ > 1; ++i) {
    sums.efforts[i].count -= first_efforts_[i].count;
    sums.efforts[i].seconds -= first_efforts_[i].seconds;
    sums.efforts[i].bytes -= first_efforts_[i].bytes;
  }
  sums.facts = facts_;
  sums.facts[static_cast<std::size_t>(Fact::rows)] =
      rows_ / static_cast<double>(std::max<std::int64_t>(1, updates_));  // a last batch may be short
  return sums;
}

void StepTimes::reset() {
  const Clock::time_point now = Clock::now();
  const Times open = core::SpanThread::of_this_thread() == thread_ ? thread_->open_times(now) : Times{};
  const std::lock_guard lock(thread_->mutex);
  started_ = now;
  std::ranges::transform(open, phases_.begin(), std::negate());  // end() adds the full time of these phases later
  steps_ = 0;
  first_gpu_phase_ = gpus_ != nullptr ? core::next_gpu_phase(*gpus_) : 0;
  first_end_ = previous_end_ = last_end_ = {now, phases_, first_gpu_phase_};
  first_efforts_ = last_efforts_ = {};
  longest_ = nanoseconds(0);
  rows_ = 0;
  updates_ = 0;
  totals_.reset();
  core::restart_peaks();
}

}  // namespace tandem::inline v0
