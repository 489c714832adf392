#include <tandem/parallel/comm/alarm.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tandem::inline v0::parallel {

namespace {

CommError with_rank(const CommError& error, int rank, std::string text) {
  CommError::Details details = error.details();
  details.rank = rank;
  return CommError(std::move(text), details);
}

// The error as seen by all ranks, of which these members saw it.
CommError in_whole(const CommError& error, const std::vector<int>& members) {
  const auto index = static_cast<std::size_t>(error.details().rank);
  return with_rank(error, index < members.size() ? members[index] : -1,
                   fmt::format("in the group of ranks {}: {}", fmt::join(members, ", "), error.what()));
}

// The error as seen by these members.
CommError in_part(const CommError& error, const std::vector<int>& members) {
  const auto member = std::find(members.begin(), members.end(), error.details().rank);
  return with_rank(error, member == members.end() ? -1 : static_cast<int>(member - members.begin()), error.what());
}

}  // namespace

struct Alarm::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<CommError> cause;
  std::map<std::uint64_t, Listener> listeners;
  std::uint64_t last_number = 0;
  bool calling = false;  // listeners are running
};

Alarm::Alarm() : state_(std::make_shared<State>()) {}

Alarm::Alarm(std::shared_ptr<Alarm> whole, std::vector<int> members)
    : state_(std::make_shared<State>()),
      whole_(std::move(whole)),
      members_(std::move(members)),
      from_whole_(whole_->listen([this](const CommError& cause) { ring_here(in_part(cause, members_)); })) {}

void Alarm::ring(const CommError& cause) noexcept {
  if (whole_) {
    whole_->ring(in_whole(cause, members_));
    ring_here(in_part(*whole_->cause(), members_));  // another cause may have rung `whole_` first
  } else {
    ring_here(cause);
  }
}

Alarm::Subscription::~Subscription() {
  if (!state_) {
    return;
  }
  std::unique_lock lock(state_->mutex);
  state_->listeners.erase(number_);
  state_->changed.wait(lock, [&] { return !state_->calling; });
}

void Alarm::ring_here(const CommError& cause) noexcept {
  std::map<std::uint64_t, Listener> listeners;
  std::unique_lock lock(state_->mutex);
  if (state_->cause) {
    return;  // do not wait: a listener may be waiting for the thread that brings the same news
  }
  state_->cause = cause;
  listeners.swap(state_->listeners);
  state_->calling = true;
  lock.unlock();
  state_->changed.notify_all();
  for (const auto& [number, listener] : listeners) {
    listener(cause);
  }
  lock.lock();
  state_->calling = false;
  state_->changed.notify_all();
}

std::optional<CommError> Alarm::cause() const {
  const std::lock_guard lock(state_->mutex);
  return state_->cause;
}

std::optional<CommError> Alarm::wait_for(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, timeout, [&] { return state_->cause.has_value(); });
  return state_->cause;
}

Alarm::Subscription Alarm::listen(Listener listener) const {
  std::unique_lock lock(state_->mutex);
  if (!state_->cause) {
    const std::uint64_t number = ++state_->last_number;
    state_->listeners.emplace(number, std::move(listener));
    return {state_, number};
  }
  const CommError cause = *state_->cause;
  lock.unlock();
  listener(cause);
  return {};
}

}  // namespace tandem::inline v0::parallel
