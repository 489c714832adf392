#include <tandem/parallel/comm/gloo/backend_over_gloo.h>

#include <algorithm>
#include <cstring>
#include <vector>

// Collectives that only move data.

namespace tandem::inline v0::parallel {

using Kind = CollectiveKind;

namespace {

// Of a broadcast, which is passed on as soon as it is there.
constexpr std::size_t kSegment = 512 << 10;

const std::byte* part(const void* all, std::size_t bytes, int rank) {
  return static_cast<const std::byte*>(all) + bytes * static_cast<std::size_t>(rank);
}
std::byte* part(void* all, std::size_t bytes, int rank) {
  return static_cast<std::byte*>(all) + bytes * static_cast<std::size_t>(rank);
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

// What goes to a rank and what comes from it; null: nothing.
struct GlooBackend::Part {
  const void* to = nullptr;
  void* from = nullptr;
};

GlooBackend::Part GlooBackend::part_of(int peer, const Buffers& buffers, const Collective& call) const {
  const std::size_t bytes = static_cast<std::size_t>(buffers.numel) * item_size(call.dtype);
  switch (call.kind) {
    case Kind::all_gather: return {buffers.in, part(buffers.out, bytes, peer)};
    case Kind::gather:
      return {peer == call.root ? buffers.in : nullptr, rank() == call.root ? part(buffers.out, bytes, peer) : nullptr};
    case Kind::scatter:
      return {rank() == call.root ? part(buffers.in, bytes, peer) : nullptr, peer == call.root ? buffers.out : nullptr};
    default: return {part(buffers.in, bytes, peer), part(buffers.out, bytes, peer)};  // all_to_all
  }
}

void GlooBackend::move_parts(const Buffers& buffers, const GlooCall& now) {
  const std::size_t bytes = static_cast<std::size_t>(buffers.numel) * item_size(now.call.dtype);
  const std::uint64_t slot = data_slots(now);
  const bool is_short = bytes <= kMailPayload;
  std::vector<GlooStream> streams;
  streams.reserve(2 * static_cast<std::size_t>(size()));
  for (int step = 1; bytes > 0 && step < size(); ++step) {
    const int peer = (rank() + step) % size();  // not all to the same one
    const Part with = part_of(peer, buffers, now.call);
    if (with.from != nullptr && !is_short) {
      streams.emplace_back(*wire_, peer, with.from, bytes, slot, now).recv(0, bytes);
    }
    if (with.to != nullptr) {
      if (is_short) {
        post(GlooMail::Kind::work, peer, with.to, bytes, now);
      } else {
        streams.emplace_back(*wire_, peer, with.to, bytes, slot, now).send(0, bytes);
      }
    }
  }
  if (const Part own = part_of(rank(), buffers, now.call); own.to != nullptr && own.from != nullptr) {
    copy(own.from, own.to, bytes);
  }
  for (int peer = 0; bytes > 0 && is_short && peer < size(); ++peer) {
    if (void* from = part_of(peer, buffers, now.call).from; from != nullptr && peer != rank()) {
      copy(from, payload_of(work_mail(peer, now)), bytes);
      wire_->take(peer);
    }
  }
  for (GlooStream& stream : streams) {
    stream.finish();
  }
}

void GlooBackend::broadcast(void* data, std::int64_t numel, const GlooCall& now) {
  const std::size_t bytes = static_cast<std::size_t>(numel) * item_size(now.call.dtype);
  if (bytes > 0) {
    bytes <= kMailPayload ? broadcast_short(data, bytes, now) : broadcast_long(data, bytes, now);
  }
}

void GlooBackend::broadcast_short(void* data, std::size_t bytes, const GlooCall& now) {
  const int root = now.call.root;
  if (rank() != root) {
    copy(data, payload_of(work_mail(root, now)), bytes);
    wire_->take(root);
    return;
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != root) {
      post(GlooMail::Kind::work, peer, data, bytes, now);
    }
  }
}

// The root sends each of the others its own slice, and they send it to each other: everybody gets it once, and nobody
// sends more than twice of it, however many there are.
void GlooBackend::broadcast_long(void* data, std::size_t bytes, const GlooCall& now) {
  const int root = now.call.root;
  const std::uint64_t slot = data_slots(now);
  const auto others = static_cast<std::size_t>(size() - 1);
  if (others == 0) {
    return;
  }
  const std::size_t whole = (bytes + others - 1) / others;
  const auto begin_of = [&](int owner) {
    return std::min(bytes, whole * static_cast<std::size_t>(owner - (owner > root ? 1 : 0)));
  };
  const auto bytes_of = [&](int owner) { return std::min(whole, bytes - begin_of(owner)); };
  const auto stream = [&](int peer, int owner, std::uint64_t s) {
    return GlooStream(*wire_, peer, static_cast<std::byte*>(data) + begin_of(owner), bytes_of(owner), s, now);
  };
  std::vector<GlooStream> coming;
  std::vector<GlooStream> going;
  coming.reserve(others);
  going.reserve(others);
  if (rank() != root) {
    coming.push_back(stream(root, rank(), slot));
    for (std::size_t at = 0; at < bytes_of(rank()); at += kSegment) {
      coming.front().recv(at, std::min(kSegment, bytes_of(rank()) - at));
    }
  }
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    if (rank() == root) {
      going.push_back(stream(peer, peer, slot));
    } else if (peer != root) {
      going.push_back(stream(peer, rank(), slot + 1));
      coming.push_back(stream(peer, peer, slot + 1));
      for (std::size_t at = 0; at < bytes_of(peer); at += kSegment) {
        coming.back().recv(at, std::min(kSegment, bytes_of(peer) - at));
      }
    }
  }
  for (std::size_t at = 0; at < whole; at += kSegment) {
    if (rank() != root && at < bytes_of(rank())) {
      coming.front().wait_recv();
    }
    for (GlooStream& to : going) {
      const std::size_t all = bytes_of(rank() == root ? to.peer() : rank());
      if (at < all) {
        to.send(at, std::min(kSegment, all - at));
      }
    }
  }
  for (auto* streams : {&coming, &going}) {
    for (GlooStream& each : *streams) {
      each.finish();
    }
  }
}

}  // namespace tandem::inline v0::parallel
