#include <tandem/parallel/pipeline/report.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>

namespace tandem::inline v0::parallel {

namespace {

double busy(const StageTimes& stage) { return stage.forward + stage.backward; }

// The mean cost of a micro-batch on each stage.
std::vector<StageCost> costs_of(const PipelineReport& report) {
  std::vector<StageCost> costs;
  for (const StageTimes& stage : report.stages) {
    const auto passes = static_cast<double>(std::max<std::int64_t>(stage.passes, 1));
    costs.push_back({.forward = stage.forward / passes, .backward = stage.backward / passes});
  }
  return costs;
}

}  // namespace

double PipelineReport::bubble() const {
  const double all = seconds * static_cast<double>(stages.size());
  return all > 0 ? 1 - std::transform_reduce(stages.begin(), stages.end(), 0.0, std::plus(), busy) / all : 0;
}

double PipelineReport::bubble_of_schedule() const { return bubble_of(stages.size(), microbatches); }

double PipelineReport::bubble_of_imbalance() const {
  const std::vector<StageCost> costs = costs_of(*this);
  double work = 0;
  for (const StageCost& cost : costs) {
    work += static_cast<double>(microbatches) * (cost.forward + cost.backward);
  }
  const double time = time_of(schedule, costs, microbatches) * static_cast<double>(costs.size());
  return time > 0 ? 1 - work / time - bubble_of_schedule() : 0;
}

std::string to_string(const PipelineReport& report) {
  if (report.steps == 0) {
    return fmt::format("pipeline: {} stages, no steps yet\n", report.stages.size());
  }
  std::string text =
      fmt::format("pipeline: {} stages, {} micro-batches, {}; {} steps of {:.2f} ms\n", report.stages.size(),
                  report.microbatches, report.schedule == Schedule::gpipe ? "GPipe" : "1F1B", report.steps,
                  1e3 * report.seconds / static_cast<double>(std::max<std::int64_t>(report.steps, 1)));
  const std::vector<StageCost> costs = costs_of(report);
  for (std::size_t i = 0; i < report.stages.size(); ++i) {
    const StageTimes& stage = report.stages[i];
    text += fmt::format("  {}: {:.0f} us forward, {:.0f} us backward, busy {:.1f} %, at most {} in flight\n",
                        stage.name, 1e6 * costs[i].forward, 1e6 * costs[i].backward,
                        report.seconds > 0 ? 100 * busy(stage) / report.seconds : 0, stage.most_in_flight);
  }
  const double schedule = report.bubble_of_schedule();
  const double imbalance = report.bubble_of_imbalance();
  return text + fmt::format(
                    "  bubble {:.1f} %: {:.1f} % of the schedule, (S - 1) / (M + S - 1); {:.1f} % unequal stages; "
                    "{:.1f} % handing over and waiting\n",
                    100 * report.bubble(), 100 * schedule, 100 * imbalance,
                    100 * (report.bubble() - schedule - imbalance));
}

}  // namespace tandem::inline v0::parallel
