#include <tandem/autograd/device_lanes.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <unordered_map>

#include <tandem/autograd/lane_stages.h>
#include <tandem/core/spin.h>
#include <tandem/core/thread_pool.h>

namespace tandem::inline v0::autograd {

namespace {

// Longer than most nodes of a small model, and longer than the usual lag between two replicas.
constexpr auto kPatience = std::chrono::microseconds(100);

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

DeviceLanes::DeviceLanes(std::span<Node* const> order) : remaining_(order.size()) {
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
  lanes_.front().awaited = true;  // reserves the lane for the calling thread, even if another thread is faster
  core::ThreadPool::instance().for_each_lane(static_cast<std::int64_t>(lanes_.size()),
                                             [&](std::int64_t lane) { walk(static_cast<std::size_t>(lane), process); });
  if (failure_) {
    std::rethrow_exception(failure_);
  }
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

void DeviceLanes::walk(std::size_t own, core::FunctionRef<void(Node&)> process) {
  std::unique_lock lock(mutex_);
  lanes_[own].awaited = false;
  while (remaining_ > 0 && !failure_) {
    const std::size_t chosen = choose(own);
    if (chosen == lanes_.size()) {
      wait(own, lock);
      continue;
    }
    Lane& lane = lanes_[chosen];
    lane.taken = true;
    do {
      const std::size_t index = lane.tasks[lane.next];
      lock.unlock();
      try {
        process(*tasks_[index].node);
        lock.lock();
        finish(index);
      } catch (...) {
        lock.lock();
        failure_ = failure_ ? failure_ : std::current_exception();
      }
      announce();
    } while (!failure_ && is_ready(chosen));
    lane.taken = false;
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

// A lane to work on, preferably `own`; lanes_.size() if no lane is ready.
std::size_t DeviceLanes::choose(std::size_t own) const {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const std::size_t lane = (own + i) % lanes_.size();
    if (!lanes_[lane].taken && !lanes_[lane].awaited && is_ready(lane)) {
      return lane;
    }
  }
  return lanes_.size();
}

void DeviceLanes::arrive(Lane& lane) {
  if (lane.next < lane.tasks.size()) {
    --tasks_[lane.tasks[lane.next]].missing;
  }
}

void DeviceLanes::finish(std::size_t index) {
  --remaining_;
  const Task& task = tasks_[index];
  for (std::size_t i = task.first; i < task.first + task.lanes; ++i) {
    Lane& lane = lanes_[meetings_[i]];
    ++lane.next;
    arrive(lane);
  }
}

void DeviceLanes::wait(std::size_t own, std::unique_lock<core::SpinLock>& lock) {
  lanes_[own].awaited = true;
  const std::uint32_t seen = events_.load(std::memory_order_relaxed);
  const auto has_news = [&] { return events_.load(std::memory_order_acquire) != seen; };
  lock.unlock();
  const bool came = core::spin_until(kPatience, has_news);
  lock.lock();
  if (!came) {
    ++waiting_;
    progress_.wait(lock, has_news);
    --waiting_;
  }
  lanes_[own].awaited = false;
}

void DeviceLanes::announce() {
  events_.fetch_add(1, std::memory_order_release);
  if (waiting_ > 0) {
    progress_.notify_all();
  }
}

}  // namespace tandem::inline v0::autograd
