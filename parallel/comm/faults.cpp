#include <tandem/parallel/comm/faults.h>

#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace tandem::inline v0::parallel {

namespace {

CommError::Details details(CommFault fault, int rank, const Collective& call, const CallTime& time) {
  return {.fault = fault,
          .rank = rank,
          .generation = 0,
          .sequence = call.sequence,
          .op = to_string(call.kind),
          .bytes = call.shape.numel() * static_cast<std::int64_t>(item_size(call.dtype)),
          .elapsed = time.elapsed()};
}

constexpr std::array kFaults = {CommFault::peer_lost, CommFault::timeout, CommFault::mismatch, CommFault::aborted,
                                CommFault::init};

struct RankInText {
  int rank;
  std::string rest;
};

// The rank between `before`, with which `text` begins, and `after`, with the rest of the text.
std::optional<RankInText> find_rank(std::string_view text, std::string_view before, std::string_view after) {
  if (!text.starts_with(before)) {
    return std::nullopt;
  }
  text.remove_prefix(before.size());
  int rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  const bool found = error == std::errc() && rank >= 0 && text.starts_with(after);
  return found ? std::optional(RankInText{rank, std::string(text.substr(after.size()))}) : std::nullopt;
}

}  // namespace

CommError mismatch_error(const std::string& calls, int odd, const Collective& call, const CallTime& time) {
  return CommError(fmt::format("process group: its ranks made different calls, and none was carried out: {}. All ranks "
                               "of a group must make the same calls in the same order",
                               calls),
                   details(CommFault::mismatch, odd, call, time));
}

CommError pair_mismatch_error(int rank, const Collective& call, const Collective& theirs, const CallTime& time) {
  const std::string mine_text = fmt::format("rank {}: {}", rank, to_string(call));
  const std::string peer_text = fmt::format("rank {}: {}", call.root, to_string(theirs));
  return mismatch_error(rank < call.root ? mine_text + "; " + peer_text : peer_text + "; " + mine_text, -1, call, time);
}

CommError timeout_error(int peer, const std::string& last, const Collective& call, const CallTime& time) {
  return CommError(
      fmt::format("{}: rank {} has not come within {:.3g} s; {}. If it is only slow, give the group a longer timeout "
                  "(ProcessGroupOptions::timeout)",
                  to_string(call), peer, std::chrono::duration<double>(time.deadline - time.start).count(),
                  last.empty() ? std::string("it has made no collective call in this group yet")
                               : fmt::format("its last call in this group was {}", last)),
      details(CommFault::timeout, peer, call, time));
}

CommError peer_lost_error(int peer, std::string_view why, const Collective& call, const CallTime& time) {
  return CommError(fmt::format("{}: rank {} is lost: {}", to_string(call), peer, why),
                   details(CommFault::peer_lost, peer, call, time));
}

CommError failed_rank_error(int rank, std::string_view why, const Collective& call, const CallTime& time) {
  return CommError(fmt::format("{}: failed on rank {}: {}", to_string(call), rank, why),
                   details(CommFault::aborted, rank, call, time));
}

CommError late_gpu_error(int rank, Device gpu, const Collective& call, const CallTime& time) {
  return CommError(
      fmt::format("{}: {}{} is not through with it, or with what was queued before, within {:.3g} s{}. If it is only "
                  "slow, give the group a longer timeout (ProcessGroupOptions::timeout)",
                  to_string(call), to_string(gpu), rank < 0 ? "" : fmt::format(" of rank {}", rank),
                  std::chrono::duration<double>(time.deadline - time.start).count(),
                  rank < 0 ? "; it may wait for another rank's GPU, or for the network between them" : ""),
      details(CommFault::timeout, rank, call, time));
}

CommError aborted_error(int rank, std::string_view reason) {
  return CommError(fmt::format("process group: aborted by rank {}: {}", rank, reason),
                   {.fault = CommFault::aborted, .rank = rank});
}

CommError dead_group_error(const CommError& cause, const Collective& call) {
  return CommError(fmt::format("{}: the process group can no longer be used, since this happened: {}", to_string(call),
                               cause.what()),
                   cause.details());
}

std::string verdict_text(const CommError& error) {
  const int rank = error.details().rank;
  return fmt::format("{}{}: {}", name(error.details().fault), rank < 0 ? "" : fmt::format(" by rank {}", rank),
                     error.what());
}

CommError verdict_error(const std::string& text) {
  if (const auto found = find_rank(text, "rank ", " ")) {
    return CommError(text, {.fault = CommFault::peer_lost, .rank = found->rank});
  }
  for (const CommFault fault : kFaults) {
    const std::string label(name(fault));
    if (text.starts_with(label + ": ")) {
      return CommError(text.substr(label.size() + 2), {.fault = fault});
    }
    if (const auto found = find_rank(text, label + " by rank ", ": ")) {
      return CommError(found->rest, {.fault = fault, .rank = found->rank});
    }
  }
  return CommError(text, {.fault = CommFault::aborted});
}

}  // namespace tandem::inline v0::parallel
