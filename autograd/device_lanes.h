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

/// Internal: a backward pass over several devices, one lane each. A lane is the nodes that write a device's memory, in
/// the order of the pass; a node that writes several devices is a meeting point, where its lanes stand still until it
/// has run. Any number of threads walk the lanes. Each has one of its own, and takes others that nobody has or whose
/// thread is busy elsewhere: so two threads have the same devices in every pass, and a single one gets through.
class DeviceLanes {
 public:
  /// `order` is topological; it and its nodes must live as long.
  explicit DeviceLanes(std::span<Node* const> order);

  /// Calls process(node) for every node. After a failure no further node is started, and the first one is rethrown.
  void run(core::FunctionRef<void(Node&)> process);

 private:
  struct Task {
    Node* node;
    std::size_t first;    // of its lanes in meetings_; that one runs it
    std::size_t lanes;    // how many meet there
    std::size_t missing;  // of those, not arrived yet
  };
  struct Lane {
    Device device;
    std::vector<std::size_t> tasks;
    std::size_t next = 0;
    bool taken = false;    // by a thread
    bool awaited = false;  // its own thread will take it as soon as it is ready
  };

  void walk(std::size_t own, core::FunctionRef<void(Node&)> process);
  bool is_ready(std::size_t lane) const;
  std::size_t choose(std::size_t own) const;
  void arrive(Lane& lane);
  void finish(std::size_t index);
  void wait(std::size_t own, std::unique_lock<core::SpinLock>& lock);
  void announce();

  std::vector<Task> tasks_;
  std::vector<Lane> lanes_;
  std::vector<std::size_t> meetings_;  // the lanes of all tasks, one task after the other
  core::SpinLock mutex_;               // around all but `process`
  std::condition_variable_any progress_;
  std::atomic<std::uint32_t> events_{0};  // things that others may have waited for
  int waiting_ = 0;
  std::size_t remaining_ = 0;
  std::exception_ptr failure_;
};

}  // namespace tandem::inline v0::autograd
