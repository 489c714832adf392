#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tandem::inline v0::autograd {

/// Internal: a task of a backward pass over several devices, see DeviceLanes.
struct StagedTask {
  std::vector<std::size_t> lanes{};  // the lane of the task, or several lanes that meet here
  std::vector<std::size_t> needs{};  // earlier tasks that must be done before
};

/// Cuts a pass into the fewest stages whose lanes can run at the same time. In a stage, the tasks with one lane run
/// first, each lane in its order, and then the meeting points. A task of a lane therefore needs nothing that another
/// lane does in the same stage. Tasks that fit into several stages are put where the other lanes are busy. Returns the
/// stage of each task; `tasks` are in the order of the pass.
std::vector<std::size_t> find_stages(std::span<const StagedTask> tasks, std::size_t lanes);

}  // namespace tandem::inline v0::autograd
