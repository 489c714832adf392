#include <tandem/core/gpu_steps.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

namespace tandem::inline v0::core {

namespace {

using Clock = Span::Clock;

double to_seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::optional<Phase> phase_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kPhases; ++i) {
    if (name == to_string(static_cast<Phase>(i))) {
      return static_cast<Phase>(i);
    }
  }
  return std::nullopt;
}

// Replaces the length of each phase by that without the phases inside it.
void subtract_inner(std::vector<GpuPhase>& phases) {
  std::ranges::stable_sort(phases, std::ranges::less(), &GpuPhase::began);
  std::vector<std::size_t> outer;  // the phases around the current one, the innermost last
  std::vector<Clock::duration> inner(phases.size());
  for (std::size_t i = 0; i < phases.size(); ++i) {
    while (!outer.empty() && phases[outer.back()].ended <= phases[i].began) {
      outer.pop_back();
    }
    if (!outer.empty()) {
      inner[outer.back()] += std::min(phases[i].ended, phases[outer.back()].ended) - phases[i].began;
    }
    outer.push_back(i);
  }
  for (std::size_t i = 0; i < phases.size(); ++i) {
    phases[i].ended -= inner[i];
  }
  std::ranges::sort(phases, std::ranges::less(), &GpuPhase::number);
}

// The number of the step that a phase is of.
std::size_t step_of(const GpuPhase& phase, const std::vector<std::uint64_t>& ends) {
  return static_cast<std::size_t>(std::ranges::upper_bound(ends, phase.number) - ends.begin());
}

// Whether the GPU has begun nearly each phase by the time that the host has queued it. Phases that are launched at
// once, or only wait, tell nothing.
bool is_ahead(const std::vector<GpuPhase>& phases) {
  std::size_t begun = 0;
  std::size_t all = 0;
  for (const GpuPhase& phase : phases) {
    const std::optional<Phase> which = phase_of(phase.name);
    if (which == Phase::forward || which == Phase::backward || which == Phase::optimizer) {
      begun += phase.was_begun ? 1 : 0;
      ++all;
    }
  }
  return all > 0 && 10 * begun >= 9 * all;
}

}  // namespace

void tell_in_gpu_time(StepSums& sums, const std::vector<GpuPhase>& phases, const std::vector<std::uint64_t>& ends) {
  const double gpu = sums.facts[static_cast<std::size_t>(Fact::gpu)] - 1;
  if (phases.empty() || std::ranges::any_of(phases, [&](const GpuPhase& phase) { return phase.gpu != gpu; })) {
    return;
  }
  const std::size_t first = step_of(phases.front(), ends);
  if (first + 1 >= ends.size()) {
    return;
  }
  std::vector<Clock::time_point> end_of(ends.size(), phases.front().ended);
  for (const GpuPhase& phase : phases) {
    for (std::size_t step = step_of(phase, ends); step < ends.size(); ++step) {
      end_of[step] = std::max(end_of[step], phase.ended);
    }
  }
  std::vector<GpuPhase> alone = phases;
  subtract_inner(alone);
  std::vector<std::array<double, kPhases>> seconds(ends.size());
  for (const GpuPhase& phase : alone) {
    const std::optional<Phase> which = phase_of(phase.name);
    const std::size_t step = step_of(phase, ends);
    if (which && step < ends.size()) {
      seconds[step][static_cast<std::size_t>(*which)] += to_seconds(phase.ended - phase.began);
    }
  }
  const std::size_t count = ends.size() - 1 - first;
  const double scale = static_cast<double>(sums.count) / static_cast<double>(count);
  sums.elapsed = scale * to_seconds(end_of.back() - end_of[first]);
  sums.longest = 0;
  sums.phases = {};
  sums.waits.clear();
  for (std::size_t step = first + 1; step < ends.size(); ++step) {
    const auto in = [&](Phase phase) { return seconds[step][static_cast<std::size_t>(phase)]; };
    sums.longest = std::max(sums.longest, to_seconds(end_of[step] - end_of[step - 1]));
    sums.waits.push_back(in(Phase::reduce) + in(Phase::collective) + in(Phase::pipeline));
    std::ranges::transform(sums.phases, seconds[step], sums.phases.begin(),
                           [&](double sum, double more) { return sum + scale * more; });
  }
  for (EffortSum& effort : sums.efforts) {
    effort.seconds = 0;
  }
  sums.is_gpu_time = true;
  sums.is_gpu_ahead = is_ahead(phases);
}

}  // namespace tandem::inline v0::core
