#include <tandem/autograd/lane_stages.h>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace tandem::inline v0::autograd {

namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

class Stages {
 public:
  Stages(std::span<const StagedTask> tasks, std::size_t lanes) : tasks_(tasks), lanes_(lanes), needs_(tasks.size()) {
    std::vector<std::size_t> last(lanes, kNone);
    for (std::size_t index = 0; index < tasks.size(); ++index) {
      needs_[index] = tasks[index].needs;
      for (const std::size_t lane : tasks[index].lanes) {
        if (last[lane] != kNone) {
          needs_[index].push_back(last[lane]);
        }
        last[lane] = index;
      }
    }
    find_latest();
  }

  std::vector<std::size_t> assign() {
    std::vector<std::size_t> stages(tasks_.size(), kNone);
    const std::size_t count = latest_.empty() ? 0 : 1 + *std::max_element(latest_.begin(), latest_.end());
    for (std::size_t stage = 0; stage < count; ++stage) {
      const std::size_t busy = longest_due(stages, stage);
      std::vector<std::size_t> taken(lanes_);
      for (std::size_t index = 0; index < tasks_.size(); ++index) {
        if (stages[index] != kNone || !can_run(stages, index, stage)) {
          continue;
        }
        if (is_meeting(index)) {
          stages[index] = stage;
        } else if (std::size_t& done = taken[tasks_[index].lanes[0]]; latest_[index] <= stage || done < busy) {
          stages[index] = stage;
          ++done;
        }
      }
    }
    return stages;
  }

 private:
  bool is_meeting(std::size_t index) const { return tasks_[index].lanes.size() != 1; }

  // The number of stages between a task and one that needs it.
  std::size_t distance(std::size_t needed, std::size_t index) const {
    const bool in_order = !is_meeting(needed) && tasks_[needed].lanes == tasks_[index].lanes;
    return is_meeting(index) || in_order ? 0 : 1;
  }

  // The last stage of each task, if there are as few stages as possible.
  void find_latest() {
    std::vector<std::size_t> first(tasks_.size());
    std::size_t last = 0;
    for (std::size_t index = 0; index < tasks_.size(); ++index) {
      for (const std::size_t needed : needs_[index]) {
        first[index] = std::max(first[index], first[needed] + distance(needed, index));
      }
      last = std::max(last, first[index]);
    }
    latest_.assign(tasks_.size(), last);
    for (std::size_t index = tasks_.size(); index-- > 0;) {
      for (const std::size_t needed : needs_[index]) {
        latest_[needed] = std::min(latest_[needed], latest_[index] - distance(needed, index));
      }
    }
  }

  // The most tasks of one lane that this stage cannot leave to a later one.
  std::size_t longest_due(const std::vector<std::size_t>& stages, std::size_t stage) const {
    std::vector<std::size_t> due(lanes_);
    for (std::size_t index = 0; index < tasks_.size(); ++index) {
      if (stages[index] == kNone && latest_[index] <= stage && !is_meeting(index)) {
        ++due[tasks_[index].lanes[0]];
      }
    }
    return due.empty() ? 0 : *std::max_element(due.begin(), due.end());
  }

  bool can_run(const std::vector<std::size_t>& stages, std::size_t index, std::size_t stage) const {
    return std::all_of(needs_[index].begin(), needs_[index].end(), [&](std::size_t needed) {
      return stages[needed] != kNone && stages[needed] + distance(needed, index) <= stage;
    });
  }

  std::span<const StagedTask> tasks_;
  std::size_t lanes_;
  std::vector<std::vector<std::size_t>> needs_;  // with the order of each lane
  std::vector<std::size_t> latest_;
};

}  // namespace

std::vector<std::size_t> find_stages(std::span<const StagedTask> tasks, std::size_t lanes) {
  return Stages(tasks, lanes).assign();
}

}  // namespace tandem::inline v0::autograd
