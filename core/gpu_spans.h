#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/core/span.h>

// Internal: the spans of threads that use a GPU, for those who trace: phases in the GPU's own time, and ranges for
// NVIDIA's profilers.

namespace tandem::inline v0::core {

/// A phase of a thread in the time of its GPU: from where the thread's stream reaches the beginning of the phase to
/// where it reaches the end. Waiting for the host to queue more lies within.
struct GpuPhase {
  const char* name = "";
  int gpu = 0;
  Span::Clock::time_point began = {};
  Span::Clock::time_point ended = {};
};

/// What was begun on a GPU with a span.
struct GpuMark {
  std::uint64_t phase = 0;  ///< 0: no phase that anybody traces
  bool is_range = false;    ///< whether the thread has opened a range
};

/// Who wants to hear of GPUs.
enum class GpuListener : std::uint8_t { of_phases, of_ranges };
/// How many do, of either kind.
TANDEM_API extern std::atomic<int> gpu_listeners;

/// Counts `listener` from here on, until remove_gpu_listener().
TANDEM_API void add_gpu_listener(GpuListener listener) noexcept;
TANDEM_API void remove_gpu_listener(GpuListener listener) noexcept;

/// Begins a span of the calling thread, a phase of a step or not. The GPU is the one that the thread used last.
TANDEM_API GpuMark begin_on_gpu(const Span& span, bool is_phase) noexcept;
TANDEM_API void end_on_gpu(const GpuMark& mark) noexcept;

/// Takes the phases of a rank's threads that have ended, the latest 16,384 at most. Waits for the GPU; phases on a GPU
/// that has failed are left out.
TANDEM_API std::vector<GpuPhase> take_gpu_phases(const parallel::RankContext* rank);

}  // namespace tandem::inline v0::core
