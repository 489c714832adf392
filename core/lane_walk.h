#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include <tandem/core/function_ref.h>
#include <tandem/core/spin.h>

namespace tandem::inline v0::core {

/// Internal: tasks in lanes, such as the nodes of a backward pass on each device, or the micro-batches of each stage of
/// a pipeline. A lane's tasks run in order, one at a time; lanes run side by side. Any number of threads walk the
/// lanes. Each thread has a lane of its own, and takes other lanes that have no thread or whose thread is busy
/// elsewhere. Two threads therefore serve the same lanes in every walk, and a single thread can finish all tasks.
class LaneWalk {
 public:
  /// The functions that a walk calls for a lane.
  struct Tasks {
    /// Whether the lane's next task may start now. It may look at whatever finish() writes.
    FunctionRef<bool(std::size_t lane)> is_ready;
    /// Runs the lane's next task. Other lanes' tasks run at the same time.
    FunctionRef<void(std::size_t lane)> process;
    /// Counts the lane's next task as done; must be short and not throw. Calls of is_ready() and finish() never
    /// overlap.
    FunctionRef<void(std::size_t lane)> finish;
  };

  explicit LaneWalk(std::size_t lanes) : lanes_(lanes) {}
  /// Runs `count` tasks, on the pool's threads and the calling one, which has lane 0. After a failure no further task
  /// is started, and the first error is rethrown. Some lane must be ready until all tasks are done.
  void run(std::size_t count, const Tasks& tasks);

 private:
  struct Lane {
    bool taken = false;    // a thread is working on this lane
    bool awaited = false;  // its own thread will take it as soon as it is ready
  };

  void walk(std::size_t own, const Tasks& tasks);
  std::size_t choose(std::size_t own, const Tasks& tasks) const;
  void wait(std::size_t own, std::unique_lock<SpinLock>& lock);
  void announce();

  std::vector<Lane> lanes_;
  SpinLock mutex_;  // guards all members; not held during `process`
  std::condition_variable_any progress_;
  std::atomic<std::uint32_t> events_{0};  // counts events for which other threads may wait
  int waiting_ = 0;
  std::size_t remaining_ = 0;
  std::exception_ptr failure_;
};

}  // namespace tandem::inline v0::core
