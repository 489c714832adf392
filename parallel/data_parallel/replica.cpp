#include <tandem/parallel/data_parallel/replica.h>

#include <tandem/core/thread_state.h>
#include <tandem/parallel/data_parallel/parallel_apply.h>

namespace tandem::inline v0::parallel {

ReplicaInfo replica() noexcept {
  const core::ThreadState& state = core::thread_state();
  return state.frame != nullptr ? state.frame->replica() : ReplicaInfo{0, 1, state.device};
}

std::optional<ReplicaInfo> last_failure() noexcept { return detail::failed_replica(); }

}  // namespace tandem::inline v0::parallel
