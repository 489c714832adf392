#include <tandem/core/gpu_steps.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>

namespace tandem::inline v0::core {

namespace {

using Clock = Span::Clock;

double to_seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

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

// A rank with several GPUs has phases on each.
bool has_one_gpu(const StepFacts& facts) {
  const auto of = [&](Fact fact) { return facts[static_cast<std::size_t>(fact)]; };
  return of(Fact::gpu) != 0 && of(Fact::devices) < 2 && of(Fact::idle) == 0;
}

// The part of the host's efforts that belongs to so many steps. What the host does under the GPU's work costs nothing.
EffortSums efforts_in(double steps, const StepSums& host) {
  EffortSums efforts = host.efforts;
  for (EffortSum& effort : efforts) {
    const double share = steps / static_cast<double>(host.count);
    effort = {.count = share * effort.count, .seconds = share * effort.seconds, .bytes = share * effort.bytes};
  }
  for (const Effort hidden : {Effort::read, Effort::allocation, Effort::backward_here, Effort::backward_beside}) {
    efforts[static_cast<std::size_t>(hidden)].seconds = 0;
  }
  return efforts;
}

}  // namespace

void tell_in_gpu_time(StepSums& sums, std::vector<GpuPhase> phases, const std::vector<std::uint64_t>& ends) {
  const double gpu = sums.facts[static_cast<std::size_t>(Fact::gpu)] - 1;
  std::erase_if(phases, [&](const GpuPhase& phase) { return phase.gpu != gpu; });
  const std::size_t first = phases.empty() ? ends.size() : step_of(phases.front(), ends);
  if (!has_one_gpu(sums.facts) || first + 1 >= ends.size()) {
    return;
  }
  std::vector<Clock::time_point> end_of(ends.size(), phases.front().ended);
  for (const GpuPhase& phase : phases) {
    for (std::size_t step = step_of(phase, ends); step < ends.size(); ++step) {
      end_of[step] = std::max(end_of[step], phase.ended);
    }
  }
  subtract_inner(phases);
  std::vector<std::array<double, kPhases>> seconds(ends.size());
  for (const GpuPhase& phase : phases) {
    const std::size_t step = step_of(phase, ends);
    if (step < ends.size()) {
      seconds[step][static_cast<std::size_t>(phase.phase)] += to_seconds(phase.ended - phase.began);
    }
  }
  const std::size_t count = ends.size() - 1 - first;
  StepSums told{.count = static_cast<std::int64_t>(count),
                .elapsed = to_seconds(end_of.back() - end_of[first]),
                .efforts = efforts_in(static_cast<double>(count), sums),
                .facts = sums.facts,
                .is_gpu_time = true};
  for (std::size_t step = first + 1; step < ends.size(); ++step) {
    const auto in = [&](Phase phase) { return seconds[step][static_cast<std::size_t>(phase)]; };
    told.longest = std::max(told.longest, to_seconds(end_of[step] - end_of[step - 1]));
    told.waits.push_back(in(Phase::reduce) + in(Phase::collective) + in(Phase::pipeline));
    std::ranges::transform(told.phases, seconds[step], told.phases.begin(), std::plus());
  }
  sums = std::move(told);
}

}  // namespace tandem::inline v0::core
