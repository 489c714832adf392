#include <tandem/parallel/comm/gloo/wire.h>

#include <gloo/common/error.h>

#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/gloo/mailbox.h>

// How a call that does not succeed ends, on all ranks.

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;

namespace {

// In which the control channel, if there is one, says who died: its connections close as early as ours.
constexpr std::chrono::milliseconds kExplanationTime(700);

CommError left_error(int peer, const GlooCall& now) {
  return peer_lost_error(peer, "it destroyed its process group", now.call, now.time);
}

}  // namespace

void GlooWire::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (awaited_ != nullptr && Clock::now() >= deadline_ && !late_) {
      late_ = true;
      wake();
    }
    if (awaited_ != nullptr && !late_) {
      watched_until_ = deadline_;
      changed_.wait_until(lock, deadline_);
    } else {
      watched_until_ = Clock::time_point::max();
      changed_.wait(lock);
    }
  }
}

// Whoever waits gets false from Gloo, and all connections stay as they are.
void GlooWire::wake() {
  if (awaited_ != nullptr) {
    direction_ == Direction::recv ? awaited_->abortWaitRecv() : awaited_->abortWaitSend();
  }
}

void GlooWire::check() const {
  const std::lock_guard lock(mutex_);
  if (cause_) {
    throw CommError(*cause_);
  }
}

std::optional<CommError> GlooWire::failure() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

bool GlooWire::has_failed() const { return failure().has_value(); }

void GlooWire::fail(const CommError& error) {
  if (alarm_) {
    alarm_->ring(error);
    abort(*alarm_->cause());  // only its first ring counts, and may have been another
  } else {
    abort(error);
  }
  const std::lock_guard lock(mutex_);
  throw CommError(*cause_);
}

void GlooWire::fail_lost(int peer, const GlooCall& now) {
  check();
  fail(why_broken(peer, now));
}

void GlooWire::fail_late(int peer, const GlooCall& now) {
  const std::optional<Collective>& last = box(peer).last;
  fail(timeout_error(peer, last ? to_string(*last) : std::string(), now.call, now.time));
}

void GlooWire::fail_left(int peer, const GlooCall& now) { fail(left_error(peer, now)); }

// Who fails says why before it closes its connections. Who closes them without a word has died, or was in the middle
// of a long packet: then the control channel knows, if there is one.
CommError GlooWire::why_broken(int peer, const GlooCall& now) {
  Mailbox& from = box(peer);
  const auto soon = Clock::now() + kExplanationTime;
  if (wait_until(*from.farewell_buffer, Direction::recv, soon) == Waited::done) {
    return from.farewell.error();
  }
  while (const GlooMail* mail = mail_until(peer, soon)) {
    if (mail->kind == GlooMail::Kind::goodbye) {
      return left_error(peer, now);
    }
    take(peer);
  }
  if (const auto cause = alarm_ ? alarm_->wait_for(kExplanationTime) : std::nullopt) {
    return *cause;
  }
  return peer_lost_error(peer, "its connection closed: its process ended, or its machine cannot be reached", now.call,
                         now.time);
}

void GlooWire::abort(const CommError& cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (cause_) {
      return;
    }
    cause_ = cause;
    wake();
    own_farewell_ = Farewell(cause);
  }
  const SigpipeBlock no_signals;
  for (int peer = 0; peer < size(); ++peer) {
    try {
      if (peer != rank()) {
        farewell_->send(peer, kFarewellSlot, 0, sizeof own_farewell_);
      }
    } catch (const gloo::Exception&) {  // it is gone
    }
  }
  mesh_->close();
}

}  // namespace tandem::inline v0::parallel
