#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/error.h>
#include <tandem/parallel/comm/collective.h>
#include <tandem/parallel/comm/group_names.h>

// Internal: the texts of errors between ranks, shared by all backends, and errors as text for ranks of other processes.
// Functions take ranks of the call's group. Errors name ranks of the job: see GroupNames.

namespace tandem::inline v0::parallel {

/// Ranks made different calls: `calls` has one of each rank. Blames the lowest rank whose call differs from the
/// majority's, if there is one.
CommError mismatch_error(std::span<const Collective> calls, const Collective& call, const CallTime& time);
/// The two ends of a send and its recv disagree. `rank` makes the recv; `theirs` is the call of call.root.
CommError pair_mismatch_error(int rank, const Collective& call, const Collective& theirs, const CallTime& time);
/// Describes a rank that others wait for, as far as it is known.
struct Awaited {
  int rank = -1;
  /// It is in the call already, and sends data that does not arrive.
  bool has_come = false;
  /// Its last call in this group, if known; only for a rank that has not come.
  std::optional<Collective> last = std::nullopt;
};
/// The rank did not arrive in time.
CommError timeout_error(const Awaited& late, const Collective& call, const CallTime& time);
/// Says on stderr, or to the warning handler, that rank `rank` waits unusually long. Awaited::rank is -1 for the rank's
/// own GPU. Call CallTime::put_off_line() before.
void tell_long_wait(int rank, const Awaited& late, const Collective& call, const CallTime& time) noexcept;
/// `peer` will never arrive. `why` continues the text after "is lost: ".
CommError peer_lost_error(int peer, std::string_view why, const Collective& call, const CallTime& time);
/// Rank `rank` failed for a reason of its own.
CommError failed_rank_error(int rank, std::string_view why, const Collective& call, const CallTime& time);
/// A GPU has not reached or not finished the call in time: that of `rank`, or for -1 the caller's `gpu`, which may be
/// waiting for another rank's.
CommError late_gpu_error(int rank, Device gpu, const Collective& call, const CallTime& time);
/// Rank `rank` called abort(reason).
CommError aborted_error(int rank, std::string_view reason, const GroupNames& names);
/// A call on a group that died of `cause`.
CommError dead_group_error(const CommError& cause, const Collective& call, const GroupNames& names);

/// The text by which the store's server tells other ranks of this rank's error: "mismatch by rank 2: ...". People read
/// this text too.
std::string verdict_text(const CommError& error);
/// The error for such a text, or for one that a launcher or the server wrote: "rank 2 (pid 4711 on node7) was killed by
/// signal 9" becomes peer_lost by rank 2. Any other text becomes `aborted` without a rank.
CommError verdict_error(const std::string& text);

}  // namespace tandem::inline v0::parallel
