#include <tandem/parallel/comm/rank.h>

#include <atomic>

#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::parallel {

namespace {

std::atomic<const RankContext*> process_rank{nullptr};

const RankContext* context() noexcept {
  const RankContext* of_thread = core::thread_state().rank;
  return of_thread != nullptr ? of_thread : process_rank.load(std::memory_order_acquire);
}

}  // namespace

void set_process_rank(const RankContext* context) noexcept { process_rank.store(context, std::memory_order_release); }

bool is_initialized() noexcept { return context() != nullptr; }

ProcessGroup& default_group() {
  const RankContext* rank = context();
  check<ConfigError>(rank != nullptr,
                     "default_group: this thread belongs to no rank. Join the job of a launcher with "
                     "parallel::ProcessGroupGuard, or start ranks with parallel::spawn(n, fn), which runs fn as each "
                     "of them");
  return *rank->group;
}

int get_rank() { return default_group().rank(); }

int get_world_size() { return default_group().size(); }

}  // namespace tandem::inline v0::parallel
