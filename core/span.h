#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

namespace parallel {
struct RankContext;
}

/// The phases of a training step. Each phase is recorded where the work happens; the remaining time of a step (the
/// loss, metrics, the loop's own work) belongs to no phase.
enum class Phase : std::uint8_t {
  input,       // waiting for the next batch of a DataLoader
  scatter,     // splitting the batch, in DataParallel
  replicate,   // copying the module's parameters to the replicas, in DataParallel
  forward,     // a module's forward pass with gradients recorded (evaluation belongs to no phase); in DataParallel from
               // the first replica's start to the last one's end, including their loss
  gather,      // joining outputs or losses, in DataParallel
  backward,    // Tensor::backward(), without the phases inside it
  reduce,      // exchange not hidden by the backward pass: adding replicas' gradients, waiting for ranks
  collective,  // ProcessGroup calls made by the training loop, for example barrier(), without calls inside `reduce` and
               // `pipeline`
  optimizer,   // Optimizer::step()
  replay,      // replay of a captured step, without the phases inside it
  pipeline     // in a Pipeline, waiting for other stages and handing over, collectives included
};

/// Number of phases.
inline constexpr std::size_t kPhases = 11;
/// "input", "scatter", ...
TANDEM_API const char* to_string(Phase phase) noexcept;

namespace core {

class SpanThread;

/// A stretch of time that a thread spent on something. The spans of a thread lie within each other or one after
/// another.
struct Span {
  /// The clock of spans, which all processes of a machine share.
  using Clock = std::chrono::steady_clock;

  /// Where a span belongs to something that goes on on another thread.
  enum class Flow : std::uint8_t { none, begins, goes_on };

  const char* name = "";         ///< what it is, of static lifetime: "forward", "all_reduce"
  std::string_view detail = {};  ///< which one: a module's path; valid while the span is open
  std::int64_t bytes = -1;       ///< what it moves; -1: nothing
  std::uint64_t flow = 0;        ///< the number of the flow, unique in this process; 0: none
  Flow side = Flow::none;        ///< of the flow
  Clock::time_point began = {};  ///< set by whoever records
  Clock::time_point ended = {};  ///< likewise
};

/// Receives the spans of all threads that work for the rank of the thread that opened the sink.
class TANDEM_API SpanSink {
 public:
  virtual ~SpanSink() = default;

 protected:
  /// Which thread a span is of.
  struct ThreadName {
    std::uint64_t number;  ///< unique in this process
    const char* purpose;   ///< see set_thread_purpose()
  };
  /// Called at the end of each span, one call at a time.
  virtual void take(const Span& span, const ThreadName& thread) noexcept = 0;
  /// From here until close() spans arrive.
  void open();
  /// Returns when no take() runs. A derived class calls it before its members go.
  void close() noexcept;

 private:
  friend class SpanThread;
  const parallel::RankContext* rank_ = nullptr;
};

/// Says what the calling thread is for, in the names of tracks; "training" unless the thread says so.
TANDEM_API void set_thread_purpose(const char* purpose) noexcept;
/// A new number of a flow.
TANDEM_API std::uint64_t new_flow() noexcept;

}  // namespace core

namespace detail {
/// How many want to hear of spans: existing StepTimes objects and open SpanSinks, and one if the process has a
/// ProgressPage.
TANDEM_API extern std::atomic<int> span_listeners;
inline bool has_span_listeners() noexcept { return span_listeners.load(std::memory_order_relaxed) != 0; }
/// An open span: its thread (null if nobody listens), the number of spans around it on that thread, and its serial
/// number. `outer` is the phase around it on this process's ProgressPage, if it has one.
struct OpenSpan {
  core::SpanThread* thread = nullptr;
  std::size_t depth = 0;
  std::uint64_t number = 0;
  bool is_noted = false;
  std::int32_t outer = -1;
};
TANDEM_API OpenSpan begin_span(Phase phase, const void* by) noexcept;
TANDEM_API OpenSpan begin_span(const core::Span& span) noexcept;
/// Closes a span and the open spans inside it. Does nothing if the span is already closed or belongs to another thread.
TANDEM_API void end_span(const OpenSpan& open) noexcept;
}  // namespace detail

/// Records its lifetime as a span of its thread: as a phase of the step, without the phases inside it, or as something
/// else that happens within the phases. The scope must end on the thread where it began: elsewhere its time is lost,
/// and a phase is no longer counted on the first thread. The cost is a relaxed load and a branch when nobody listens.
class SpanScope {
 public:
  /// `by` identifies the object that does the work, if several take part in one step.
  [[nodiscard]] explicit SpanScope(Phase phase, const void* by = nullptr) noexcept {
    if (detail::has_span_listeners()) {
      open_ = detail::begin_span(phase, by);
    }
  }
  [[nodiscard]] explicit SpanScope(const core::Span& span) noexcept {
    if (detail::has_span_listeners()) {
      open_ = detail::begin_span(span);
    }
  }
  ~SpanScope() {
    if (open_.thread != nullptr || open_.is_noted) {
      detail::end_span(open_);
    }
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  detail::OpenSpan open_;
};

}  // namespace tandem::inline v0
