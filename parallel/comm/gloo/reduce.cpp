#include <tandem/parallel/comm/gloo/backend_over_gloo.h>

#include <algorithm>
#include <vector>

#include <tandem/parallel/comm/combine.h>

// Collectives that combine values. Rank r combines slice r of all ranks, in their order, and sends what comes out.

namespace tandem::inline v0::parallel {

using Kind = CollectiveKind;

namespace {

constexpr std::size_t kSegment = 512 << 10;     // bytes that are combined at a time
constexpr std::size_t kWindow = 4;              // segments of one rank that may be on their way
constexpr std::size_t kAlwaysShort = 16 << 10;  // bytes
constexpr std::int64_t kSliceGrain = 64;        // elements: slices begin at cache lines

}  // namespace

GlooBackend::Slice GlooBackend::slice_of(int rank, const Buffers& buffers, const Collective& call) const {
  if (call.kind == Kind::reduce_scatter) {
    return {rank * buffers.numel, buffers.numel};
  }
  const std::int64_t grains = (buffers.numel + kSliceGrain - 1) / kSliceGrain;
  const auto begin_of = [&](int r) { return std::min(buffers.numel, grains * r / size() * kSliceGrain); };
  return {begin_of(rank), begin_of(rank + 1) - begin_of(rank)};
}

std::byte* GlooBackend::scratch(std::size_t bytes) {
  if (scratch_bytes_ < bytes) {
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

void GlooBackend::reduce(const Buffers& buffers, const GlooCall& now) {
  const std::size_t bytes = static_cast<std::size_t>(buffers.numel) * item_size(now.call.dtype);
  if (bytes > 0 || now.call.planned) {
    // Among many ranks whole tensors are more to send than slices.
    const std::size_t sent = bytes * static_cast<std::size_t>(size() - 1);
    if (now.call.kind == Kind::all_reduce && shared_ != nullptr) {
      reduce_shared(buffers, now);
    } else if (bytes <= kAlwaysShort || (bytes <= kMailPayload && sent <= kMailPayload)) {
      reduce_short(buffers, now);
    } else {
      reduce_long(buffers, now);
    }
  }
}

// One mail to everybody who needs it.
void GlooBackend::reduce_short(const Buffers& buffers, const GlooCall& now) {
  const Collective& call = now.call;
  const std::size_t bytes = static_cast<std::size_t>(buffers.numel) * item_size(call.dtype);
  const auto* own = static_cast<const std::byte*>(buffers.in);
  const std::size_t stride = call.kind == Kind::reduce_scatter ? bytes : 0;  // from one rank's part to the next one's
  const auto gets = [&](int r) { return call.kind != Kind::reduce || r == call.root; };
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && gets(peer)) {
      post(GlooMail::Kind::work, peer, own + stride * static_cast<std::size_t>(peer), bytes, now);
    }
  }
  if (!gets(rank())) {
    return;
  }
  for (int r = 0; r < size(); ++r) {
    from_[static_cast<std::size_t>(r)] =
        r == rank() ? own + stride * static_cast<std::size_t>(r) : payload_of(work_mail(r, now));
  }
  void* out = buffers.out;
  combine(call, Device(), from_, {&out, 1}, buffers.numel);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) {
      wire_->take(peer);
    }
  }
}

void GlooBackend::reduce_long(const Buffers& buffers, const GlooCall& now) {
  const Collective& call = now.call;
  const std::size_t item = item_size(call.dtype);
  const std::uint64_t slot = data_slots(now);
  const auto others = static_cast<std::size_t>(size() - 1);
  const auto* in = static_cast<const std::byte*>(buffers.in);
  const auto begin_of = [&](int r) { return static_cast<std::size_t>(slice_of(r, buffers, call).begin) * item; };
  const auto bytes_of = [&](int r) { return static_cast<std::size_t>(slice_of(r, buffers, call).count) * item; };
  const auto segment = [&](std::size_t at, std::size_t all) { return std::min(kSegment, all - at); };
  const auto gets = [&](int r) {
    return call.kind == Kind::all_reduce || (call.kind == Kind::reduce && r == call.root);
  };

  // This rank's slice comes out in its place, or, if it is for another one, in memory of our own.
  const std::size_t own = bytes_of(rank());
  const bool keeps = gets(rank()) || call.kind == Kind::reduce_scatter;
  std::byte* memory = scratch(others * kWindow * kSegment + (keeps ? 0 : own));
  std::byte* result =
      keeps ? static_cast<std::byte*>(buffers.out) + (call.kind == Kind::reduce_scatter ? 0 : begin_of(rank()))
            : memory + others * kWindow * kSegment;

  std::vector<GlooStream> values;    // of this rank's slice, from the others
  std::vector<GlooStream> given;     // of theirs
  std::vector<GlooStream> results;   // of their slices
  std::vector<GlooStream> answered;  // of this rank's
  for (auto* streams : {&values, &given, &results, &answered}) {
    streams->reserve(others);
  }
  for (std::size_t k = 0; k < others; ++k) {
    const int peer = (rank() + 1 + static_cast<int>(k)) % size();
    const std::size_t theirs = bytes_of(peer);
    if (call.planned) {
      post(GlooMail::Kind::work, peer, nullptr, 0, now);
    }
    values.emplace_back(*wire_, peer, memory + k * kWindow * kSegment, kWindow * kSegment, slot, now);
    for (std::size_t w = 0; w < kWindow && w * kSegment < own; ++w) {
      values.back().recv(w * kSegment, segment(w * kSegment, own));
    }
    given.emplace_back(*wire_, peer, in + begin_of(peer), theirs, slot, now);
    if (gets(rank())) {
      results.emplace_back(*wire_, peer, static_cast<std::byte*>(buffers.out) + begin_of(peer), theirs, slot + 1, now);
      for (std::size_t at = 0; at < theirs; at += kSegment) {
        results.back().recv(at, segment(at, theirs));
      }
    }
    if (gets(peer)) {
      answered.emplace_back(*wire_, peer, result, own, slot + 1, now);
    }
  }
  for (GlooStream& to : given) {
    const std::size_t theirs = bytes_of(to.peer());
    for (std::size_t at = 0; at < theirs; at += kSegment) {
      to.send(at, segment(at, theirs));
    }
  }
  for (std::size_t k = 0; call.planned && k < others; ++k) {
    work_mail(given[k].peer(), now);
    wire_->take(given[k].peer());
  }

  for (std::size_t at = 0; at < own; at += kSegment) {
    const std::size_t place = at / kSegment % kWindow * kSegment;
    from_[static_cast<std::size_t>(rank())] = in + begin_of(rank()) + at;
    for (std::size_t k = 0; k < others; ++k) {
      values[k].wait_recv();
      from_[static_cast<std::size_t>(values[k].peer())] = memory + k * kWindow * kSegment + place;
    }
    void* out = result + at;
    combine(call, Device(), from_, {&out, 1}, static_cast<std::int64_t>(segment(at, own) / item));
    for (GlooStream& to : answered) {
      to.send(at, segment(at, own));
    }
    if (const std::size_t next = at + kWindow * kSegment; next < own) {
      for (GlooStream& from : values) {
        from.recv(place, segment(next, own));
      }
    }
  }
  for (auto* streams : {&results, &given, &answered}) {
    for (GlooStream& stream : *streams) {
      stream.finish();
    }
  }
}

}  // namespace tandem::inline v0::parallel
