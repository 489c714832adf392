#include <tandem/parallel/diagnose.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/on_cpu.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/telemetry/diagnosis.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

using telemetry::Ranks;
using telemetry::RankSteps;

std::string diagnose(const StepTimes& times) { return telemetry::diagnosis(Ranks({RankSteps::of(times)})); }

std::string diagnose(const StepTimes& times, ProcessGroup& group) {
  const std::vector<double> mine = RankSteps::of(times).to_values();
  const auto size = static_cast<std::int64_t>(mine.size());
  const Tensor all = zeros({group.size() * size}, on_cpu(DType::f64));
  try {
    group.all_gather_into_tensor(all, from_data(mine, {size}, on_cpu(DType::f64)));
  } catch (Error& error) {
    error.add_context("in parallel::diagnose(times, group), which all ranks of the group must call");
    throw;
  }
  const std::vector<double> values = all.to_vector<double>();
  std::vector<RankSteps> ranks;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(group.size()); ++rank) {
    ranks.push_back(RankSteps::from_values(std::span(values).subspan(rank * mine.size(), mine.size())));
  }
  return telemetry::diagnosis(Ranks(std::move(ranks)));
}

}  // namespace tandem::inline v0::parallel
