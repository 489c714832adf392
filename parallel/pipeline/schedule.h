#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

/// The order in which a stage of a pipeline works on its micro-batches. Both orders give the same bits: each stage
/// takes the micro-batches one after another, forwards and backwards. With equal stages both also take the same time.
/// They differ in the number of micro-batches whose activations a stage keeps.
enum class Schedule : std::uint8_t {
  /// All forward passes, then all backward passes: a stage keeps the activations of every micro-batch. Huang et al.,
  /// "GPipe" (2019).
  gpipe,
  /// Forward and backward passes in turn as soon as possible: stage s of S keeps at most S - s micro-batches. Narayanan
  /// et al., "PipeDream-Flush" in "Memory-Efficient Pipeline-Parallel DNN Training" (2021).
  one_f_one_b
};

/// The seconds that a stage takes for one micro-batch.
struct StageCost {
  double forward = 0;   ///< the forward pass
  double backward = 0;  ///< the backward pass
};

/// The share of the stages' time that a pipeline of equal stages idles: (S - 1) / (M + S - 1) for S stages and M
/// micro-batches, with either schedule.
TANDEM_API double bubble_of(std::size_t stages, std::size_t microbatches);
/// The seconds of one step of stages with these costs, if handing over takes no time.
TANDEM_API double time_of(Schedule schedule, const std::vector<StageCost>& stages, std::size_t microbatches);

namespace detail {

/// One piece of a stage's work.
struct StageAction {
  bool is_backward = false;
  std::size_t microbatch = 0;
  friend bool operator==(const StageAction&, const StageAction&) = default;
};
/// The work of stage `stage` of `stages`, in order.
std::vector<StageAction> actions_of(Schedule schedule, std::size_t stage, std::size_t stages, std::size_t microbatches);

/// A piece of work of all stages together.
struct StageTask {
  std::size_t stage = 0;
  StageAction action{};
  std::optional<std::size_t> needs{};  // the task of another stage that hands over to this one
};
/// The work of all stages, in an order in which each task comes after those that it needs.
std::vector<StageTask> tasks_of(Schedule schedule, std::size_t stages, std::size_t microbatches);

}  // namespace detail
}  // namespace tandem::inline v0::parallel
