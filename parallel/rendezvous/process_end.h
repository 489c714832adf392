#pragma once

#include <cstdint>
#include <optional>

#include <tandem/core/file.h>

// Internal: how a process of this machine ended that is not our child. Linux 6.15 and later keep its wait status.

namespace tandem::inline v0::parallel {

/// Watches one process. Where the system cannot tell how a process ended, it is never known.
class ProcessEnd {
 public:
  explicit ProcessEnd(std::int64_t pid);

  /// The status as from waitpid(), once the process has ended and its parent has noticed.
  std::optional<int> status() const;
  /// Whether the system can still tell.
  bool can_tell() const noexcept { return pidfd_.get() >= 0; }

 private:
  core::Descriptor pidfd_;
};

}  // namespace tandem::inline v0::parallel
