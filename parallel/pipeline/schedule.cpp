#include <tandem/parallel/pipeline/schedule.h>

#include <algorithm>

namespace tandem::inline v0::parallel {

double bubble_of(std::size_t stages, std::size_t microbatches) {
  return static_cast<double>(stages - 1) / static_cast<double>(microbatches + stages - 1);
}

double time_of(Schedule schedule, const std::vector<StageCost>& stages, std::size_t microbatches) {
  struct Lane {
    std::vector<detail::StageAction> actions;
    std::size_t next = 0;
    double free_at = 0;
    std::vector<double> forward_at, backward_at;  // when the passes of each micro-batch end; negative: not yet
  };
  std::vector<Lane> lanes;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const std::vector<double> not_yet(microbatches, -1);
    lanes.push_back({.actions = detail::actions_of(schedule, s, stages.size(), microbatches),
                     .forward_at = not_yet,
                     .backward_at = not_yet});
  }
  double end = 0;
  for (std::size_t done = 0; done < 2 * microbatches * stages.size();) {
    for (std::size_t s = 0; s < lanes.size(); ++s) {
      Lane& lane = lanes[s];
      for (; lane.next < lane.actions.size(); ++lane.next, ++done) {
        const auto [is_backward, m] = lane.actions[lane.next];
        const double ready = is_backward ? (s + 1 == lanes.size() ? 0 : lanes[s + 1].backward_at[m])
                                         : (s == 0 ? 0 : lanes[s - 1].forward_at[m]);
        if (ready < 0) {
          break;
        }
        lane.free_at = std::max(lane.free_at, ready) + (is_backward ? stages[s].backward : stages[s].forward);
        (is_backward ? lane.backward_at : lane.forward_at)[m] = lane.free_at;
        end = std::max(end, lane.free_at);
      }
    }
  }
  return end;
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

}  // namespace tandem::inline v0::parallel
