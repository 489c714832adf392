#pragma once

#include <cstdint>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/core/gpu_spans.h>
#include <tandem/core/step_times.h>

// Internal: steps in the time of a GPU.

namespace tandem::inline v0::core {

/// Replaces `sums` of the host by those of its last steps in the time of the GPU that the parameters are on, if it is
/// the only one. The phases are in the order of their numbers; those of step i have numbers below `ends[i]`. The first
/// step that has any only says when the next one begins.
TANDEM_API void tell_in_gpu_time(StepSums& sums, std::vector<GpuPhase> phases, const std::vector<std::uint64_t>& ends);

}  // namespace tandem::inline v0::core
