#include <tandem/parallel/comm/hosts/messages.h>

#include <cstring>
#include <utility>

#include <tandem/parallel/comm/faults.h>

namespace tandem::inline v0::parallel {

namespace {

// Limit on the bytes of messages that have not been received; beyond it send() waits.
constexpr std::size_t kMaxUntaken = std::size_t{256} << 20;

std::size_t bytes_of(const Collective& call) {
  return static_cast<std::size_t>(call.shape.numel()) * item_size(call.dtype);
}

bool is_short(const Collective& call) { return bytes_of(call) <= kMailPayload; }

}  // namespace

void Messages::send(const Buffers& buffers, const CallInProgress& now) {
  const int to = now.call.root;
  Peer& peer = peer_at(to);
  const std::size_t bytes = bytes_of(now.call);
  while (!peer.sent.empty() && untaken_ + bytes > kMaxUntaken) {
    Sent& first = peer.sent.front();
    (first.data ? *first.data : first.mail).finish(now);
    forget_first(peer);
  }
  auto memory = std::make_unique_for_overwrite<std::byte[]>(kMailHead + bytes);
  std::byte* payload = memory.get() + kMailHead;
  const Mail head{.kind = Mail::Kind::message,
                  .payload = is_short(now.call) ? static_cast<std::uint32_t>(bytes) : 0,
                  .number = peer.next++,
                  .taken = taken_from(to),
                  .call = now.call};
  std::memcpy(memory.get(), &head, sizeof head);
  if (bytes > 0) {
    std::memcpy(payload, buffers.in, bytes);
  }
  untaken_ += bytes;
  Stream mail(wire_, to, memory.get(), kMailHead + head.payload, kMailSlot);
  Sent& sent = peer.sent.emplace_back(Sent{head.number, bytes, std::move(memory), std::move(mail), std::nullopt});
  sent.mail.send(0, kMailHead + head.payload, now);
  if (!is_short(now.call)) {
    sent.data.emplace(wire_, to, payload, bytes, kMessageSlots | head.number).send(0, bytes, now);
  }
}

void Messages::forget_first(Peer& peer) {
  untaken_ -= peer.sent.front().bytes;
  peer.sent.pop_front();
}

void Messages::note_taken(int peer, std::uint64_t taken) {
  Peer& to = peer_at(peer);
  while (!to.sent.empty() && to.sent.front().number < taken) {
    forget_first(to);
  }
}

// A long message that was put aside has not left its sender yet, so it does not count as taken.
std::uint64_t Messages::taken_from(int peer) const {
  const Peer& from = peers_[static_cast<std::size_t>(peer)];
  const auto open =
      std::find_if(from.kept.begin(), from.kept.end(), [](const Kept& kept) { return !is_short(kept.head.call); });
  return open == from.kept.end() ? from.came : open->head.number;
}

void Messages::put_aside(int peer, const Mail& mail, const CallInProgress& now) {
  note_taken(peer, mail.taken);
  if (mail.kind == Mail::Kind::goodbye) {
    wire_.fail_left(peer, now);
  }
  if (mail.kind == Mail::Kind::message) {
    Kept kept{mail, nullptr};
    if (mail.payload > 0) {
      kept.payload = std::make_unique_for_overwrite<std::byte[]>(mail.payload);
      std::memcpy(kept.payload.get(), payload_of(mail), mail.payload);
    }
    peer_at(peer).kept.push_back(std::move(kept));
    ++peer_at(peer).came;
  }
  wire_.take(peer);
}

// Whether a recv() with this tag ends at this mail. A message with another tag does not end it. Neither does a rank
// that waited in a collective that this rank has reached meanwhile.
bool Messages::concerns(const Mail& mail, int tag) const noexcept {
  switch (mail.kind) {
    case Mail::Kind::message: return mail.call.tag == tag;
    case Mail::Kind::waiting: return mail.call.sequence > begun_;
    default: return true;
  }
}

void Messages::receive(const Buffers& buffers, const CallInProgress& now) {
  const int from = now.call.root;
  Peer& peer = peer_at(from);
  if (const auto found = find_kept(peer, now.call.tag); found != peer.kept.end()) {
    deliver(found->head, found->payload.get(), buffers, now);
    peer.kept.erase(found);
    return;
  }
  for (;;) {
    const Mail& mail = wire_.mail(from, now);
    if (!concerns(mail, now.call.tag) || mail.kind == Mail::Kind::goodbye) {
      put_aside(from, mail, now);
      continue;
    }
    note_taken(from, mail.taken);
    if (mail.kind != Mail::Kind::message) {
      fail_pair(mail.call, now);
    }
    ++peer.came;
    deliver(mail, payload_of(mail), buffers, now);
    return wire_.take(from);
  }
}

bool Messages::await(const CallInProgress& now) {
  const int from = now.call.root;
  Peer& peer = peer_at(from);
  if (find_kept(peer, now.call.tag) != peer.kept.end()) {
    return true;
  }
  for (;;) {
    const Wire::Waited waited = wire_.look(from, now.time.deadline, &now, true);
    if (waited != Wire::Waited::done) {
      return waited != Wire::Waited::interrupted;  // receive() reports the error
    }
    const Mail& mail = wire_.mail(from, now);
    if (concerns(mail, now.call.tag)) {
      return true;
    }
    put_aside(from, mail, now);
  }
}

std::deque<Messages::Kept>::iterator Messages::find_kept(Peer& peer, int tag) {
  return std::find_if(peer.kept.begin(), peer.kept.end(), [&](const Kept& kept) { return kept.head.call.tag == tag; });
}

void Messages::deliver(const Mail& head, const void* payload, const Buffers& buffers, const CallInProgress& now) {
  Collective expected = head.call;
  expected.kind = now.call.kind;
  expected.root = now.call.root;
  if (expected != now.call) {
    fail_pair(head.call, now);
  }
  const std::size_t bytes = bytes_of(now.call);
  if (!is_short(now.call)) {
    Stream data(wire_, now.call.root, buffers.out, bytes, kMessageSlots | head.number);
    data.recv(0, bytes, now);
    data.finish(now);
  } else if (bytes > 0) {
    std::memcpy(buffers.out, payload, bytes);
  }
}

void Messages::flush(std::chrono::steady_clock::time_point deadline) {
  for (Peer& peer : peers_) {
    for (Sent& sent : peer.sent) {
      if (!sent.mail.sent_until(deadline) || (sent.data && !sent.data->sent_until(deadline))) {
        break;
      }
    }
  }
}

void Messages::fail_pair(const Collective& theirs, const CallInProgress& now) {
  wire_.fail(pair_mismatch_error(wire_.rank(), now.call, theirs, now.time));
}

}  // namespace tandem::inline v0::parallel
