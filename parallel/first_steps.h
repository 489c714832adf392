#pragma once

#include <cstdint>
#include <optional>

#include <tandem/core/export.h>
#include <tandem/core/step_times.h>
#include <tandem/parallel/step_exchange.h>

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Internal: looks at the first seconds of training through a parallel wrapper. Where a change would make it a fifth
/// faster, rank 0 says so in one line, as a warning.
///
/// The ranks exchange their times after 16, 64, 256, ... passes, until they have trained for long enough. They all make
/// these passes in the same order, those that only follow the others in a Join included, so the exchange has one place
/// in their sequences of collectives. Where a rank computes on several GPUs, whose times are not those of the host,
/// nothing is said.
class TANDEM_API FirstSteps {
 public:
  /// For `group` a collective; null: the only rank.
  explicit FirstSteps(ProcessGroup* group);
  /// Call it on the thread that trains, after each pass. A collective.
  void after_pass();

 private:
  void end();
  void tell(const telemetry::Ranks& ranks) const;

  std::int64_t passes_ = 0;
  std::int64_t next_look_ = 16;
  bool is_over_ = false;
  std::optional<StepTimes> times_;  // from the end of the first pass
  std::optional<StepExchange> exchange_;
};

}  // namespace tandem::inline v0::parallel
