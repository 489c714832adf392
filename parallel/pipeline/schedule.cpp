#include <tandem/parallel/pipeline/schedule.h>

#include <algorithm>

namespace tandem::inline v0::parallel {

double bubble_of(std::size_t stages, std::size_t microbatches) {
  return static_cast<double>(stages - 1) / static_cast<double>(microbatches + stages - 1);
}

double time_of(Schedule schedule, const std::vector<StageCost>& stages, std::size_t microbatches) {
  std::vector<double> free_at(stages.size());
  std::vector<double> ends;  // of each task
  for (const auto& [stage, action, needs] : detail::tasks_of(schedule, stages.size(), microbatches)) {
    const double begin = std::max(free_at[stage], needs ? ends[*needs] : 0);
    free_at[stage] = begin + (action.is_backward ? stages[stage].backward : stages[stage].forward);
    ends.push_back(free_at[stage]);
  }
  return *std::ranges::max_element(free_at);
}

std::vector<detail::StageAction> detail::actions_of(Schedule schedule, std::size_t stage, std::size_t stages,
                                                    std::size_t microbatches) {
  const std::size_t ahead = schedule == Schedule::gpipe ? microbatches : std::min(microbatches, stages - 1 - stage);
  std::vector<StageAction> actions;
  for (std::size_t m = 0; m < microbatches + ahead; ++m) {
    if (m < microbatches) {
      actions.push_back({.is_backward = false, .microbatch = m});
    }
    if (m >= ahead) {
      actions.push_back({.is_backward = true, .microbatch = m - ahead});
    }
  }
  return actions;
}

std::vector<detail::StageTask> detail::tasks_of(Schedule schedule, std::size_t stages, std::size_t microbatches) {
  struct Lane {
    std::vector<StageAction> actions;
    std::size_t next = 0;
    std::vector<std::optional<std::size_t>> forward, backward;  // the tasks of each micro-batch
  };
  std::vector<Lane> lanes(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    lanes[s].actions = actions_of(schedule, s, stages, microbatches);
    lanes[s].forward.resize(microbatches);
    lanes[s].backward.resize(microbatches);
  }
  std::vector<StageTask> tasks;
  while (tasks.size() < 2 * microbatches * stages) {
    for (std::size_t s = 0; s < stages; ++s) {
      for (Lane& lane = lanes[s]; lane.next < lane.actions.size(); ++lane.next) {
        const StageAction action = lane.actions[lane.next];
        const bool starts = s == (action.is_backward ? stages - 1 : 0);
        const std::optional<std::size_t> needs =
            starts ? std::nullopt
                   : (action.is_backward ? lanes[s + 1].backward : lanes[s - 1].forward)[action.microbatch];
        if (!starts && !needs) {
          break;
        }
        (action.is_backward ? lane.backward : lane.forward)[action.microbatch] = tasks.size();
        tasks.push_back({.stage = s, .action = action, .needs = needs});
      }
    }
  }
  return tasks;
}

}  // namespace tandem::inline v0::parallel
