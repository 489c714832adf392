#include <tandem/parallel/comm/alarm.h>

#include <utility>

namespace tandem::inline v0::parallel {

struct Alarm::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<CommError> cause;
  std::map<std::uint64_t, Listener> listeners;
  std::uint64_t last_number = 0;
  bool calling = false;  // listeners are running
};

Alarm::Alarm() : state_(std::make_shared<State>()) {}

Alarm::Subscription::~Subscription() {
  if (!state_) {
    return;
  }
  std::unique_lock lock(state_->mutex);
  state_->listeners.erase(number_);
  state_->changed.wait(lock, [&] { return !state_->calling; });
}

void Alarm::ring(const CommError& cause) noexcept {
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
