#include <tandem/parallel/comm/transport_gloo/wire.h>

#include <gloo/transport/unbound_buffer.h>

#include <tandem/parallel/comm/transport_gloo/mesh.h>

// How a failed call ends on all ranks.

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;

namespace {

CommError left_error(int peer, const CallInProgress& now) {
  return peer_lost_error(peer, "it destroyed its process group", now.call, now.time);
}

}  // namespace

void Wire::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (awaited_ != nullptr && Clock::now() >= deadline_ && !late_) {
      late_ = true;
      wake();
    }
    if (awaited_ != nullptr && !late_ && Clock::now() >= line_due_) {
      tell_line(lock);
    } else if (awaited_ != nullptr && !late_) {
      watched_until_ = std::min(deadline_, line_due_);
      changed_.wait_until(lock, watched_until_);
    } else {
      watched_until_ = Clock::time_point::max();
      changed_.wait(lock);
    }
  }
}

// Tells without the lock, since a warning handler may use the group. Meanwhile the wait may end, and the call with it.
void Wire::tell_line(std::unique_lock<std::mutex>& lock) {
  const Collective call = why_.now->call;
  why_.now->time.put_off_line(Clock::now());
  const CallTime time = why_.now->time;
  const Awaited awaited = late(why_.peer, why_.has_come);
  line_due_ = time.line_due;
  lock.unlock();
  tell_long_wait(rank_, awaited, call, time);
  lock.lock();
}

// Gloo returns false to the waiting thread, and all connections stay open.
void Wire::wake() {
  if (awaited_ != nullptr) {
    direction_ == Direction::recv ? awaited_->abortWaitRecv() : awaited_->abortWaitSend();
  }
}

void Wire::check() const {
  const std::lock_guard lock(mutex_);
  if (cause_) {
    throw CommError(*cause_);
  }
}

std::optional<CommError> Wire::failure() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Wire::spread(const CommError& error) noexcept {
  if (alarm_) {
    alarm_->ring(error);
  }
  abort((alarm_ ? alarm_->cause() : std::nullopt).value_or(error));
}

void Wire::fail(const CommError& error) {
  spread(error);
  const std::lock_guard lock(mutex_);
  throw CommError(*cause_);
}

void Wire::fail_lost(int peer, const CallInProgress& now) {
  check();
  fail(why_broken(peer, now));
}

Awaited Wire::late(int peer, bool has_come) { return {peer, has_come, box(peer).last}; }

void Wire::fail_late(int peer, bool has_come, const CallInProgress& now) {
  fail(timeout_error(late(peer, has_come), now.call, now.time));
}

void Wire::tell_if_due(int peer, const CallInProgress& now) {
  if (const auto time = Clock::now(); time >= now.time.line_due) {
    now.time.put_off_line(time);
    tell_long_wait(rank_, late(peer, false), now.call, now.time);
  }
}

void Wire::fail_left(int peer, const CallInProgress& now) { fail(left_error(peer, now)); }

// A rank that fails sends the reason before it closes its connections. A rank that closes them without a message has
// died, or was in the middle of a long packet: then only the control channel knows the reason, if there is one.
CommError Wire::why_broken(int peer, const CallInProgress& now) {
  Mailbox& from = box(peer);
  const auto soon = Clock::now() + Alarm::kExplanationTime;
  if (wait_until(Direction::recv, *from.farewell_buffer, soon) == Waited::done) {
    return from.farewell.error();
  }
  while (const Mail* mail = mail_until(peer, soon)) {
    if (mail->kind == Mail::Kind::goodbye) {
      return left_error(peer, now);
    }
    take(peer);
  }
  if (const auto cause = alarm_ ? alarm_->wait_for(Alarm::kExplanationTime) : std::nullopt) {
    return *cause;
  }
  return peer_lost_error(peer, "its connection closed: its process ended, or its machine cannot be reached", now.call,
                         now.time);
}

void Wire::abort(const CommError& cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (cause_) {
      return;
    }
    cause_ = cause;
    wake();
    own_farewell_ = Farewell(cause);
  }
  for (const int peer : peers_) {  // peers whose connection is gone receive nothing
    start(Direction::send, *farewell_, peer, kFarewellSlot, 0, sizeof own_farewell_);
  }
  mesh_->close();
}

}  // namespace tandem::inline v0::parallel
