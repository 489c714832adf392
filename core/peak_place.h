#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tandem/core/export.h>
#include <tandem/core/span.h>

// Internal: what a program does when its tensors take the most memory of a device.

namespace tandem::inline v0::core {

/// Forgets all places: the next allocation on a device is the largest use so far.
TANDEM_API void restart_peaks() noexcept;

/// An allocator owns one, and guards it by a lock of its own.
class TANDEM_API PeakWatch {
 public:
  /// For GPU `gpu`; -1: for CPUs.
  explicit PeakWatch(int gpu) noexcept : gpu_(gpu) {}
  /// So many bytes are in use now. If they are more than ever since restart_peaks(), the place of the calling thread is
  /// remembered. Costs a load and a branch when nobody listens to spans.
  void note(std::size_t in_use) noexcept {
    if (detail::has_span_listeners() && (in_use > most_ || restarts_ != restarts.load(std::memory_order_relaxed))) {
      raise(in_use);
    }
  }

 private:
  friend void restart_peaks() noexcept;
  void raise(std::size_t in_use) noexcept;

  static std::atomic<std::uint64_t> restarts;
  int gpu_;
  std::size_t most_ = 0;
  std::uint64_t restarts_ = 0;
};

/// The most memory that was in use at once.
struct Peak {
  std::size_t bytes = 0;
  std::string place = {};  ///< "forward of conv1", "backward of linear", "optimizer"; empty outside of all spans
};
/// Returns the peak of GPU `gpu` since restart_peaks(), or that of CPUs (-1), where only blocks above 256 KiB count. An
/// empty one if nobody listened.
TANDEM_API Peak peak_of(int gpu);
/// The place of the calling thread in such words.
std::string place_of_this_thread();

}  // namespace tandem::inline v0::core
