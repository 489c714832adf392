#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <tandem/core/gpu_spans.h>
#include <tandem/core/span.h>

// Internal: the open spans of a thread, and who hears of them.

namespace tandem::inline v0 {

class StepTimes;

namespace core {

/// The open spans of a thread, each inside the previous one, and the StepTimes that count its phases.
class SpanThread {
 public:
  using Clock = Span::Clock;
  using Times = std::array<std::chrono::nanoseconds, kPhases>;

  /// The calling thread's, which collectors may hold longer than the thread exists.
  static std::shared_ptr<SpanThread> of_this_thread();

  detail::OpenSpan begin(Phase phase, const void* by) noexcept;
  detail::OpenSpan begin(const Span& span) noexcept;
  /// Closes a span and the open spans inside it. Does nothing if the span was already closed with an outer one.
  void end(const detail::OpenSpan& open) noexcept;
  void add(StepTimes& collector);
  void remove(const StepTimes& collector) noexcept;
  /// The time that open phases have taken so far, for a collector that starts now.
  Times open_times(Clock::time_point now) const noexcept;
  /// "forward of conv1", "backward of linear", "optimizer": what the thread does now; empty outside of all spans.
  std::string place() const;

  std::mutex mutex;  // guards the collectors and `stepped_`; only the owning thread uses the other members

 private:
  struct Open {
    Span span;
    std::optional<Phase> phase;       // none: something that happens within a phase
    std::chrono::nanoseconds phases;  // time in inner phases that have ended
    std::uint64_t number;
    GpuMark gpu = {};
  };
  static constexpr std::size_t kMostOpen = 64;  // spans deeper inside others are not recorded

  detail::OpenSpan push(const Span& span, std::optional<Phase> phase) noexcept;
  bool is_open(Phase phase) const noexcept;
  void note_optimizer(const void* by) noexcept;

  std::array<Open, kMostOpen> open_{};
  std::size_t depth_ = 0;
  std::uint64_t begun_ = 0;
  std::vector<StepTimes*> collectors_;
  std::unordered_set<const void*> stepped_;  // optimisers that have stepped in the current step
};

}  // namespace core
}  // namespace tandem::inline v0
