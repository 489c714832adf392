#pragma once

#include <tandem/parallel/job/spawn.h>

// Internal: the part that ranks as threads and ranks as processes share.

namespace tandem::inline v0::parallel::detail {

/// Throws ConfigError for a call of spawn() that makes no sense with threads or processes.
void check_spawn(int ranks, const SpawnOptions& options);

}  // namespace tandem::inline v0::parallel::detail
