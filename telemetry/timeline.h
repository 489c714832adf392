#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

// Internal: what the threads of a run's ranks did in one step, read from a trace.

namespace tandem::inline v0::telemetry {

/// A span's time goes into one of these uses. Where spans lie within each other, the inner one counts.
enum class Use { compute, exchange, input, copying, checkpoint, other };
inline constexpr std::size_t kUses = 6;
/// "compute", ...
const char* name_of(Use use);

/// A span of a trace, in microseconds.
struct TimelineSpan {
  std::string name;
  std::string kind;  ///< "forward", "all_reduce"
  double begin = 0;
  double end = 0;
  std::size_t depth = 0;  ///< how many spans of its thread are around it
};

struct TimelineThread {
  std::string purpose;
  std::vector<TimelineSpan> spans;  ///< in the order of their beginnings
};

struct TimelineRank {
  std::string name;
  std::vector<TimelineThread> threads;
};

/// A stretch of time, in microseconds.
struct TimeRange {
  double begin = 0;
  double end = 0;
  double length() const { return end - begin; }
};

/// How the time of a step is used, in microseconds.
struct StepUse {
  std::array<double, kUses> training{};  ///< of the thread that trains
  double hidden_exchange = 0;            ///< on other threads, while the thread that trains computes
};

/// A trace, with its ranks in ascending order.
class Timeline {
 public:
  /// Reads trace.json. Throws IoError if it is no trace that telemetry::Trace wrote.
  explicit Timeline(const std::string& path);

  const std::vector<TimelineRank>& ranks() const { return ranks_; }
  /// The steps of the first rank: from the end of an optimiser's step to that of the next one.
  const std::vector<TimeRange>& steps() const { return steps_; }
  /// The step of median length; none if there is no whole step.
  std::optional<TimeRange> typical_step() const;
  /// The mean use of a rank's time over all steps.
  StepUse use_of(const TimelineRank& rank) const;

  /// A picture of that time, with one band for each thread.
  std::string svg(const TimeRange& shown) const;

 private:
  std::vector<TimelineRank> ranks_;
  std::vector<TimeRange> steps_;
};

}  // namespace tandem::inline v0::telemetry
