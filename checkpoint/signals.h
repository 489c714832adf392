#pragma once

#include <tandem/core/export.h>

// Internal: the signals by which people and schedulers ask a run to save.

namespace tandem::inline v0::checkpoint {

/// While one exists, SIGINT, SIGTERM and SIGUSR1 are noted instead of ending the process, if the program neither
/// handles nor ignores them. The second SIGINT or SIGTERM ends the process.
class TANDEM_API RunSignals {
 public:
  RunSignals();
  ~RunSignals();
  RunSignals(const RunSignals&) = delete;
  RunSignals& operator=(const RunSignals&) = delete;

  /// SIGINT or SIGTERM, once it has arrived; 0: neither has.
  static int stop() noexcept;
  /// How many SIGUSR1 have arrived.
  static int saves() noexcept;
};

}  // namespace tandem::inline v0::checkpoint
