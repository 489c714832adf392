#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/pipeline/schedule.h>

namespace tandem::inline v0::parallel {

/// A stage of a Pipeline has done this, without the first step.
struct StageTimes {
  std::string name{};              ///< "stage 0 of 2, layers 0-1, on cpu:0"
  std::int64_t passes = 0;         ///< micro-batches, each forwards and backwards
  double forward = 0;              ///< seconds in forward passes, with the loss on the last stage
  double backward = 0;             ///< seconds in backward passes
  std::size_t most_in_flight = 0;  ///< most micro-batches whose activations the stage kept at a time
};

/// Says where the time of a Pipeline's steps went; the first step, which is not typical, counts only if there is no
/// other. On GPUs the times are those of the host.
struct PipelineReport {
  Schedule schedule = Schedule::one_f_one_b;  ///< see PipelineOptions
  std::size_t microbatches = 0;               ///< of the last step
  std::int64_t steps = 0;                     ///< number of steps that are counted
  double seconds = 0;                         ///< wall-clock time of these steps
  std::vector<StageTimes> stages{};           ///< in order

  /// The share of the stages' time in which they were idle.
  TANDEM_API double bubble() const;
  /// The part of bubble() that stages of equal cost would have: bubble_of().
  TANDEM_API double bubble_of_schedule() const;
  /// The part of bubble() that comes from unequal stages. Below 0 where stages fit into each other better than equal
  /// ones.
  TANDEM_API double bubble_of_imbalance() const;
};

/// A line for each stage, and the bubble beside its formula.
TANDEM_API std::string to_string(const PipelineReport& report);

}  // namespace tandem::inline v0::parallel
