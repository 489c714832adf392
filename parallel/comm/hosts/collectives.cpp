#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <tandem/parallel/comm/combine.h>
#include <tandem/parallel/comm/hosts/hosts_backend.h>

// Collectives over the wire: those that only move data, then those that combine values.

namespace tandem::inline v0::parallel {

using Kind = CollectiveKind;

namespace {

constexpr std::size_t kSegment = Stream::kSegment;  // bytes combined at a time
constexpr std::size_t kWindow = 4;                  // segments of one rank that may be in flight
constexpr std::size_t kAlwaysShort = 16 << 10;      // bytes

const std::byte* part(const void* all, std::size_t bytes, int rank) {
  return static_cast<const std::byte*>(all) + bytes * static_cast<std::size_t>(rank);
}
std::byte* part(void* all, std::size_t bytes, int rank) {
  return static_cast<std::byte*>(all) + bytes * static_cast<std::size_t>(rank);
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (to != from) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

// Memory to send to a rank and memory to receive from it; null: nothing.
struct HostsBackend::Part {
  const void* to = nullptr;
  void* from = nullptr;
};

HostsBackend::Part HostsBackend::part_of(int peer, const Buffers& buffers, const Collective& call) const {
  const std::size_t bytes = bytes_of(call, buffers);
  switch (call.kind) {
    case Kind::broadcast:  // the root only reads
      return {rank() == call.root ? buffers.in : nullptr, peer == call.root && peer != rank() ? buffers.out : nullptr};
    case Kind::all_gather: return {buffers.in, part(buffers.out, bytes, peer)};
    case Kind::gather:
      return {peer == call.root ? buffers.in : nullptr, rank() == call.root ? part(buffers.out, bytes, peer) : nullptr};
    case Kind::scatter:
      return {rank() == call.root ? part(buffers.in, bytes, peer) : nullptr, peer == call.root ? buffers.out : nullptr};
    default: return {part(buffers.in, bytes, peer), part(buffers.out, bytes, peer)};  // all_to_all
  }
}

void HostsBackend::move_parts(const Buffers& buffers, const CallInProgress& now) {
  const std::size_t bytes = bytes_of(now.call, buffers);
  if (bytes == 0) {
    return;
  }
  const bool is_short = bytes <= kMailPayload;
  if (now.call.planned && !is_short) {
    tell_all(nullptr, 0, now, [](int, const Mail&) {});
  }
  const std::uint64_t slot = is_short ? 0 : data_slots(now);
  std::vector<Stream> streams;
  streams.reserve(2 * wire_->peers().size());
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();  // so that ranks do not all send to the same one
    const Part with = part_of(peer, buffers, now.call);
    if (with.from != nullptr && !is_short) {
      streams.emplace_back(*wire_, peer, with.from, bytes, slot).recv(0, bytes, now);
    }
    if (with.to != nullptr && is_short) {
      post(Mail::Kind::work, peer, with.to, bytes, now);
    } else if (with.to != nullptr) {
      streams.emplace_back(*wire_, peer, with.to, bytes, slot).send(0, bytes, now);
    }
  }
  if (const Part own = part_of(rank(), buffers, now.call); own.to != nullptr && own.from != nullptr) {
    copy(own.from, own.to, bytes);
  }
  for (const int peer : wire_->peers()) {
    if (void* from = part_of(peer, buffers, now.call).from; from != nullptr && is_short) {
      copy(from, payload_of(work_mail(peer, now)), bytes);
      wire_->take(peer);
    }
  }
  for (Stream& stream : streams) {
    stream.finish(now);
  }
}

// Long broadcast among several ranks: the root sends every other rank one slice, and these ranks pass their slices on
// to each other. Every rank gets each slice once, and no rank sends more than twice the tensor's bytes, whatever their
// number.
void HostsBackend::broadcast(const Buffers& buffers, const CallInProgress& now) {
  const std::size_t bytes = bytes_of(now.call, buffers);
  const std::size_t others = wire_->peers().size();
  if (bytes <= kMailPayload || others < 2) {
    return move_parts(buffers, now);
  }
  const int root = now.call.root;
  const std::uint64_t slot = data_slots(now);
  const std::size_t whole = (bytes + others - 1) / others;
  auto* data = static_cast<std::byte*>(rank() == root ? const_cast<void*>(buffers.in) : buffers.out);
  const auto stream = [&](int peer, int owner, std::uint64_t at_slot) {
    const std::size_t begin = std::min(bytes, whole * static_cast<std::size_t>(owner - (owner > root ? 1 : 0)));
    return Stream(*wire_, peer, data + begin, std::min(whole, bytes - begin), at_slot);
  };
  std::vector<Stream> coming;
  std::vector<Stream> going;
  if (rank() != root) {
    coming.push_back(stream(root, rank(), slot));
  }
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    if (rank() == root) {
      going.push_back(stream(peer, peer, slot));
    } else if (peer != root) {
      going.push_back(stream(peer, rank(), slot + 1));
      coming.push_back(stream(peer, peer, slot + 1));
    }
  }
  for (Stream& from : coming) {
    from.recv_all(now);
  }
  for (std::size_t at = 0; at < whole; at += Stream::kSegment) {
    if (rank() != root && at < coming.front().bytes()) {
      coming.front().wait_recv(now);
    }
    for (Stream& to : going) {
      to.send_segment(at, now);
    }
  }
  for (auto* streams : {&coming, &going}) {
    for (Stream& each : *streams) {
      each.finish(now);
    }
  }
}

void HostsBackend::reduce(const Buffers& buffers, const CallInProgress& now) {
  const std::size_t bytes = bytes_of(now.call, buffers);
  if (bytes == 0 && !now.call.planned) {
    return;
  }
  if (now.call.kind == Kind::all_reduce && leaders_.size() < ranks_.size()) {
    return reduce_by_hosts(buffers, now);
  }
  reduce_among(ranks_, now.call, buffers, now);
}

void HostsBackend::reduce_among(std::span<const int> ranks, const Collective& how, const Buffers& buffers,
                                const CallInProgress& now) {
  const std::size_t bytes = bytes_of(how, buffers);
  // Among many ranks, whole tensors are more data than slices.
  const bool is_short = bytes <= kAlwaysShort || (bytes <= kMailPayload && bytes * (ranks.size() - 1) <= kMailPayload);
  is_short ? reduce_short(ranks, how, buffers, now) : reduce_long(ranks, how, buffers, now);
}

// Sends one mail to each rank that needs the values.
void HostsBackend::reduce_short(std::span<const int> ranks, const Collective& how, const Buffers& buffers,
                                const CallInProgress& now) {
  const std::size_t bytes = bytes_of(how, buffers);
  const std::size_t stride = how.kind == Kind::reduce_scatter ? bytes : 0;  // between the parts of consecutive ranks
  const auto part = [&](int r) {
    return static_cast<const std::byte*>(buffers.in) + stride * static_cast<std::size_t>(r);
  };
  const auto gets = [&](int r) { return how.kind != Kind::reduce || r == how.root; };
  for (const int peer : ranks) {
    if (peer != rank() && gets(peer)) {
      post(Mail::Kind::work, peer, part(peer), bytes, now);
    }
  }
  if (!gets(rank())) {
    return;
  }
  from_.clear();
  for (const int r : ranks) {
    from_.push_back(r == rank() ? part(r) : payload_of(work_mail(r, now)));
  }
  void* out = buffers.out;
  combine(how, Device(), from_, {&out, 1}, buffers.numel, size());
  for (const int peer : ranks) {
    if (peer != rank()) {
      wire_->take(peer);
    }
  }
}

void HostsBackend::reduce_long(std::span<const int> ranks, const Collective& how, const Buffers& buffers,
                               const CallInProgress& now) {
  const std::size_t item = item_size(how.dtype);
  const std::uint64_t slot = data_slots(now);
  const std::size_t others = ranks.size() - 1;
  const std::size_t place = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  const auto* in = static_cast<const std::byte*>(buffers.in);
  auto* out = static_cast<std::byte*>(buffers.out);
  const bool scatters = how.kind == Kind::reduce_scatter;
  const auto gets = [&](int r) { return how.kind == Kind::all_reduce || (how.kind == Kind::reduce && r == how.root); };
  // The first byte and the length of the slice of the k-th rank.
  const auto slice = [&](std::size_t k) {
    const auto index = static_cast<std::int64_t>(k);
    const Slice elements = scatters ? Slice{index * buffers.numel, buffers.numel}
                                    : slice_of(static_cast<int>(k), static_cast<int>(ranks.size()), buffers.numel);
    return std::pair(static_cast<std::size_t>(elements.begin) * item, static_cast<std::size_t>(elements.count) * item);
  };
  const auto [begin, own] = slice(place);
  const auto segment = [&, length = own](std::size_t at) { return std::min(kSegment, length - at); };

  // This rank's slice is reduced in place, or in scratch memory if another rank gets the result.
  const bool keeps = gets(rank()) || scatters;
  const std::size_t windows = others * kWindow * kSegment;
  scratch_.resize(std::max(scratch_.size(), windows + (keeps ? 0 : own)));
  std::byte* result = keeps ? out + (scatters ? 0 : begin) : scratch_.data() + windows;

  if (how.planned) {
    post_all(Mail::Kind::work, nullptr, 0, now);
  }
  std::vector<Stream> values;    // this rank's slice, from the other ranks
  std::vector<Stream> given;     // the other ranks' slices
  std::vector<Stream> results;   // results of the other ranks' slices
  std::vector<Stream> answered;  // the result of this rank's slice
  const auto kth = [&](std::size_t step) { return (place + step) % ranks.size(); };
  for (std::size_t step = 1; step <= others; ++step) {
    const int peer = ranks[kth(step)];
    const auto [first, bytes] = slice(kth(step));
    values.emplace_back(*wire_, peer, scratch_.data() + values.size() * kWindow * kSegment, kWindow * kSegment, slot);
    for (std::size_t at = 0; at < std::min(own, kWindow * kSegment); at += kSegment) {
      values.back().recv(at, segment(at), now);
    }
    given.emplace_back(*wire_, peer, in + first, bytes, slot);
    if (gets(rank())) {
      results.emplace_back(*wire_, peer, out + first, bytes, slot + 1).recv_all(now);
    }
    if (gets(peer)) {
      answered.emplace_back(*wire_, peer, result, own, slot + 1);
    }
  }
  for (Stream& to : given) {
    to.send_all(now);
  }
  if (how.planned) {
    for (const int peer : wire_->peers()) {
      work_mail(peer, now);
    }
    for (const int peer : wire_->peers()) {
      wire_->take(peer);
    }
  }

  from_.resize(ranks.size());
  for (std::size_t at = 0; at < own; at += kSegment) {
    const std::size_t window = at % (kWindow * kSegment);
    from_[place] = in + begin + at;
    for (std::size_t k = 0; k < others; ++k) {
      values[k].wait_recv(now);
      from_[kth(k + 1)] = scratch_.data() + k * kWindow * kSegment + window;
    }
    void* to = result + at;
    combine(how, Device(), from_, {&to, 1}, static_cast<std::int64_t>(segment(at) / item), size());
    for (Stream& answer : answered) {
      answer.send_segment(at, now);
    }
    if (const std::size_t next = at + kWindow * kSegment; next < own) {
      for (Stream& from : values) {
        from.recv(window, segment(next), now);
      }
    }
  }
  for (auto* streams : {&results, &given, &answered}) {
    for (Stream& stream : *streams) {
      stream.finish(now);
    }
  }
}

}  // namespace tandem::inline v0::parallel
