#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/core/function_ref.h>
#include <tandem/core/spin.h>

namespace tandem::inline v0::autograd {

/// Internal: a backward pass over several devices, with one lane per device. A lane holds, in the order of the pass,
/// the nodes that write the memory of its device. A node that writes several devices is a meeting point: its lanes
/// pause until it has run. Any number of threads walk the lanes. Each thread has a lane of its own, and takes other
/// lanes that have no thread or whose thread is busy elsewhere. Two threads therefore serve the same devices in every
/// pass, and a single thread can finish the whole pass.
class DeviceLanes {
 public:
  /// `order` is topological. The span and its nodes must outlive this object.
  explicit DeviceLanes(std::span<Node* const> order);

  /// Calls process(node) for every node. After a failure no further node is started, and the first error is rethrown.
  /// A step that is being recorded runs on this thread alone.
  void run(core::FunctionRef<void(Node&)> process);

 private:
  struct Task {
    Node* node;
    std::size_t first;    // index in meetings_ of the task's first lane, which runs the node
    std::size_t lanes;    // number of lanes that meet here
    std::size_t missing;  // number of those lanes that have not arrived yet
  };
  struct Lane {
    Device device;
    std::vector<std::size_t> tasks;
    std::size_t next = 0;
    bool taken = false;    // a thread is working on this lane
    bool awaited = false;  // its own thread will take it as soon as it is ready
  };

  void record(detail::StepRecorder& recorder, core::FunctionRef<void(Node&)> process) const;
  void walk(std::size_t own, core::FunctionRef<void(Node&)> process);
  bool is_ready(std::size_t lane) const;
  std::size_t choose(std::size_t own) const;
  void arrive(Lane& lane);
  void finish(std::size_t index);
  void wait(std::size_t own, std::unique_lock<core::SpinLock>& lock);
  void announce();

  std::vector<Task> tasks_;
  std::vector<Lane> lanes_;
  std::vector<std::size_t> meetings_;  // the lanes of all tasks, one task after another
  core::SpinLock mutex_;               // guards all members; not held during `process`
  std::condition_variable_any progress_;
  std::atomic<std::uint32_t> events_{0};  // counts events for which other threads may wait
  int waiting_ = 0;
  std::size_t remaining_ = 0;
  std::exception_ptr failure_;
};

}  // namespace tandem::inline v0::autograd
