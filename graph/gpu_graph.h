#pragma once

#include <memory>

#include <tandem/core/device.h>
#include <tandem/core/function_ref.h>

// Internal: launches of a step as one GPU graph. This header needs no CUDA header.

namespace tandem::inline v0::graph {

class GpuGraph {
 public:
  virtual ~GpuGraph() = default;

  /// Reports the position of the following launches in the step: after `works` pieces of host work.
  using NoteWorks = core::FunctionRef<void(std::size_t works)>;
  /// Captures everything that `launches` launches on `device`, without running it. `launches` calls its argument at
  /// each position where host work would run. Throws the errors of CUDA and of the launches.
  static std::unique_ptr<GpuGraph> capture(Device device, core::FunctionRef<void(NoteWorks)> launches);

  /// Saves the states that the launches at this position read. Call this before the first piece of host work and after
  /// each piece.
  virtual void note_works(std::size_t works) = 0;
  /// Runs the graph on the stream that was current when it was captured.
  virtual void launch() = 0;
  /// Whether that stream is this thread's current stream.
  virtual bool on_current_stream() const = 0;
};

}  // namespace tandem::inline v0::graph
