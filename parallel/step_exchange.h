#pragma once

#include <cstddef>

#include <tandem/core/step_times.h>
#include <tandem/parallel/comm/work.h>
#include <tandem/telemetry/rank_steps.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Internal: the ranks of a group tell each other about their steps.
class StepExchange {
 public:
  /// A collective.
  explicit StepExchange(ProcessGroup& group);
  /// The steps of all ranks, with the duration of the smallest exchange. A collective.
  telemetry::Ranks run(const StepTimes& times);
  std::size_t rank() const noexcept { return rank_; }

 private:
  std::size_t rank_;
  std::size_t ranks_;
  std::size_t values_;  // of each rank
  Tensor record_;
  PlannedCollective gather_;
};

}  // namespace tandem::inline v0::parallel
