#pragma once

#include <tandem/core/export.h>
#include <tandem/core/function_ref.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/job/process_group_guard.h>
#include <tandem/parallel/job/spawn.h>

namespace tandem::inline v0::parallel {

namespace detail {
TANDEM_API void run_elastic(core::FunctionRef<void(ProcessGroup&)> body, const InitOptions& options);
}  // namespace detail

/// Runs fn as a rank of a job that survives the loss of ranks, see docs/elastic.md:
///
///     int main() {
///       const data::TensorDataset train = load();
///       parallel::run_elastic([&](parallel::ProcessGroup& group) {
///         Net model;                                             // everything that depends on the ranks
///         optim::Adam adam(model.parameters());
///         parallel::DistributedDataParallel ddp(model);
///         data::DataLoader loader(train, {.sampler = std::make_shared<parallel::DistributedSampler>(train)});
///         checkpoint::Run run("runs/digits");                    // has the state of the last step
///         run.track(model, adam, loader);
///         ...
///       });
///     }
///
/// fn is called with the group of all ranks, which is the default group, or with the rank's number in it. When a rank
/// is lost, the others' calls throw a CommError (peer_lost), which should leave fn. The ranks that are left then meet
/// anew, as ranks 0, 1, ... of a smaller group, and each calls fn again, in the same process and with the same random
/// numbers as the first time. A checkpoint::Run in fn keeps the training's state from one call to the next: it goes on
/// after the last step that any of the ranks has made, and shares the rest of the epoch among the ranks that are left.
/// A rank that the launcher starts again waits for the end of an epoch; all ranks then call fn anew, and the newcomer's
/// Run gets the state from another rank.
///
/// A process calls this once. A rank whose fn has ended has left the job. Without such a launcher fn runs once, as in
/// the scope of a ProcessGroupGuard. Throws the errors of fn and of ProcessGroupGuard; a CommError if the job is over,
/// or if the others have gone on without this rank. spawn() has the same for ranks that are threads
/// (SpawnOptions::elastic).
template <class Fn>
void run_elastic(const Fn& fn, const InitOptions& options = {}) {
  detail::run_elastic([&](ProcessGroup& group) { detail::call_rank(fn, group); }, options);
}

}  // namespace tandem::inline v0::parallel
