#include <tandem/parallel/comm/threads/local_memory.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <tandem/kernels/copy.h>
#include <tandem/parallel/comm/combine.h>
#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/tensor/raw.h>

// Reading and writing of other ranks' memory between ranks that are threads.

namespace tandem::inline v0::parallel {

using Kind = CollectiveKind;

namespace {

// Size of the pieces between two checks for a failure elsewhere: takes about 10 us.
constexpr std::int64_t kPieceBytes = 256 << 10;

const void* part(const void* all, std::int64_t bytes, int rank) { return static_cast<const char*>(all) + bytes * rank; }
void* part(void* all, std::int64_t bytes, int rank) { return static_cast<char*>(all) + bytes * rank; }

}  // namespace

void copy_on_gpu(Device own, void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes) {
  if (to != from && bytes > 0) {
    kernels::launch(kernels::context_for(own), kernels::Transfer{.out_device = to_device,
                                                                 .in_device = from_device,
                                                                 .out = to,
                                                                 .in = from,
                                                                 .bytes = bytes,
                                                                 .wait = false,
                                                                 .orders_gpus = false});
  }
}

void LocalBackend::move_data(const Collective& call, const Buffers& buffers) {
  const std::int64_t bytes = bytes_of(call, buffers.numel);
  const int ranks = size();
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::reduce_scatter: return reduce(call, buffers);
    case Kind::broadcast:
      return rank_ == call.root ? void() : fetch(buffers.out, call.root, note(call.root).buffers.in, bytes);
    case Kind::scatter: return fetch(buffers.out, call.root, part(note(call.root).buffers.in, bytes, rank_), bytes);
    case Kind::gather:
      if (rank_ != call.root) {
        return;
      }
      [[fallthrough]];
    case Kind::all_gather:
      for (int r = 0; r < ranks; ++r) {
        fetch(part(buffers.out, bytes, r), r, note(r).buffers.in, bytes);
      }
      return;
    case Kind::all_to_all:
      for (int r = 0; r < ranks; ++r) {
        fetch(part(buffers.out, bytes, r), r, part(note(r).buffers.in, bytes, rank_), bytes);
      }
      return;
    case Kind::barrier:
    case Kind::send:
    case Kind::recv:
    case Kind::new_group: return;
  }
}

void LocalBackend::reduce(const Collective& call, const Buffers& buffers) {
  std::int64_t begin = 0;
  std::int64_t end = buffers.numel;
  from_.clear();
  to_.clear();
  to_devices_.clear();
  for (int r = 0; r < size(); ++r) {
    const Buffers& theirs = note(r).buffers;
    from_.push_back(theirs.in);
    if (call.kind == Kind::reduce_scatter) {
      from_.back() = part(from_.back(), bytes_of(call, buffers.numel), rank_);
    } else if (call.kind == Kind::all_reduce || r == call.root) {
      to_.push_back(theirs.out);
      to_devices_.push_back(theirs.device);
    }
  }
  if (call.kind == Kind::reduce_scatter) {
    to_.push_back(buffers.out);
    to_devices_.push_back(buffers.device);
  } else {
    const Slice own = slice_of(rank_, size(), buffers.numel);
    begin = own.begin;
    end = own.begin + own.count;
  }
  advance_lists(bytes_of(call, begin));
  if (on_gpu(buffers)) {
    return combine_on_gpu(call, buffers.device, end - begin);
  }
  const std::int64_t piece = kPieceBytes / static_cast<std::int64_t>(item_size(call.dtype));
  for (; begin < end && !group_->has_failed(); begin += piece) {
    combine(call, buffers.device, from_, to_, std::min(piece, end - begin));
    advance_lists(kPieceBytes);
  }
}

void LocalBackend::advance_lists(std::int64_t bytes) {
  for (const void*& from : from_) {
    from = static_cast<const char*>(from) + bytes;
  }
  for (void*& to : to_) {
    to = static_cast<char*>(to) + bytes;
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
      copy_on_gpu(gpu, here, gpu, from, theirs, bytes);
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
      copy_on_gpu(gpu, to_[k], to_devices_[k], here.front(), gpu, bytes);
    }
  }
}

// Copies from that rank's memory to this rank's.
void LocalBackend::fetch(void* to, int rank, const void* from, std::int64_t bytes) {
  const Buffers& mine = note(rank_).buffers;
  on_gpu(mine) ? copy_on_gpu(mine.device, to, mine.device, from, note(rank).buffers.device, bytes)
               : copy(to, from, bytes);
}

void LocalBackend::copy(void* to, const void* from, std::int64_t bytes) const {
  if (to == from) {
    return;
  }
  for (std::int64_t done = 0; done < bytes && !group_->has_failed(); done += kPieceBytes) {
    std::memcpy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
                static_cast<std::size_t>(std::min(kPieceBytes, bytes - done)));
  }
}

}  // namespace tandem::inline v0::parallel
