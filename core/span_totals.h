#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include <tandem/core/export.h>
#include <tandem/core/span.h>

namespace tandem::inline v0 {

/// StepTimes adds these up beside the phases, on all threads of a rank.
enum class Effort : std::uint8_t {
  exchange,         // collectives on their way, hidden or not, but those that are launched on GPUs
  all_gather,       // those of them that are all-gathers
  unshard,          // waiting for parameters that other ranks keep
  allocation,       // memory that the system had to give
  read,             // item(), to_vector(): values that the host reads
  backward_here,    // ops of backward passes on the thread that trains ...
  backward_beside,  // ... and on others, for further devices
};

/// Number of efforts.
inline constexpr std::size_t kEfforts = 7;

/// An effort has come to this.
struct EffortSum {
  double count = 0;    ///< how often
  double seconds = 0;  ///< how long, together
  double bytes = 0;    ///< what was moved, together
};

/// One sum for each effort.
using EffortSums = std::array<EffortSum, kEfforts>;

namespace detail {
/// How many want memory to be taken into possession when the system gives it.
TANDEM_API extern std::atomic<int> populating_listeners;
}  // namespace detail

namespace core {

/// Adds up the spans that are an Effort, on all threads that work for the rank of the thread that made it.
class TANDEM_API SpanTotals final : public SpanSink {
 public:
  SpanTotals();
  ~SpanTotals() override;
  SpanTotals(const SpanTotals&) = delete;
  SpanTotals& operator=(const SpanTotals&) = delete;

  /// Since the beginning, or reset().
  EffortSums sums() const;
  /// Begins again from 0.
  void reset() noexcept;

 private:
  void take(const Span& span, const ThreadName& thread) noexcept override;

  mutable std::mutex mutex_;
  EffortSums sums_{};
};

}  // namespace core
}  // namespace tandem::inline v0
