#include <tandem/parallel/comm/gloo/backend_over_gloo.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/core/error.h>
#include <tandem/parallel/comm/combine.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/parking_lot.h>

// All ranks are on one host, and have memory that all of them see.

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kPiece = 1 << 20;  // bytes
// One that is written, one that is combined, one that is read.
constexpr std::size_t kPieces = 3;
// Who waits longer looks whether the others are still there.
constexpr std::chrono::milliseconds kLook(5);
constexpr int kLooks = 10;
constexpr std::chrono::milliseconds kGlance(1);  // in which a mail that is there is found
static_assert(sizeof(Collective) <= SharedMemory::kNote && std::is_trivially_copyable_v<Collective>);

}  // namespace

void GlooBackend::share_memory(const CallTime& time) {
  if (!options_.shared_memory || size() == 1) {
    return;
  }
  const SigpipeBlock no_signals;
  Collective call;
  call.kind = CollectiveKind::new_group;
  const GlooCall now{call, time};
  SharedMemory::Address own;
  try {
    shared_ = std::make_unique<SharedMemory>(rank(), size(), options_.address, kPieces * kPiece);
    own = shared_->address();
  } catch (const IoError&) {  // the others have to know
  }
  std::uint32_t agreed = shared_ != nullptr ? 1 : 0;
  tell_all(&own, sizeof own, now, [&](int peer, const void* theirs) {
    SharedMemory::Address address;
    std::memcpy(&address, theirs, sizeof address);
    agreed = agreed != 0 && shared_->open(peer, address) ? 1 : 0;
  });
  const std::uint32_t opened = agreed;
  tell_all(&opened, sizeof opened, now, [&](int, const void* theirs) {
    std::uint32_t answer = 0;
    std::memcpy(&answer, theirs, sizeof answer);
    agreed &= answer;
  });
  agreed == 0 ? shared_.reset() : shared_->seal();
}

void GlooBackend::meet_in_memory(const GlooCall& now) {
  shared_->arrive();
  const Clock::duration awake = patience_of(now.time, size());
  for (int peer = 0; peer < size(); ++peer) {
    for (int looks = 1; peer != rank() && !shared_->wait_for(peer, Clock::now() + kLook, awake); ++looks) {
      look_after_all(now, looks == kLooks);
    }
  }
}

void GlooBackend::look_after_all(const GlooCall& now, bool tell) {
  const bool late = Clock::now() >= now.time.deadline;  // for the first one, not for whom the time passes at
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && !shared_->wait_for(peer, Clock::now(), Clock::duration(0))) {
      look_after(peer, now, late);
      if (tell) {  // in case that it waits for a mail of this rank
        wire_->try_post(peer, {.kind = GlooMail::Kind::waiting, .call = now.call}, nullptr, 0, Clock::now());
      }
    }
  }
}

// Does what happens by itself where a rank waits for mails.
void GlooBackend::look_after(int peer, const GlooCall& now, bool late) {
  wire_->check();
  for (;;) {
    const GlooWire::Waited waited = wire_->look(peer, Clock::now() + kGlance, false);
    if (waited == GlooWire::Waited::late) {
      break;
    }
    if (shared_->wait_for(peer, Clock::now(), Clock::duration(0))) {
      return;  // it has come meanwhile: whatever it sent, or that it is gone, is of a later time
    }
    if (waited == GlooWire::Waited::broken) {
      wire_->fail_lost(peer, now);
    }
    const GlooMail& mail = wire_->mail(peer, now);
    if (mail.kind == GlooMail::Kind::work || mail.kind == GlooMail::Kind::call) {
      for (int other = 0; other < size(); ++other) {  // which have had none of this call
        if (other != rank()) {
          post(GlooMail::Kind::work, other, nullptr, 0, now);
        }
      }
      fail_different(now);
    }
    keep_or_leave(peer, mail, now);
  }
  if (late) {
    wire_->fail_late(peer, now);
  }
}

void GlooBackend::exchange_in_memory(std::span<Collective> all, const GlooCall& now) {
  write_note(now);
  meet_in_memory(now);
  read_notes(all);
}

void GlooBackend::write_note(const GlooCall& now) { std::memcpy(shared_->own_note(), &now.call, sizeof now.call); }

void GlooBackend::read_notes(std::span<Collective> all) {
  for (int r = 0; r < size(); ++r) {
    Collective& call = all[static_cast<std::size_t>(r)];
    std::memcpy(&call, shared_->note(r), sizeof call);
    if (r != rank()) {
      wire_->note_call(r, call);
    }
  }
}

void GlooBackend::check_notes(const GlooCall& now) {
  notes_.resize(static_cast<std::size_t>(size()));
  read_notes(notes_);
  if (std::ranges::any_of(notes_, [&](const Collective& call) { return call != now.call; })) {
    wire_->fail(mismatch_error(calls_side_by_side(notes_), odd_one_out(notes_), now.call, now.time));
  }
}

// In rounds, with a meeting after each: piece k is written in round k, combined in the next one, each rank its slice,
// and read in the one after that. What is read last is not where the next call writes first.
void GlooBackend::reduce_shared(const Buffers& buffers, const GlooCall& now) {
  const auto item = item_size(now.call.dtype);
  const auto bytes = static_cast<std::size_t>(buffers.numel) * item;
  const std::size_t pieces = (bytes + kPiece - 1) / kPiece;
  const auto* in = static_cast<const std::byte*>(buffers.in);
  auto* out = static_cast<std::byte*>(buffers.out);
  const auto place = [&](int r, std::size_t piece) {
    return shared_->part(r) + (shared_pieces_ + piece) % kPieces * kPiece;
  };
  const auto length = [&](std::size_t piece) { return std::min(kPiece, bytes - piece * kPiece); };
  const auto slice = [&](int r, std::size_t piece) {
    Buffers of_piece = buffers;
    of_piece.numel = static_cast<std::int64_t>(length(piece) / item);
    const Slice elements = slice_of(r, of_piece, now.call);
    return std::pair(static_cast<std::size_t>(elements.begin) * item, elements.count);
  };
  if (now.call.planned) {  // which nobody has compared
    write_note(now);
  }
  for (std::size_t round = 0; round < pieces + 2; ++round) {
    for (int r = 0; round < pieces && r < size(); ++r) {
      if (r != rank()) {
        const auto [begin, count] = slice(r, round);
        std::memcpy(place(rank(), round) + begin, in + round * kPiece + begin, static_cast<std::size_t>(count) * item);
      }
    }
    if (const std::size_t piece = round - 1; round >= 1 && piece < pieces) {
      const auto [begin, count] = slice(rank(), piece);
      for (int r = 0; r < size(); ++r) {
        from_[static_cast<std::size_t>(r)] = (r == rank() ? in + piece * kPiece : place(r, piece)) + begin;
      }
      const std::array<void*, 2> to{place(rank(), piece) + begin, out + piece * kPiece + begin};
      combine(now.call, Device(), from_, to, count);
    }
    if (round >= 2) {
      const std::size_t piece = round - 2;
      for (int r = 0; r < size(); ++r) {
        const auto [begin, count] = slice(r, piece);
        if (r != rank()) {
          std::memcpy(out + piece * kPiece + begin, place(r, piece) + begin, static_cast<std::size_t>(count) * item);
        }
      }
    }
    if (round <= pieces) {
      meet_in_memory(now);
    }
    if (round == 0 && now.call.planned) {
      check_notes(now);
    }
  }
  shared_pieces_ += pieces;
}

}  // namespace tandem::inline v0::parallel
