#pragma once

#include <string>
#include <string_view>

#include <tandem/core/error.h>
#include <tandem/parallel/comm/collective.h>

// Internal: the texts of what goes wrong between ranks, the same for all backends.

namespace tandem::inline v0::parallel {

/// Ranks made different calls; `calls` names them all, `odd` is the one to blame or -1.
CommError mismatch_error(const std::string& calls, int odd, const Collective& call, const CallTime& time);
/// `peer` did not come in time; `last` is its last call in this group, or empty.
CommError timeout_error(int peer, const std::string& last, const Collective& call, const CallTime& time);
/// `peer` will not come: `why` goes on after "is lost: ".
CommError peer_lost_error(int peer, std::string_view why, const Collective& call, const CallTime& time);
/// Rank `rank` could not do its part for a reason of its own.
CommError failed_rank_error(int rank, std::string_view why, const Collective& call, const CallTime& time);
/// A GPU has not come to the call, or through it, in time: that rank's, or for -1 the caller's `gpu`, which may wait
/// for another rank's.
CommError late_gpu_error(int rank, Device gpu, const Collective& call, const CallTime& time);
/// abort(reason) on that rank.
CommError aborted_error(int rank, std::string_view reason);
/// A call on a group that died of `cause`.
CommError dead_group_error(const CommError& cause, const Collective& call);

}  // namespace tandem::inline v0::parallel
