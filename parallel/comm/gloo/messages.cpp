#include <tandem/parallel/comm/gloo/messages.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/gloo/stream.h>

namespace tandem::inline v0::parallel {

namespace {

// Of a long message's data, by its number.
constexpr std::uint64_t kDataSlots = std::uint64_t{1} << 62;

std::size_t bytes_of(const Collective& call) {
  return static_cast<std::size_t>(call.shape.numel()) * item_size(call.dtype);
}

bool is_short(const Collective& call) { return bytes_of(call) <= kMailPayload; }

}  // namespace

void GlooMessages::send(const Buffers& buffers, const GlooCall& now) {
  const int to = now.call.root;
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  const std::size_t bytes = bytes_of(now.call);
  make_room(peer, bytes, now);
  Sent message{peer.next, bytes, std::make_unique_for_overwrite<std::byte[]>(kMailHead + bytes), nullptr, nullptr};
  std::byte* payload = message.memory.get() + kMailHead;
  const GlooMail head{.kind = GlooMail::Kind::message,
                      .payload = is_short(now.call) ? static_cast<std::uint32_t>(bytes) : 0,
                      .number = peer.next,
                      .taken = taken_from(to),
                      .call = now.call};
  std::memcpy(message.memory.get(), &head, sizeof head);
  if (bytes > 0) {
    std::memcpy(payload, buffers.in, bytes);
  }
  message.mail = wire_.mesh().createUnboundBuffer(message.memory.get(), kMailHead + head.payload);
  if (!is_short(now.call)) {
    message.data = wire_.mesh().createUnboundBuffer(payload, bytes);
  }
  ++peer.next;
  untaken_ += bytes;
  peer.sent.push_back(std::move(message));
  const Sent& sent = peer.sent.back();
  wire_.post_buffer(to, *sent.mail, kMailHead + head.payload, now);
  if (sent.data) {
    wire_.send(to, *sent.data, kDataSlots | sent.number, 0, bytes, now);
  }
}

void GlooMessages::make_room(Peer& peer, std::size_t bytes, const GlooCall& now) {
  while (!peer.sent.empty() && untaken_ + bytes > kMaxUntaken) {
    Sent& first = peer.sent.front();
    wire_.wait(now.call.root, first.data ? *first.data : *first.mail, GlooWire::Direction::send, now);
    forget_first(peer);
  }
}

void GlooMessages::forget_first(Peer& peer) {
  untaken_ -= peer.sent.front().bytes;
  peer.sent.pop_front();
}

void GlooMessages::note_taken(int peer, std::uint64_t taken) {
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  while (!to.sent.empty() && to.sent.front().number < taken) {
    forget_first(to);
  }
}

// Long messages that are kept are still over there.
std::uint64_t GlooMessages::taken_from(int peer) const {
  const Peer& from = peers_[static_cast<std::size_t>(peer)];
  const auto open =
      std::find_if(from.kept.begin(), from.kept.end(), [](const Kept& kept) { return !is_short(kept.head.call); });
  return open == from.kept.end() ? from.came : open->head.number;
}

void GlooMessages::keep(int peer, const GlooMail& mail) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  Kept kept{mail, nullptr};
  if (mail.payload > 0) {
    kept.payload = std::make_unique_for_overwrite<std::byte[]>(mail.payload);
    std::memcpy(kept.payload.get(), payload_of(mail), mail.payload);
  }
  from.kept.push_back(std::move(kept));
  ++from.came;
}

void GlooMessages::receive(const Buffers& buffers, const GlooCall& now) {
  const int from = now.call.root;
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  if (take_kept(peer, buffers, now)) {
    return;
  }
  for (;;) {
    const GlooMail& mail = wire_.mail(from, now);
    note_taken(from, mail.taken);
    if (mail.kind == GlooMail::Kind::goodbye) {
      wire_.fail_left(from, now);
    }
    if (is_stale(mail)) {
      wire_.take(from);
      continue;
    }
    if (mail.kind != GlooMail::Kind::message) {
      fail_pair(mail.call, now);  // it waits there for this rank, which waits here for it
    }
    if (mail.call.tag == now.call.tag) {
      ++peer.came;
      deliver(mail, payload_of(mail), buffers, now);
      wire_.take(from);
      return;
    }
    keep(from, mail);
    wire_.take(from);
  }
}

bool GlooMessages::await(const GlooCall& now) {
  const int from = now.call.root;
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  if (find_kept(peer, now.call.tag) != peer.kept.end()) {
    return true;
  }
  for (;;) {
    const GlooWire::Waited waited = wire_.look(from, now.time.deadline, true);
    if (waited != GlooWire::Waited::done) {
      return waited != GlooWire::Waited::interrupted;  // receive() says what is wrong
    }
    const GlooMail& mail = wire_.mail(from, now);
    if (!is_stale(mail)) {
      if (mail.kind != GlooMail::Kind::message || mail.call.tag == now.call.tag) {
        return true;
      }
      note_taken(from, mail.taken);
      keep(from, mail);
    }
    wire_.take(from);
  }
}

std::deque<GlooMessages::Kept>::iterator GlooMessages::find_kept(Peer& peer, int tag) {
  return std::find_if(peer.kept.begin(), peer.kept.end(), [&](const Kept& kept) { return kept.head.call.tag == tag; });
}

bool GlooMessages::take_kept(Peer& peer, const Buffers& buffers, const GlooCall& now) {
  const auto found = find_kept(peer, now.call.tag);
  if (found == peer.kept.end()) {
    return false;
  }
  deliver(found->head, found->payload.get(), buffers, now);
  peer.kept.erase(found);
  return true;
}

void GlooMessages::deliver(const GlooMail& head, const void* payload, const Buffers& buffers, const GlooCall& now) {
  Collective expected = head.call;
  expected.kind = now.call.kind;
  expected.root = now.call.root;
  if (expected != now.call) {
    fail_pair(head.call, now);
  }
  const std::size_t bytes = bytes_of(now.call);
  if (!is_short(now.call)) {
    GlooStream data(wire_, now.call.root, buffers.out, bytes, kDataSlots | head.number, now);
    data.recv(0, bytes);
    data.finish();
  } else if (bytes > 0) {
    std::memcpy(buffers.out, payload, bytes);
  }
}

void GlooMessages::flush(std::chrono::steady_clock::time_point deadline) {
  for (Peer& peer : peers_) {
    for (const Sent& sent : peer.sent) {
      const auto waits_for = [&](Buffer& buffer) {
        return wire_.wait_until(buffer, GlooWire::Direction::send, deadline) == GlooWire::Waited::done;
      };
      if (!waits_for(*sent.mail) || (sent.data && !waits_for(*sent.data))) {
        break;
      }
    }
  }
}

void GlooMessages::fail_pair(const Collective& theirs, const GlooCall& now) {
  const int peer = now.call.root;
  const std::string mine_text = fmt::format("rank {}: {}", wire_.rank(), to_string(now.call));
  const std::string peer_text = fmt::format("rank {}: {}", peer, to_string(theirs));
  const bool first = wire_.rank() < peer;
  wire_.fail(
      mismatch_error((first ? mine_text : peer_text) + "; " + (first ? peer_text : mine_text), -1, now.call, now.time));
}

}  // namespace tandem::inline v0::parallel
