#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/core/device.h>
#include <tandem/core/function_ref.h>

namespace tandem::inline v0::autograd {

/// Internal: a backward pass over several devices, with one lane per device. A lane holds, in the order of the pass,
/// the nodes that write the memory of its device. A node that writes several devices is a meeting point: its lanes
/// pause until it has run.
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
  };

  void record(detail::StepRecorder& recorder, core::FunctionRef<void(Node&)> process) const;
  bool is_ready(std::size_t lane) const;
  void arrive(Lane& lane);
  void finish(std::size_t index);

  std::vector<Task> tasks_;
  std::vector<Lane> lanes_;
  std::vector<std::size_t> meetings_;  // the lanes of all tasks, one task after another
};

}  // namespace tandem::inline v0::autograd
