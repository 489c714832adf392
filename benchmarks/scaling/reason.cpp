#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/cores.h>

#include "scaling/report.h"
#include "step/measure.h"

namespace bench::scaling {

using tandem::Phase;

namespace {

double of(const Timed& timed, Phase phase) { return timed.part_us[static_cast<std::size_t>(phase)]; }

// Time of the work that devices share: forward, backward and the loss. In some ways the loss is part of forward, in
// others of the rest.
double computing(const Timed& timed) {
  return of(timed, Phase::forward) + of(timed, Phase::backward) + timed.part_us.back();
}

/// Time beyond one device's share, with its cause.
struct Cost {
  std::string what;
  double us;
  std::string meaning;
};

std::vector<Cost> costs_of(const Timed& way, const Timed& base, const Timed& part, double share) {
  const double fair = share * computing(base);
  const double alone = computing(part);
  const double update = share * of(base, Phase::optimizer);
  std::vector<Cost> costs{
      {"parts of the batch being small", alone - fair,
       fmt::format(
           "Forward and backward of {} rows take {:.0f} us, and {:.0f} us if they cost per row what {} rows do: "
           "a larger batch loses less",
           part.way.batch, alone, fair, base.way.batch)},
      {"forward and backward side by side", computing(way) - alone,
       fmt::format("Forward and backward take {:.0f} us, one part alone {:.0f}: handing over, waiting for the last "
                   "replica, caches "
                   "and memory that replicas share",
                   computing(way), alone)},
      {"optimizer", of(way, Phase::optimizer) - update,
       fmt::format("The update takes {:.0f} us, one device's {:.0f}: {}", of(way, Phase::optimizer),
                   of(base, Phase::optimizer),
                   of(way, Phase::optimizer) > 1.1 * of(base, Phase::optimizer)
                       ? "parameters and gradients are where other devices used them last"
                       : "it is one update of all parameters, however many devices there are")}};
  for (const Phase phase : {Phase::scatter, Phase::replicate, Phase::gather, Phase::reduce}) {
    costs.push_back({to_string(phase), of(way, phase),
                     "One device has no such thing; it hardly grows with the batch, so a larger one loses less"});
  }
  std::ranges::sort(costs, std::ranges::greater(), &Cost::us);
  return costs;
}

}  // namespace

std::string Report::reason() const {
  const Row* best = nullptr;
  for (const Row& row : plan.rows) {
    const bool counts = row.strong == plan.rows.front().strong && row.devices == settings.devices &&
                        timed(row.way).way.parallel != Parallel::plain;
    if (counts && (best == nullptr || median(timed(row.way).us) < median(timed(best->way).us))) {
      best = &row;
    }
  }
  if (best == nullptr || settings.devices == 1) {
    return "";
  }
  const Timed& way = timed(best->way);
  const Timed& base = timed(best->base);
  const double share = static_cast<double>(way.way.batch) / (best->devices * static_cast<double>(base.way.batch));
  const double takes = median(way.us);
  const double ideal = share * median(base.us);
  std::string text = fmt::format("{}, {} devices: {:.2f} times the rate of one device, {:.0f} us per step", best->name,
                                 best->devices, rate(best->way, best->base).value, takes);
  if (takes <= 1.01 * ideal) {
    return text + ": nothing is lost.";
  }
  text += fmt::format(" where {:.0f} would be {} times", ideal, best->devices);
  if (best->threads) {
    text += fmt::format("; {} threads inside the ops of one device: {:.2f} times", way.way.threads,
                        rate(*best->threads, best->base).value);
  }
  const std::vector<Cost> costs = costs_of(way, base, timed(*best->part), share);
  text += fmt::format(". Beyond its share of one device's time: {}, {:.0f} us", costs[0].what, costs[0].us);
  for (std::size_t i = 1; i < 3 && costs[i].us > 0.01 * takes; ++i) {
    text += fmt::format("; {}, {:.0f}", costs[i].what, costs[i].us);
  }
  text += ". ";
  if (2 * measured.disturbed > settings.rounds) {
    return text + "But other programs took cores in most rounds: measure again when they have ended.";
  }
  const int cores = tandem::core::available_cores();
  if (settings.type == tandem::DeviceType::cpu && way.way.threads > cores) {
    return text + fmt::format("There are {} threads on {} cores.", way.way.threads, cores);
  }
  return text + costs[0].meaning + ".";
}

}  // namespace bench::scaling
