#pragma once

#include <tandem/parallel/launch/spawn.h>

// Internal: what spawn() does alike for threads and for processes.

namespace tandem::inline v0::parallel::detail {

/// Throws ConfigError for what spawn() cannot mean.
void check_spawn(int ranks, const SpawnOptions& options);

}  // namespace tandem::inline v0::parallel::detail
