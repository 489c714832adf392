#include <tandem/parallel/step_exchange.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tandem/parallel/comm/on_cpu.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

using telemetry::RankSteps;

StepExchange::StepExchange(ProcessGroup& group)
    : rank_(static_cast<std::size_t>(group.rank())),
      ranks_(static_cast<std::size_t>(group.size())),
      values_(RankSteps().to_values().size()),
      record_(zeros({static_cast<std::int64_t>(ranks_ * values_)}, on_cpu(DType::f64))),
      gather_(group.plan_all_gather(record_.raw(), {.purpose = "the times of steps"})) {}

telemetry::Ranks StepExchange::run(const StepTimes& times) {
  using Clock = std::chrono::steady_clock;
  RankSteps mine = RankSteps::of(times);
  const std::span<double> values(static_cast<double*>(record_.raw().data()), ranks_ * values_);
  gather_.run();  // the ranks have arrived
  const Clock::time_point begin = Clock::now();
  gather_.run();
  mine.latency_us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  std::ranges::copy(mine.to_values(), values.subspan(rank_ * values_).begin());
  gather_.run();
  std::vector<RankSteps> ranks;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    ranks.push_back(RankSteps::from_values(values.subspan(rank * values_, values_)));
  }
  return telemetry::Ranks(std::move(ranks));
}

}  // namespace tandem::inline v0::parallel
