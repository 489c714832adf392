#pragma once

#include <tandem/core/export.h>
#include <tandem/parallel/comm/process_group.h>

namespace tandem::inline v0::parallel {

/// Context shared by the threads that work for one rank. Where ranks are threads (spawn()), the pool, the lanes of a
/// backward pass and the loader's threads inherit it; threads that the program starts itself belong to no rank. Where
/// ranks are processes (ProcessGroupGuard), all threads share it.
struct RankContext {
  ProcessGroup* group;  // the group of all ranks
};

/// Whether the calling thread belongs to a rank that has a default process group.
TANDEM_API bool is_initialized() noexcept;
/// The group of all ranks as the calling thread's rank sees it. Throws ConfigError if the rank has none.
TANDEM_API ProcessGroup& default_group();
/// The calling thread's rank in the default group. Throws like default_group().
TANDEM_API int get_rank();
/// The number of ranks in the default group. Throws like default_group().
TANDEM_API int get_world_size();

/// Internal: sets the rank of all threads of this process that are no rank of their own; null: no rank.
void set_process_rank(const RankContext* context) noexcept;

}  // namespace tandem::inline v0::parallel
