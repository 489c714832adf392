#pragma once

#include <string>

#include <tandem/core/export.h>

// Internal: what a program did when its tensors took more memory of a device than ever before.

namespace tandem::inline v0::core {

/// The tensors on GPU `gpu` (-1: on CPUs) take more memory than ever before. What the calling thread does now is
/// remembered if anybody listens to spans.
TANDEM_API void note_peak(int gpu) noexcept;
/// "forward of conv1", "backward of linear", "optimizer"; empty if nobody listened, or outside of all spans.
TANDEM_API std::string peak_place(int gpu);
/// The place of the calling thread in such words.
std::string place_of_this_thread();

}  // namespace tandem::inline v0::core
