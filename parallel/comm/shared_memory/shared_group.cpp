#include <tandem/parallel/comm/shared_memory/shared_group.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <type_traits>
#include <utility>

#include <tandem/parallel/comm/combine.h>
#include <tandem/parallel/comm/parking_lot.h>

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kPiece = 1 << 20;  // bytes
// The first piece is being written, the second combined, and the third read.
constexpr std::size_t kPieces = 3;
constexpr std::chrono::milliseconds kLook(5);
constexpr int kLooks = 10;  // after this many looks the wait counts as long
static_assert(sizeof(Collective) <= SharedMemory::kNote && std::is_trivially_copyable_v<Collective>);

}  // namespace

SharedGroup::SharedGroup(int rank, int size)
    : rank_(rank),
      size_(size),
      memory_(rank, size, kPieces * kPiece),
      calls_(static_cast<std::size_t>(size)),
      from_(static_cast<std::size_t>(size)) {}

void SharedGroup::meet(const CallTime& time, LookAfter look_after) {
  memory_.arrive();
  const auto awake = patience_of(time, size_);
  for (int peer = 0; peer < size_; ++peer) {
    for (int looks = 1; peer != rank_ && !memory_.wait_for(peer, Clock::now() + kLook, awake); ++looks) {
      look_after(looks == kLooks);
    }
  }
}

void SharedGroup::read_notes(std::span<Collective> all) const {
  for (int r = 0; r < size_; ++r) {
    std::memcpy(&all[static_cast<std::size_t>(r)], memory_.note(r), sizeof(Collective));
  }
}

void SharedGroup::exchange(const Collective& mine, std::span<Collective> all, const CallTime& time,
                           LookAfter look_after) {
  std::memcpy(memory_.own_note(), &mine, sizeof mine);
  meet(time, look_after);
  read_notes(all);
}

std::byte* SharedGroup::place(int rank, std::size_t piece) const {
  return memory_.part(rank) + (pieces_ + piece) % kPieces * kPiece;
}

// The last round reads other places than the next call writes first.
void SharedGroup::all_reduce(const Collective& call, const Buffers& buffers, const CallTime& time, LookAfter look_after,
                             Compare compare) {
  const auto item = item_size(call.dtype);
  const auto bytes = static_cast<std::size_t>(buffers.numel) * item;
  const std::size_t pieces = (bytes + kPiece - 1) / kPiece;
  const auto* in = static_cast<const std::byte*>(buffers.in);
  auto* out = static_cast<std::byte*>(buffers.out);
  // The first byte and the number of elements of a rank's slice.
  const auto slice = [&](int r, std::size_t piece) {
    const std::size_t length = std::min(kPiece, bytes - piece * kPiece);
    const Slice elements = slice_of(r, size_, static_cast<std::int64_t>(length / item));
    return std::pair(static_cast<std::size_t>(elements.begin) * item, elements.count);
  };
  if (call.planned) {
    std::memcpy(memory_.own_note(), &call, sizeof call);
  }
  for (std::size_t round = 0; round < pieces + 2; ++round) {
    for (int r = 0; round < pieces && r < size_; ++r) {
      if (r != rank_) {
        const auto [begin, count] = slice(r, round);
        std::memcpy(place(rank_, round) + begin, in + round * kPiece + begin, static_cast<std::size_t>(count) * item);
      }
    }
    if (const std::size_t piece = round - 1; round >= 1 && piece < pieces) {
      const auto [begin, count] = slice(rank_, piece);
      for (int r = 0; r < size_; ++r) {
        from_[static_cast<std::size_t>(r)] = (r == rank_ ? in + piece * kPiece : place(r, piece)) + begin;
      }
      const std::array<void*, 2> to{place(rank_, piece) + begin,
                                    out != nullptr ? out + piece * kPiece + begin : nullptr};
      combine(call, Device(), from_, std::span(to).first(out != nullptr ? 2 : 1), count);
    }
    for (int r = 0; round >= 2 && out != nullptr && r < size_; ++r) {
      if (r != rank_) {
        const std::size_t piece = round - 2;
        const auto [begin, count] = slice(r, piece);
        std::memcpy(out + piece * kPiece + begin, place(r, piece) + begin, static_cast<std::size_t>(count) * item);
      }
    }
    if (round <= pieces) {
      meet(time, look_after);
    }
    if (round == 0 && call.planned) {
      read_notes(calls_);
      compare(calls_);
    }
  }
  pieces_ += pieces;
}

// Rank 0 writes a piece while the others read the one before.
void SharedGroup::broadcast(void* data, std::size_t bytes, const CallTime& time, LookAfter look_after) {
  const std::size_t pieces = (bytes + kPiece - 1) / kPiece;
  for (std::size_t round = 0; round <= pieces; ++round) {
    const std::size_t piece = rank_ == 0 ? round : round - 1;
    if (piece < pieces) {  // in round 0 the others have none
      std::byte* own = static_cast<std::byte*>(data) + piece * kPiece;
      std::byte* shared = place(0, piece);
      std::memcpy(rank_ == 0 ? shared : own, rank_ == 0 ? own : shared, std::min(kPiece, bytes - piece * kPiece));
    }
    if (round < pieces) {
      meet(time, look_after);
    }
  }
  pieces_ += pieces;
}

}  // namespace tandem::inline v0::parallel
