#include <tandem/autograd/device_lanes.h>

#include <algorithm>
#include <cstddef>
#include <unordered_map>

#include <tandem/autograd/lane_stages.h>
#include <tandem/core/lane_walk.h>

namespace tandem::inline v0::autograd {

namespace {

/// The devices to whose memory a node writes: those of its inputs.
void find_devices(Node& node, std::vector<Device>& devices) {
  devices.clear();
  for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
    if (const Edge& edge = node.edge(i); edge.node) {
      const Device device = edge.node->output(edge.output).device;
      if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
        devices.push_back(device);
      }
    }
  }
}

}  // namespace

DeviceLanes::DeviceLanes(std::span<Node* const> order) {
  tasks_.reserve(order.size());
  std::vector<Device> devices;
  for (std::size_t index = 0; index < order.size(); ++index) {
    find_devices(*order[index], devices);
    tasks_.push_back({order[index], meetings_.size(), devices.size(), devices.size()});
    for (const Device device : devices) {
      auto lane = static_cast<std::size_t>(
          std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& l) { return l.device == device; }) -
          lanes_.begin());
      if (lane == lanes_.size()) {
        lanes_.push_back({device, {}});
      }
      lanes_[lane].tasks.push_back(index);
      meetings_.push_back(lane);
    }
  }
  for (Lane& lane : lanes_) {
    arrive(lane);
  }
}

void DeviceLanes::run(core::FunctionRef<void(Node&)> process) {
  if (detail::StepRecorder* recorder = detail::step_recorder(); recorder != nullptr) [[unlikely]] {
    record(*recorder, process);
    return;
  }
  const auto next_of = [&](std::size_t lane) { return lanes_[lane].tasks[lanes_[lane].next]; };
  core::LaneWalk(lanes_.size())
      .run(tasks_.size(), {.is_ready = [&](std::size_t lane) { return is_ready(lane); },
                           .process = [&](std::size_t lane) { process(*tasks_[next_of(lane)].node); },
                           .finish = [&](std::size_t lane) { finish(next_of(lane)); }});
}

// A replay runs the lanes of a stage at the same time. Each lane keeps its order, and every sum its bits.
void DeviceLanes::record(detail::StepRecorder& recorder, core::FunctionRef<void(Node&)> process) const {
  std::unordered_map<const Node*, std::size_t> index_of;
  std::vector<StagedTask> staged(tasks_.size());
  for (std::size_t index = 0; index < tasks_.size(); ++index) {
    const auto first = meetings_.begin() + static_cast<std::ptrdiff_t>(tasks_[index].first);
    staged[index].lanes.assign(first, first + static_cast<std::ptrdiff_t>(tasks_[index].lanes));
    index_of.emplace(tasks_[index].node, index);
  }
  for (std::size_t index = 0; index < tasks_.size(); ++index) {
    for (std::uint32_t i = 0; i < tasks_[index].node->num_edges(); ++i) {
      if (const auto target = index_of.find(tasks_[index].node->edge(i).node.get()); target != index_of.end()) {
        staged[target->second].needs.push_back(index);
      }
    }
  }
  const std::vector<std::size_t> stages = find_stages(staged, lanes_.size());
  const std::size_t last = *std::max_element(stages.begin(), stages.end());
  std::vector<std::size_t> next(lanes_.size());  // position of each lane
  for (std::size_t stage = 0; stage <= last; ++stage) {
    recorder.run_lanes(
        lanes_.size(),
        [&](std::size_t k) {
          const std::vector<std::size_t>& tasks = lanes_[k].tasks;
          for (; next[k] < tasks.size() && stages[tasks[next[k]]] == stage && tasks_[tasks[next[k]]].lanes == 1;
               ++next[k]) {
            process(*tasks_[tasks[next[k]]].node);
          }
        },
        {});
    for (std::size_t index = 0; index < tasks_.size(); ++index) {
      if (stages[index] == stage && tasks_[index].lanes != 1) {
        process(*tasks_[index].node);
        for (std::size_t i = tasks_[index].first; i < tasks_[index].first + tasks_[index].lanes; ++i) {
          ++next[meetings_[i]];
        }
      }
    }
  }
}

// Whether this lane is the one that runs its next node, all lanes have arrived there, and its gradients are complete.
bool DeviceLanes::is_ready(std::size_t lane) const {
  const Lane& l = lanes_[lane];
  if (l.next == l.tasks.size()) {
    return false;
  }
  const Task& task = tasks_[l.tasks[l.next]];
  return meetings_[task.first] == lane && task.missing == 0 && task.node->pending.load(std::memory_order_acquire) == 0;
}

void DeviceLanes::arrive(Lane& lane) {
  if (lane.next < lane.tasks.size()) {
    --tasks_[lane.tasks[lane.next]].missing;
  }
}

void DeviceLanes::finish(std::size_t index) {
  const Task& task = tasks_[index];
  for (std::size_t i = task.first; i < task.first + task.lanes; ++i) {
    Lane& lane = lanes_[meetings_[i]];
    ++lane.next;
    arrive(lane);
  }
}

}  // namespace tandem::inline v0::autograd
