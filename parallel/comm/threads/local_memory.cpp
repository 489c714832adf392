#include <tandem/parallel/comm/threads/local_backend.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <tandem/core/cuda_stream.h>
#include <tandem/kernels/copy.h>
#include <tandem/parallel/comm/combine.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/tensor/raw.h>

// Data between ranks that are threads: collectives read and write other ranks' memory; send() and recv() leave a copy.

namespace tandem::inline v0::parallel {

using Kind = CollectiveKind;

namespace {

// Size of the pieces between two checks for a failure elsewhere: takes about 10 us.
constexpr std::int64_t kCopyBytes = 256 << 10;

const void* at(const void* memory, std::int64_t bytes) { return static_cast<const char*>(memory) + bytes; }
void* at(void* memory, std::int64_t bytes) { return static_cast<char*>(memory) + bytes; }

std::int64_t bytes_of(const Collective& call, std::int64_t numel) {
  return numel * static_cast<std::int64_t>(item_size(call.dtype));
}

// Copies at once, or on the calling thread's stream of `own`, which is one of the two GPUs. Streams must be ordered
// already.
void copy(Device own, void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes) {
  if (to == from || bytes == 0) {
    return;
  }
  if (own.type == DeviceType::cpu) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  kernels::launch(kernels::context_for(own), kernels::Transfer{.out_device = to_device,
                                                               .in_device = from_device,
                                                               .out = to,
                                                               .in = from,
                                                               .bytes = bytes,
                                                               .wait = false,
                                                               .orders_gpus = false});
}

void take(const LocalMessage& message, const Buffers& buffers) {
  const Device device = buffers.device;
  const tandem::detail::View& data = message.data;
  if (message.stream) {
    cuda::current_stream(device).wait_stream(*message.stream);
  }
  copy(device, buffers.out, device, data.data(), data.device(), data.numel());
  if (message.stream) {  // its order decides when the message's memory is reused
    message.stream->wait_stream(cuda::current_stream(device));
  }
}

}  // namespace

void LocalBackend::move_data(const Collective& call, const Buffers& buffers) {
  const std::int64_t bytes = bytes_of(call, buffers.numel);
  const int ranks = size();
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::reduce_scatter: return reduce(call, buffers);
    case Kind::broadcast:
      return rank_ == call.root ? void() : fetch(buffers.out, call.root, note(call.root).buffers.in, bytes);
    case Kind::scatter: return fetch(buffers.out, call.root, at(note(call.root).buffers.in, bytes * rank_), bytes);
    case Kind::gather:
      if (rank_ != call.root) {
        return;
      }
      [[fallthrough]];
    case Kind::all_gather:
      for (int r = 0; r < ranks; ++r) {
        fetch(at(buffers.out, bytes * r), r, note(r).buffers.in, bytes);
      }
      return;
    case Kind::all_to_all:
      for (int r = 0; r < ranks; ++r) {
        fetch(at(buffers.out, bytes * r), r, at(note(r).buffers.in, bytes * rank_), bytes);
      }
      return;
    case Kind::barrier:
    case Kind::send:
    case Kind::recv:
    case Kind::new_group: return;
  }
}

// In a reduce_scatter a rank combines its part of all inputs for itself. Otherwise it combines its slice for all ranks
// that get the result.
void LocalBackend::reduce(const Collective& call, const Buffers& buffers) {
  const bool scatters = call.kind == Kind::reduce_scatter;
  const Slice own = scatters ? Slice{0, buffers.numel} : slice_of(rank_, size(), buffers.numel);
  const std::int64_t in_begin = bytes_of(call, scatters ? rank_ * buffers.numel : own.begin);
  from_.clear();
  to_.clear();
  to_devices_.clear();
  for (int r = 0; r < size(); ++r) {
    const Buffers& theirs = note(r).buffers;
    from_.push_back(at(theirs.in, in_begin));
    if (scatters ? r == rank_ : call.kind == Kind::all_reduce || r == call.root) {
      to_.push_back(at(theirs.out, bytes_of(call, own.begin)));
      to_devices_.push_back(theirs.device);
    }
  }
  if (on_gpu(buffers)) {
    return combine_on_gpu(call, buffers.device, own.count);
  }
  const std::int64_t piece = kCopyBytes / static_cast<std::int64_t>(item_size(call.dtype));
  for (std::int64_t left = own.count; left > 0 && !group_->has_failed(); left -= piece) {
    combine(call, buffers.device, from_, to_, std::min(piece, left));
    for (const void*& from : from_) {
      from = at(from, kCopyBytes);
    }
    for (void*& to : to_) {
      to = at(to, kCopyBytes);
    }
  }
}

// Copies inputs from other GPUs first, and copies results to other GPUs at the end.
void LocalBackend::combine_on_gpu(const Collective& call, Device gpu, std::int64_t count) {
  if (count == 0) {
    return;
  }
  const std::int64_t bytes = bytes_of(call, count);
  std::vector<tandem::detail::View> stand_ins;
  const auto stand_in = [&] {
    stand_ins.push_back(tandem::detail::empty_view({count}, call.dtype, gpu));
    return stand_ins.back().data();
  };
  for (int r = 0; r < size(); ++r) {
    if (const Device theirs = note(r).buffers.device; theirs != gpu) {
      const void*& from = from_[static_cast<std::size_t>(r)];
      void* const here = stand_in();
      copy(gpu, here, gpu, from, theirs, bytes);
      from = here;
    }
  }
  std::vector<void*> here;
  for (std::size_t k = 0; k < to_.size(); ++k) {
    if (to_devices_[k] == gpu) {
      here.push_back(to_[k]);
    }
  }
  if (here.empty()) {
    here.push_back(stand_in());
  }
  combine(call, gpu, from_, here, count);
  for (std::size_t k = 0; k < to_.size(); ++k) {
    if (to_devices_[k] != gpu) {
      copy(gpu, to_[k], to_devices_[k], here.front(), gpu, bytes);
    }
  }
}

// Copies from that rank's memory to this rank's.
void LocalBackend::fetch(void* to, int rank, const void* from, std::int64_t bytes) {
  const Buffers& mine = note(rank_).buffers;
  const std::int64_t piece = on_gpu(mine) ? bytes : kCopyBytes;
  for (std::int64_t done = 0; done < bytes && !group_->has_failed(); done += piece) {
    copy(mine.device, at(to, done), mine.device, at(from, done), note(rank).buffers.device,
         std::min(piece, bytes - done));
  }
}

void LocalBackend::send(const Collective& call, const Buffers& buffers, const CallTime& time) {
  if (group_->has_failed()) {
    group_->throw_failure();
  }
  if (group_->is_lost(call.root)) {
    fail(peer_lost_error(call.root, group_->why_lost(call.root), call, time));
  }
  const Device device = buffers.device;
  const std::int64_t bytes = bytes_of(call, buffers.numel);
  LocalMessage message{.call = call, .from = rank_, .data = tandem::detail::empty_view({bytes}, DType::u8, device)};
  copy(device, message.data.data(), device, buffers.in, device, bytes);
  if (on_gpu(buffers)) {
    message.stream = std::make_unique<cuda::Stream>(cuda::current_stream(device));
  }
  group_->slot(call.root).post(std::move(message));
  group_->lot().wake();
}

void LocalBackend::receive(const Collective& call, const Buffers& buffers, const CallTime& time) {
  const int peer = call.root;
  for (;;) {
    // Read these flags before the mailbox: it then contains everything that the peer sent before it left or came to a
    // collective.
    const bool failed = group_->has_failed();
    const bool lost = group_->is_lost(peer);
    const bool elsewhere = group_->slot(peer).arrived.load() > meeting_;
    if (const std::optional<LocalMessage> message = own().fetch(peer, call.tag)) {
      Collective expected = message->call;
      expected.kind = call.kind;
      expected.root = peer;
      if (expected != call) {
        fail(pair_mismatch_error(rank_, call, message->call, time));
      }
      return take(*message, buffers);
    }
    if (lost || group_->is_lost(rank_)) {
      const int who = lost ? peer : rank_;
      fail(peer_lost_error(who, group_->why_lost(who), call, time));
    }
    if (failed) {
      group_->throw_failure();
    }
    if (elsewhere) {
      // The peer waits in a collective for this rank, which waits here for the peer.
      fail(pair_mismatch_error(rank_, call, group_->slot(peer).note(meeting_ + 1).call, time));
    }
    if (ParkingLot::Clock::now() >= time.deadline) {
      fail(timeout_error(late(peer, meeting_), call, time));
    }
    await_message(call, time);
  }
}

bool LocalBackend::await_message(const Collective& call, const CallTime& time) {
  const int peer = call.root;
  const auto is_over = [&] {
    return group_->has_failed() || group_->is_lost(peer) || group_->is_lost(rank_) ||
           group_->slot(peer).arrived.load() > meeting_;
  };
  for (;;) {
    const std::uint64_t posts = own().posts.load();
    if (own().has_message(peer, call.tag) || is_over()) {
      return true;
    }
    if (interrupted_.exchange(false)) {
      return false;
    }
    const auto has_news = [&] { return own().posts.load() != posts || interrupted_.load() || is_over(); };
    if (!wait(time, has_news)) {
      tell_long_wait(rank_, late(peer, meeting_), call, time);
    } else if (ParkingLot::Clock::now() >= time.deadline) {
      return true;
    }
  }
}

void LocalBackend::interrupt() noexcept {
  interrupted_.store(true);
  group_->lot().wake();
}

}  // namespace tandem::inline v0::parallel
