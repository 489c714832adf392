#include <tandem/parallel/comm/faults.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <optional>

#include <fmt/format.h>

#include <tandem/core/warning.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr const char* kGpuMayWait = "it may wait for another rank's GPU, or for the network between them";

const GroupNames& names_of(const CallTime& time) {
  static const GroupNames of_all_ranks;
  return time.names != nullptr ? *time.names : of_all_ranks;
}

// The call, and the group if it is one of some ranks.
std::string text_of(const Collective& call, const GroupNames& names) {
  const std::string members = names.members();
  return names.call(call) + (members.empty() ? "" : fmt::format(" in the group of {}", members));
}

std::string seconds(std::chrono::steady_clock::duration time) {
  const double value = std::chrono::duration<double>(time).count();
  return value < 0.1 ? fmt::format("{:.3g} ms", 1e3 * value) : fmt::format("{:.3g} s", value);
}

// Says what is known of a rank that has not come, or whose data has not.
std::string state_of(const Awaited& late, const GroupNames& names) {
  if (late.has_come) {
    return "it is in the call, but their data does not get through, as when the network between loses large packets "
           "(MTU), or it waits for another rank itself";
  }
  return late.last ? fmt::format("its last call in this group was {}", names.call(*late.last))
                   : "it has made no collective call in this group yet";
}

// The lowest rank whose call differs from the majority's; -1 if all are equal or no call has a majority.
int odd_one_out(std::span<const Collective> calls) {
  for (const Collective& candidate : calls) {
    if (2 * std::count(calls.begin(), calls.end(), candidate) > static_cast<std::ptrdiff_t>(calls.size())) {
      const auto odd = std::find_if(calls.begin(), calls.end(), [&](const auto& call) { return call != candidate; });
      return odd == calls.end() ? -1 : static_cast<int>(odd - calls.begin());
    }
  }
  return -1;
}

CommError::Details details(CommFault fault, int rank, const Collective& call, const CallTime& time) {
  return {.fault = fault,
          .rank = names_of(time).rank(rank),
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

CommError different_calls(const std::string& calls, const std::string& advice, int odd, const Collective& call,
                          const CallTime& time) {
  const std::string members = names_of(time).members();
  return CommError(fmt::format("process group{}: its ranks made different calls, and none was carried out: {}. All "
                               "ranks of a group must make the same calls in the same order{}{} [TDM-E616]",
                               members.empty() ? "" : " of " + members, calls, advice.empty() ? "" : ". ", advice),
                   details(CommFault::mismatch, odd, call, time));
}

}  // namespace

CommError mismatch_error(std::span<const Collective> calls, const Collective& call, const CallTime& time) {
  const GroupNames& names = names_of(time);
  return different_calls(names.calls(calls), names.advice(calls), odd_one_out(calls), call, time);
}

CommError pair_mismatch_error(int rank, const Collective& call, const Collective& theirs, const CallTime& time) {
  const GroupNames& names = names_of(time);
  const std::string mine_text = fmt::format("rank {}: {}", names.rank(rank), names.call(call));
  const std::string peer_text = fmt::format("rank {}: {}", names.rank(call.root), names.call(theirs));
  return different_calls(rank < call.root ? mine_text + "; " + peer_text : peer_text + "; " + mine_text,
                         names.advice({&theirs, 1}), -1, call, time);
}

CommError timeout_error(const Awaited& late, const Collective& call, const CallTime& time) {
  const GroupNames& names = names_of(time);
  return CommError(
      fmt::format("{}: rank {} has not {} within {:.3g} s; {}. If it is only slow, give the group a "
                  "longer timeout (ProcessGroupOptions::timeout) [TDM-E617]",
                  text_of(call, names), names.rank(late.rank), late.has_come ? "sent its part" : "come",
                  std::chrono::duration<double>(time.deadline - time.start).count(), state_of(late, names)),
      details(CommFault::timeout, late.rank, call, time));
}

void tell_long_wait(int rank, const Awaited& late, const Collective& call, const CallTime& time) noexcept {
  const auto now = std::chrono::steady_clock::now();
  try {
    const GroupNames& names = names_of(time);
    core::warn(fmt::format(
        "rank {} has waited {} for {} in {}{}: {}. It gives up after {}", names.rank(rank), seconds(now - time.start),
        late.rank < 0 ? "its GPU" : fmt::format("rank {}", names.rank(late.rank)), text_of(call, names),
        time.usual.count() > 0 ? fmt::format(", which usually takes {}", seconds(time.usual)) : "",
        late.rank < 0 ? kGpuMayWait : state_of(late, names), seconds(time.deadline - time.start)));
  } catch (...) {  // of a handler; the wait goes on
  }
}

CommError peer_lost_error(int peer, std::string_view why, const Collective& call, const CallTime& time) {
  const GroupNames& names = names_of(time);
  return CommError(fmt::format("{}: rank {} is lost: {} [TDM-E618]", text_of(call, names), names.rank(peer), why),
                   details(CommFault::peer_lost, peer, call, time));
}

CommError failed_rank_error(int rank, std::string_view why, const Collective& call, const CallTime& time) {
  const GroupNames& names = names_of(time);
  return CommError(fmt::format("{}: failed on rank {}: {}", text_of(call, names), names.rank(rank), why),
                   details(CommFault::aborted, rank, call, time));
}

CommError late_gpu_error(int rank, Device gpu, const Collective& call, const CallTime& time) {
  const GroupNames& names = names_of(time);
  return CommError(
      fmt::format("{}: {}{} is not through with it, or with what was queued before, within {:.3g} s{}. If it is only "
                  "slow, give the group a longer timeout (ProcessGroupOptions::timeout) [TDM-E617]",
                  text_of(call, names), to_string(gpu), rank < 0 ? "" : fmt::format(" of rank {}", names.rank(rank)),
                  std::chrono::duration<double>(time.deadline - time.start).count(),
                  rank < 0 ? fmt::format("; {}", kGpuMayWait) : std::string()),
      details(CommFault::timeout, rank, call, time));
}

CommError aborted_error(int rank, std::string_view reason, const GroupNames& names) {
  return CommError(fmt::format("process group: aborted by rank {}: {}", names.rank(rank), reason),
                   {.fault = CommFault::aborted, .rank = names.rank(rank)});
}

CommError dead_group_error(const CommError& cause, const Collective& call, const GroupNames& names) {
  return CommError(fmt::format("{}: the process group can no longer be used, since this happened: {}",
                               text_of(call, names), cause.what()),
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
