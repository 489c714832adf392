#include <tandem/parallel/comm/transport_gloo/wire.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>  // Gloo's headers use it without including it
#include <utility>

#include <gloo/common/error.h>
#include <gloo/transport/unbound_buffer.h>

#include <tandem/core/system_limits.h>
#include <tandem/parallel/comm/transport_gloo/mesh.h>
#include <tandem/parallel/comm/transport_gloo/signals.h>

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::hours kNever(24 * 365);
constexpr std::chrono::seconds kSilence(5);  // the shortest wait for a packet that gets a line

}  // namespace

Wire::Wire(std::shared_ptr<GlooMesh> mesh, std::shared_ptr<Alarm> alarm)
    : mesh_(std::move(mesh)),
      alarm_(std::move(alarm)),
      rank_(mesh_->rank),
      boxes_(static_cast<std::size_t>(mesh_->size)),
      farewell_(buffer_over(&own_farewell_, sizeof own_farewell_)),
      watched_until_(Clock::time_point::max()) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) {
      continue;
    }
    peers_.push_back(peer);
    boxes_[static_cast<std::size_t>(peer)] = std::make_unique<Mailbox>();
    for (auto* places : {&box(peer).in, &box(peer).out}) {
      for (Mailbox::Place& place : *places) {
        place.buffer = buffer_over(place.bytes, kMailBytes);
      }
    }
    for (Mailbox::Place& place : box(peer).in) {
      place.buffer->recv(peer, kMailSlot, 0, kMailBytes);
    }
    Farewell& farewell = box(peer).farewell;
    box(peer).farewell_buffer = buffer_over(&farewell, sizeof farewell);
    box(peer).farewell_buffer->recv(peer, kFarewellSlot, 0, sizeof farewell);
  }
  {
    const SignalBlock for_its_thread;
    watcher_ = core::start_thread("the connections of a group", [this] { watch(); });
  }
  if (alarm_) {
    subscription_.emplace(alarm_->listen([this](const CommError& cause) { abort(cause); }));
  }
}

Wire::~Wire() {
  subscription_.reset();
  mesh_->close();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  watcher_.join();
}

std::unique_ptr<Wire::Buffer> Wire::buffer_over(void* memory, std::size_t bytes) const {
  return mesh_->createUnboundBuffer(memory, bytes);
}

bool Wire::start(Direction direction, Buffer& buffer, int peer, std::uint64_t slot, std::size_t offset,
                 std::size_t bytes) {
  const SigpipeBlock no_signals;
  try {
    direction == Direction::send ? buffer.send(peer, slot, offset, bytes) : buffer.recv(peer, slot, offset, bytes);
    return true;
  } catch (const gloo::Exception&) {
    return false;
  }
}

Wire::Waited Wire::try_post(int peer, Mail head, const void* payload, std::size_t bytes, Clock::time_point deadline,
                            const CallInProgress* now) {
  Mailbox& to = box(peer);
  Mailbox::Place& place = to.out[to.posted % kPlaces];
  if (to.posted >= kPlaces) {
    if (const Waited free = wait_until(Direction::send, *place.buffer, deadline, {now, peer}); free != Waited::done) {
      return free;
    }
  }
  head.payload = static_cast<std::uint32_t>(bytes);
  std::memcpy(place.bytes, &head, sizeof head);
  if (bytes > 0) {
    std::memcpy(place.bytes + kMailHead, payload, bytes);
  }
  ++to.posted;
  return start(Direction::send, *place.buffer, peer, kMailSlot, 0, kMailHead + bytes) ? Waited::done : Waited::broken;
}

void Wire::post(int peer, const Mail& head, const void* payload, std::size_t bytes, const CallInProgress& now) {
  check();
  expect(try_post(peer, head, payload, bytes, now.time.deadline, &now), {&now, peer});
}

Wire::Waited Wire::look(int peer, Clock::time_point deadline, const CallInProgress* now, bool interruptible) {
  Mailbox& from = box(peer);
  if (from.looked) {
    return Waited::done;
  }
  if (from.taken >= from.end) {
    return Waited::broken;
  }
  const Waited waited = wait_until(Direction::recv, *next_place(from).buffer, deadline, {now, peer}, interruptible);
  from.looked = waited == Waited::done;
  return waited;
}

const Mail& Wire::mail(int peer, const CallInProgress& now) {
  expect(look(peer, now.time.deadline, &now), {&now, peer});
  return *reinterpret_cast<const Mail*>(next_place(box(peer)).bytes);
}

const Mail* Wire::mail_until(int peer, Clock::time_point deadline) {
  return look(peer, deadline) == Waited::done ? reinterpret_cast<const Mail*>(next_place(box(peer)).bytes) : nullptr;
}

// A rank that has done its part may be gone by now, which matters only to a reader of its next mail.
void Wire::take(int peer) {
  Mailbox& from = box(peer);
  Buffer& buffer = *next_place(from).buffer;
  ++from.taken;
  from.looked = false;
  if (!start(Direction::recv, buffer, peer, kMailSlot, 0, kMailBytes)) {
    from.end = std::min(from.end, from.taken - 1 + kPlaces);
  }
}

void Wire::interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  wake();
}

void Wire::expect(Waited waited, const WaitCause& why) {
  if (waited == Waited::broken) {
    fail_lost(why.peer, *why.now);
  }
  if (waited == Waited::late) {
    fail_late(why.peer, why.has_come, *why.now);
  }
}

Wire::Waited Wire::wait_until(Direction direction, Buffer& buffer, Clock::time_point deadline, const WaitCause& why,
                              bool interruptible) {
  // Data that arrives shows that the ranks go on, so what counts is the silence of this wait.
  Clock::time_point line_due = Clock::time_point::max();
  if (why.now != nullptr) {
    line_due = std::max(why.now->time.line_due, Clock::now() + kSilence);
  }
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (cause_) {
        return Waited::broken;
      }
      if (interruptible && std::exchange(interrupted_, false)) {
        return Waited::interrupted;
      }
      awaited_ = &buffer;
      direction_ = direction;
      why_ = why;
      deadline_ = deadline;
      line_due_ = line_due;
      late_ = false;
      if (std::min(deadline, line_due) < watched_until_) {
        changed_.notify_one();
      }
    }
    bool came = false;
    bool broken = false;
    try {
      came = direction == Direction::recv ? buffer.waitRecv(kNever) : buffer.waitSend(kNever);
    } catch (const gloo::Exception&) {
      broken = true;
    }
    const std::lock_guard lock(mutex_);
    awaited_ = nullptr;
    if (came || broken) {
      return came ? Waited::done : Waited::broken;
    }
    if (late_ || cause_) {
      return cause_ ? Waited::broken : Waited::late;
    }  // otherwise the wake-up was for an earlier wait
  }
}

Stream::Stream(Wire& wire, int peer, const void* data, std::size_t bytes, std::uint64_t slot)
    : wire_(&wire),
      peer_(peer),
      bytes_(bytes),
      slot_(slot),
      buffer_(wire.buffer_over(const_cast<void*>(data), bytes)) {}
Stream::Stream(Stream&& other) noexcept = default;
Stream::~Stream() = default;

void Stream::send(std::size_t offset, std::size_t bytes, const CallInProgress& now) {
  if (bytes > 0) {
    ++sending_;
    start(Wire::Direction::send, offset, bytes, now);
  }
}

void Stream::recv(std::size_t offset, std::size_t bytes, const CallInProgress& now) {
  if (bytes > 0) {
    ++receiving_;
    start(Wire::Direction::recv, offset, bytes, now);
  }
}

void Stream::start(Wire::Direction direction, std::size_t offset, std::size_t bytes, const CallInProgress& now) {
  wire_->check();
  if (!Wire::start(direction, *buffer_, peer_, slot_, offset, bytes)) {
    wire_->fail_lost(peer_, now);
  }
}

void Stream::send_segment(std::size_t offset, const CallInProgress& now) {
  send(offset, std::min(kSegment, bytes_ - std::min(offset, bytes_)), now);
}

void Stream::send_all(const CallInProgress& now) {
  for (std::size_t at = 0; at < bytes_; at += kSegment) {
    send_segment(at, now);
  }
}

void Stream::recv_all(const CallInProgress& now) {
  for (std::size_t at = 0; at < bytes_; at += kSegment) {
    recv(at, std::min(kSegment, bytes_ - at), now);
  }
}

void Stream::wait_recv(const CallInProgress& now) {
  --receiving_;
  const WaitCause why{&now, peer_, true};
  wire_->expect(wire_->wait_until(Wire::Direction::recv, *buffer_, now.time.deadline, why), why);
}

void Stream::finish(const CallInProgress& now) {
  while (receiving_ > 0) {
    wait_recv(now);
  }
  for (; sending_ > 0; --sending_) {
    const WaitCause why{&now, peer_, now.call.kind != CollectiveKind::send};
    wire_->expect(wire_->wait_until(Wire::Direction::send, *buffer_, now.time.deadline, why), why);
  }
}

bool Stream::sent_until(Clock::time_point deadline) {
  return wire_->wait_until(Wire::Direction::send, *buffer_, deadline) == Wire::Waited::done;
}

}  // namespace tandem::inline v0::parallel
