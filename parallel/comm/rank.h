#pragma once

#include <tandem/core/export.h>
#include <tandem/parallel/comm/process_group.h>

namespace tandem::inline v0::parallel {

/// What the threads that work for one rank have in common. Where ranks are threads (spawn()) it crosses the pool, the
/// lanes of a backward pass and the loader's threads; threads that a program makes itself belong to no rank. Where
/// ranks are processes (ProcessGroupGuard) it is all threads'.
struct RankContext {
  ProcessGroup* group;  // of all ranks
};

/// Whether the calling thread belongs to a rank that has a default process group.
TANDEM_API bool is_initialized() noexcept;
/// The group of all ranks, as the calling thread's rank sees it. Throws ConfigError where there is none.
TANDEM_API ProcessGroup& default_group();
/// Number of the calling thread's rank in the default group. Throws as that does.
TANDEM_API int get_rank();
/// How many ranks the default group has. Throws as that does.
TANDEM_API int get_world_size();

/// Internal: who the threads of this process belong to unless they are a rank of their own; null: nobody.
void set_process_rank(const RankContext* context) noexcept;

}  // namespace tandem::inline v0::parallel
