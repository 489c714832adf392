#pragma once

#include <memory>

#include <tandem/core/device.h>
#include <tandem/core/function_ref.h>

// Internal: the launches of a step as one graph of a GPU. Needs no CUDA header.

namespace tandem::inline v0::graph {

class GpuGraph {
 public:
  virtual ~GpuGraph() = default;

  /// Where in the step the next launches stand: behind so many pieces of host work.
  using NoteWorks = core::FunctionRef<void(std::size_t works)>;
  /// What `launches` launches on `device`, without running it. It calls its argument whenever host work would have been
  /// done. Throws what CUDA or the launches say.
  static std::unique_ptr<GpuGraph> capture(Device device, core::FunctionRef<void(NoteWorks)> launches);

  /// The host's work is done piece by piece, with this before the first and after each: keeps the states that the
  /// launches there read.
  virtual void note_works(std::size_t works) = 0;
  /// Runs it on the stream it was captured on.
  virtual void launch() = 0;
  /// Whether this thread's current stream is that one.
  virtual bool on_current_stream() const = 0;
};

}  // namespace tandem::inline v0::graph
