#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/core/span.h>

// Internal: what GPUs and NVIDIA's profilers hear of spans. In a build without CUDA nobody listens.

namespace tandem::inline v0::core {

/// An open span has these open on a GPU, or in a profiler.
struct GpuMark {
  std::uint64_t phase = 0;  ///< the number of the phase; 0: none is recorded
  bool is_range = false;    ///< whether the thread has opened an NVTX range
};

/// The number of listeners: existing GpuPhases, and those that asked for ranges.
TANDEM_API extern std::atomic<int> gpu_listeners;

/// Begins a span of the calling thread. `phase` is the phase that it is, if it is to be timed on the thread's GPU.
TANDEM_API GpuMark begin_on_gpu(const Span& span, std::optional<Phase> phase) noexcept;
TANDEM_API void end_on_gpu(const GpuMark& mark) noexcept;

/// Spans are NVTX ranges from emit_ranges(true) to the emit_ranges(false) that belongs to it.
TANDEM_API void emit_ranges(bool on) noexcept;

/// A phase in the time of a GPU: from where the stream of the thread reaches the beginning of the phase to where it
/// reaches the end. Waiting for the host to queue more lies within.
struct GpuPhase {
  std::uint64_t number = 0;  ///< in the order in which phases begin
  Phase phase = {};
  int gpu = 0;
  std::thread::id thread = {};  ///< the host's, which queued it
  Span::Clock::time_point began = {};
  Span::Clock::time_point ended = {};
};

/// Records the phases of a rank's threads on their GPUs while it exists.
class GpuPhases;
/// The record of the calling thread's rank, which all that hold it share; null in a build without CUDA.
TANDEM_API std::shared_ptr<GpuPhases> gpu_phases_of_this_rank();
/// From here on the clocks of GPUs are compared with the host's anew: they drift apart. Waits for each GPU at its next
/// phase.
TANDEM_API void compare_gpu_clocks(GpuPhases& phases);
/// The number that the next phase will have.
TANDEM_API std::uint64_t next_gpu_phase(GpuPhases& phases) noexcept;
/// The phases from number `begin` to before `end` that have ended, without the oldest where there are more than 32,768.
/// Waits for the GPUs; all phases on a GPU that has failed are left out.
TANDEM_API std::vector<GpuPhase> gpu_phases_between(GpuPhases& phases, std::uint64_t begin, std::uint64_t end);

}  // namespace tandem::inline v0::core
