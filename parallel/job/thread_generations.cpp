#include <tandem/parallel/job/thread_generations.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include <tandem/parallel/comm/threads/local_backend.h>

namespace tandem::inline v0::parallel {

ThreadGenerations::ThreadGenerations(int ranks, int least, const ProcessGroupOptions& options)
    : least_(least),
      options_(options),
      states_(static_cast<std::size_t>(ranks)),
      groups_(static_cast<std::size_t>(ranks)) {
  std::vector<int> all(states_.size());
  std::iota(all.begin(), all.end(), 0);
  begin(all);
}

std::unique_ptr<ProcessGroup> ThreadGenerations::take(int rank) {
  const std::lock_guard lock(mutex_);
  return std::move(groups_[static_cast<std::size_t>(rank)]);
}

std::unique_ptr<ProcessGroup> ThreadGenerations::take_next(int rank, const CommError& cause) {
  std::unique_lock lock(mutex_);
  const int last = generation_;
  State& state = states_[static_cast<std::size_t>(rank)];
  state = State::waits;
  begin_if_all_wait();
  changed_.wait_for(lock, options_.timeout, [&] { return generation_ > last || has_too_few_; });
  if (generation_ == last) {
    state = State::runs;
    throw CommError(cause);
  }
  return std::move(groups_[static_cast<std::size_t>(rank)]);
}

void ThreadGenerations::leave(int rank, bool well, const std::string& how) {
  const std::lock_guard lock(mutex_);
  world_->leave(rank, how);
  states_[static_cast<std::size_t>(rank)] = well ? State::ended_well : State::lost;
  begin_if_all_wait();
}

std::int64_t ThreadGenerations::count(State state) const { return std::count(states_.begin(), states_.end(), state); }

void ThreadGenerations::begin_if_all_wait() {
  const std::int64_t waiting = count(State::waits);
  if (count(State::runs) > 0 || waiting == 0) {
    return;
  }
  if (waiting + count(State::ended_well) < least_) {
    has_too_few_ = true;
  } else {
    std::vector<int> members;
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      if (states_[rank] == State::waits) {
        members.push_back(static_cast<int>(rank));
      }
    }
    ++generation_;
    begin(members);
  }
  changed_.notify_all();
}

// Each generation has a world of its own, since a rank leaves a world for ever.
void ThreadGenerations::begin(const std::vector<int>& members) {
  world_ = std::make_shared<LocalWorld>(static_cast<int>(states_.size()));
  std::vector<std::unique_ptr<ProcessGroup>> groups = detail::local_groups(world_, members, options_);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto rank = static_cast<std::size_t>(members[i]);
    groups_[rank] = std::move(groups[i]);
    states_[rank] = State::runs;
  }
}

}  // namespace tandem::inline v0::parallel
