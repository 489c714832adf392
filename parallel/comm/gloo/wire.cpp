#include <tandem/parallel/comm/gloo/wire.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <gloo/common/error.h>

#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/gloo/mailbox.h>

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::hours kNever(24 * 365);

}  // namespace

GlooWire::GlooWire(std::shared_ptr<GlooMesh> mesh, std::shared_ptr<Alarm> alarm)
    : mesh_(std::move(mesh)),
      alarm_(std::move(alarm)),
      farewell_(mesh_->createUnboundBuffer(&own_farewell_, sizeof own_farewell_)),
      watched_until_(Clock::time_point::max()) {
  for (int peer = 0; peer < size(); ++peer) {
    boxes_.push_back(peer == rank() ? nullptr : std::make_unique<Mailbox>());
    if (peer == rank()) {
      continue;
    }
    Mailbox& box = *boxes_.back();
    for (auto* places : {&box.in, &box.out}) {
      for (Mailbox::Place& place : *places) {
        place.buffer = mesh_->createUnboundBuffer(place.bytes, kMailBytes);
      }
    }
    for (Mailbox::Place& place : box.in) {
      place.buffer->recv(peer, kMailSlot, 0, kMailBytes);
    }
    box.farewell_buffer = mesh_->createUnboundBuffer(&box.farewell, sizeof box.farewell);
    box.farewell_buffer->recv(peer, kFarewellSlot, 0, sizeof box.farewell);
  }
  {
    const SignalBlock for_its_thread;
    watcher_ = std::thread([this] { watch(); });
  }
  if (alarm_) {
    subscription_.emplace(alarm_->listen([this](const CommError& cause) { abort(cause); }));
  }
}

GlooWire::~GlooWire() {
  subscription_.reset();
  mesh_->close();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  watcher_.join();
}

GlooWire::Waited GlooWire::try_post(int peer, GlooMail head, const void* payload, std::size_t bytes,
                                    Clock::time_point deadline) {
  Mailbox& to = box(peer);
  Mailbox::Place& place = to.out[to.posted % kPlaces];
  if (to.posted >= kPlaces) {
    if (const Waited free = wait_until(*place.buffer, Direction::send, deadline); free != Waited::done) {
      return free;
    }
  }
  head.payload = static_cast<std::uint32_t>(bytes);
  std::memcpy(place.bytes, &head, sizeof head);
  if (bytes > 0) {
    std::memcpy(place.bytes + kMailHead, payload, bytes);
  }
  ++to.posted;
  try {
    place.buffer->send(peer, kMailSlot, 0, kMailHead + bytes);
  } catch (const gloo::Exception&) {
    return Waited::broken;
  }
  return Waited::done;
}

void GlooWire::post(int peer, const GlooMail& head, const void* payload, std::size_t bytes, const GlooCall& now) {
  check();
  expect(try_post(peer, head, payload, bytes, now.time.deadline), peer, now);
}

void GlooWire::post_buffer(int peer, Buffer& mail, std::size_t bytes, const GlooCall& now) {
  send(peer, mail, kMailSlot, 0, bytes, now);
}

const GlooMail& GlooWire::mail(int peer, const GlooCall& now) {
  Mailbox& from = box(peer);
  Mailbox::Place& place = from.in[from.taken % kPlaces];
  if (!from.looked) {
    if (from.taken >= from.end) {
      fail_lost(peer, now);
    }
    wait(peer, *place.buffer, Direction::recv, now);
    from.looked = true;
  }
  return *reinterpret_cast<const GlooMail*>(place.bytes);
}

void GlooWire::note_call(int peer, const Collective& call) { box(peer).last = call; }

const GlooMail* GlooWire::mail_until(int peer, Clock::time_point deadline) {
  if (look(peer, deadline, false) != Waited::done) {
    return nullptr;
  }
  const Mailbox& from = box(peer);
  return reinterpret_cast<const GlooMail*>(from.in[from.taken % kPlaces].bytes);
}

GlooWire::Waited GlooWire::look(int peer, Clock::time_point deadline, bool interruptible) {
  Mailbox& from = box(peer);
  if (!from.looked) {
    const Waited waited = from.taken < from.end ? wait_until(*from.in[from.taken % kPlaces].buffer, Direction::recv,
                                                             deadline, interruptible)
                                                : Waited::broken;
    from.looked = waited == Waited::done;
    return waited;
  }
  return Waited::done;
}

void GlooWire::interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  wake();
}

// A rank that has done its part may be gone by now: that matters only to who waits for its next mail.
void GlooWire::take(int peer) {
  Mailbox& from = box(peer);
  Mailbox::Place& place = from.in[from.taken % kPlaces];
  ++from.taken;
  from.looked = false;
  try {
    place.buffer->recv(peer, kMailSlot, 0, kMailBytes);
  } catch (const gloo::Exception&) {
    from.end = std::min(from.end, from.taken - 1 + kPlaces);
  }
}

void GlooWire::send(int peer, Buffer& buffer, std::uint64_t slot, std::size_t offset, std::size_t bytes,
                    const GlooCall& now) {
  check();
  try {
    buffer.send(peer, slot, offset, bytes);
  } catch (const gloo::Exception&) {
    fail_lost(peer, now);
  }
}

void GlooWire::recv(int peer, Buffer& buffer, std::uint64_t slot, std::size_t offset, std::size_t bytes,
                    const GlooCall& now) {
  check();
  try {
    buffer.recv(peer, slot, offset, bytes);
  } catch (const gloo::Exception&) {
    fail_lost(peer, now);
  }
}

void GlooWire::wait(int peer, Buffer& buffer, Direction direction, const GlooCall& now) {
  expect(wait_until(buffer, direction, now.time.deadline), peer, now);
}

void GlooWire::expect(Waited waited, int peer, const GlooCall& now) {
  if (waited == Waited::broken) {
    fail_lost(peer, now);
  }
  if (waited == Waited::late) {
    fail_late(peer, now);
  }
}

GlooWire::Waited GlooWire::wait_until(Buffer& buffer, Direction direction, Clock::time_point deadline,
                                      bool interruptible) {
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
      deadline_ = deadline;
      late_ = false;
      if (deadline < watched_until_) {
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
    }  // else it was woken for an earlier wait
  }
}

}  // namespace tandem::inline v0::parallel
