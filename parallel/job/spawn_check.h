#pragma once

#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/job/spawn.h>

// Internal: what all kinds of ranks begin and end with.

namespace tandem::inline v0::parallel::detail {

/// Throws ConfigError for a call of spawn() that makes no sense with threads or processes.
void check_spawn(int ranks, const SpawnOptions& options);

/// Drops failures of calls that were still pending: the rank's own failure counts.
void forget_failures(ProcessGroup& group);

}  // namespace tandem::inline v0::parallel::detail
