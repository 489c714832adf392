#include <tandem/parallel/step_times.h>

#include <algorithm>

namespace tandem::inline v0::parallel {

namespace {

// Never reset, so that several may collect at once: each remembers where it started.
std::array<std::atomic<std::int64_t>, kPhases> nanoseconds{};

std::int64_t total(Phase phase) noexcept {
  return nanoseconds[static_cast<std::size_t>(phase)].load(std::memory_order_relaxed);
}

}  // namespace

std::atomic<int> detail::step_time_collectors{0};

void detail::add_time(Phase phase, std::chrono::nanoseconds time) noexcept {
  nanoseconds[static_cast<std::size_t>(phase)].fetch_add(time.count(), std::memory_order_relaxed);
}

const char* to_string(Phase phase) noexcept {
  constexpr const char* kNames[kPhases] = {"scatter",  "replicate", "forward",  "gather",
                                           "backward", "reduce",    "optimizer"};
  return kNames[static_cast<std::size_t>(phase)];
}

StepTimes::StepTimes() noexcept {
  reset();
  detail::step_time_collectors.fetch_add(1, std::memory_order_relaxed);
}

StepTimes::~StepTimes() { detail::step_time_collectors.fetch_sub(1, std::memory_order_relaxed); }

double StepTimes::seconds(Phase phase) const noexcept {
  const auto since = [&](Phase p) { return total(p) - start_[static_cast<std::size_t>(p)]; };
  std::int64_t time = since(phase);
  if (phase == Phase::backward) {
    time = std::max<std::int64_t>(0, time - since(Phase::reduce));  // a part of it, unless nobody counts backward()
  }
  return 1e-9 * static_cast<double>(time);
}

void StepTimes::reset() noexcept {
  for (std::size_t i = 0; i < kPhases; ++i) {
    start_[i] = total(static_cast<Phase>(i));
  }
}

}  // namespace tandem::inline v0::parallel
