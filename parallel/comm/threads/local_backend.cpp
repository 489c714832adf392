#include <tandem/parallel/comm/threads/local_backend.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/core/system_limits.h>
#include <tandem/kernels/combine.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/threads/local.h>

namespace tandem::inline v0::parallel {

using Kind = CollectiveKind;

namespace {

// Marks the time in which this rank uses other ranks' memory, even if an exception ends it.
class Looking {
 public:
  Looking(LocalSlot& slot, const Buffers& buffers) : slot_(slot), buffers_(buffers) { slot_.looking.store(true); }
  ~Looking() {
    if (on_gpu(buffers_)) {
      try {
        slot_.own_marks(buffers_.device).done.record(cuda::current_stream(buffers_.device));
      } catch (const Error&) {
        // The GPU is lost. Every later use of it throws.
      }
    }
    slot_.looking.store(false);
  }
  Looking(const Looking&) = delete;
  Looking& operator=(const Looking&) = delete;

 private:
  LocalSlot& slot_;
  const Buffers& buffers_;
};

}  // namespace

LocalBackend::LocalBackend(std::shared_ptr<LocalGroup> group, int rank)
    : Backend(group->names()), group_(std::move(group)), rank_(rank) {
  from_.reserve(static_cast<std::size_t>(size()));
  to_.reserve(static_cast<std::size_t>(size()));
}

LocalBackend::~LocalBackend() {
  own().left.store(true);
  group_->lot().wake();
}

std::string LocalBackend::refusal(const Collective& call) const {
  return call.device == DeviceType::cpu || size() <= kernels::Combine::kMost
             ? std::string()
             : fmt::format(
                   "no more than {} ranks of one process exchange tensors on GPUs, and these are {}; move them "
                   "to the CPU with .to(\"cpu\"), or run each rank as a process",
                   kernels::Combine::kMost, size());
}

// Publishes this rank's call and waits until all ranks have arrived. Throws once a rank is known to be lost or any rank
// has failed.
void LocalBackend::meet(const Collective& call, const Buffers& buffers, bool moves_data, const CallTime& time) {
  // No rank leaves this meeting before this one has come to it: the failure is one of this call, whose data may have
  // been left where it was, or of an earlier one.
  if (group_->has_failed()) {
    group_->throw_failure();
  }
  const std::uint64_t meeting = ++meeting_;
  own().note(meeting) = {moves_data, call, buffers};
  own().arrived.store(meeting);
  group_->lot().wake();
  int missing = -1;  // the lowest rank that has not arrived
  int lost = -1;     // the lowest rank that never will
  bool has_failed = false;
  const auto is_over = [&] {
    // Both flags are read before the arrivals that they are about: a rank may arrive, and then fail or leave. What it
    // does after a call to which all ranks came is no failure of that call.
    has_failed = group_->has_failed();
    missing = -1;
    lost = group_->is_lost(rank_) ? rank_ : -1;
    for (int r = 0; r < size(); ++r) {
      const bool gone = group_->is_lost(r);
      if (group_->slot(r).arrived.load() < meeting) {
        missing = missing < 0 ? r : missing;
        lost = gone && lost < 0 ? r : lost;
      }
    }
    return missing < 0 || lost >= 0 || has_failed;
  };
  while (!wait(time, is_over)) {
    tell_long_wait(rank_, late(missing, meeting - 1), call, time);
  }
  if (missing < 0) {
    return;
  }
  if (has_failed) {
    group_->throw_failure();
  }
  if (lost >= 0) {
    fail(peer_lost_error(lost, group_->why_lost(lost), call, time));
  }
  fail(timeout_error(late(missing, meeting - 1), call, time));
}

void LocalBackend::exchange(const Collective& mine, std::span<Collective> all, const CallTime& time) {
  meet(mine, {}, false, time);
  for (int r = 0; r < size(); ++r) {
    all[static_cast<std::size_t>(r)] = note(r).call;
  }
}

void LocalBackend::run(const Collective& call, const Buffers& buffers, const CallTime& time) {
  switch (call.kind) {
    case Kind::send: return send(call, buffers, time);
    case Kind::recv: return receive(call, buffers, time);
    default: break;
  }
  try {
    run_together(call, buffers, time);
  } catch (const std::exception& error) {
    group_->fail(
        failed_rank_error(rank_, core::explain(error), call, time));  // counts unless the group has failed already
    leave_memory_alone(buffers);
    group_->throw_failure();
  }
}

void LocalBackend::run_together(const Collective& call, const Buffers& buffers, const CallTime& time) {
  if (on_gpu(buffers)) {
    own().own_marks(buffers.device).given.record(cuda::current_stream(buffers.device));
  }
  meet(call, buffers, true, time);
  compare_calls(time);
  {
    const Looking looking(own(), buffers);
    // Either other ranks see that this rank is looking, or this rank sees that a call has failed, whose memory may be
    // gone.
    if (!group_->has_failed()) {
      wait_for_streams(buffers, &LocalSlot::Marks::given);
      move_data(call, buffers);
    }
  }
  meet(call, buffers, true, time);
  wait_for_streams(buffers, &LocalSlot::Marks::done);
}

// Orders later work on this rank's stream after that mark of all other ranks.
void LocalBackend::wait_for_streams(const Buffers& buffers, cuda::Event LocalSlot::Marks::* mark) {
  if (!on_gpu(buffers)) {
    return;
  }
  const cuda::Stream stream = cuda::current_stream(buffers.device);
  for (int r = 0; r < size(); ++r) {
    if (const auto marks = group_->slot(r).marks(); marks && r != rank_) {
      stream.wait_event((*marks).*mark);
    }
  }
}

// Throws if ranks meet with different calls: a compared call has met a planned one, which skips the comparison, by
// mistake.
void LocalBackend::compare_calls(const CallTime& time) {
  const LocalSlot::Note& mine = note(rank_);
  for (int r = 0; r < size(); ++r) {
    const LocalSlot::Note& theirs = note(r);
    if (theirs.call != mine.call || theirs.moves_data != mine.moves_data) {
      std::vector<Collective> calls;
      for (int k = 0; k < size(); ++k) {
        calls.push_back(note(k).call);
      }
      fail(mismatch_error(calls, mine.call, time));
    }
  }
}

// After a failure, waits until no other rank uses this rank's memory, which may be freed once the call has ended.
void LocalBackend::leave_memory_alone(const Buffers& buffers) {
  for (int r = 0; r < size(); ++r) {
    while (group_->slot(r).looking.load()) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));  // the other rank finishes its piece soon
    }
  }
  wait_for_streams(buffers, &LocalSlot::Marks::done);
}

std::unique_ptr<Backend> LocalBackend::split(std::span<const int> members, const CallTime& /*time*/) {
  const auto place = std::find(members.begin(), members.end(), rank_);
  return place == members.end() ? nullptr
                                : std::make_unique<LocalBackend>(group_->subgroup(meeting_, members),
                                                                 static_cast<int>(place - members.begin()));
}

// Throws the group's first error: another rank may have failed earlier.
void LocalBackend::fail(const CommError& error) {
  group_->fail(error);
  group_->throw_failure();
}

// `last` is the latest meeting of both ranks, in which both made the same call. The peer's own note of it may be
// replaced at this moment.
Awaited LocalBackend::late(int peer, std::uint64_t last) {
  return {.rank = peer, .last = last > 0 ? std::optional(own().note(last).call) : std::nullopt};
}

std::vector<std::unique_ptr<ProcessGroup>> detail::local_groups(const std::shared_ptr<LocalWorld>& world,
                                                                const std::vector<int>& members,
                                                                const ProcessGroupOptions& options) {
  const auto group = std::make_shared<LocalGroup>(world, members);
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (int r = 0; r < group->size(); ++r) {
    groups.push_back(std::make_unique<ProcessGroup>(std::make_unique<LocalBackend>(group, r), options));
  }
  return groups;
}

std::vector<std::unique_ptr<ProcessGroup>> local_groups(int ranks, const ProcessGroupOptions& options) {
  check<ConfigError>(ranks >= 1, "local_groups: {} ranks; expected at least 1", ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return detail::local_groups(std::make_shared<LocalWorld>(ranks), members, options);
}

}  // namespace tandem::inline v0::parallel
