#include <cstring>

#include <tandem/core/cuda_stream.h>
#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/parallel/comm/threads/local_memory.h>
#include <tandem/tensor/raw.h>

// send() and recv() between ranks as threads.

namespace tandem::inline v0::parallel {

void LocalBackend::send(const Collective& call, const Buffers& buffers, const CallTime& time) {
  if (group_->has_failed()) {
    group_->throw_failure();
  }
  if (group_->is_lost(call.root)) {
    fail_lost(call.root, call, time);
  }
  const std::int64_t bytes = bytes_of(call, buffers.numel);
  LocalMessage message{.call = call, .from = rank_};
  if (on_gpu(buffers)) {
    using tandem::detail::empty_view;
    message.on_gpu = std::make_unique<LocalMessage::OnGpu>(
        LocalMessage::OnGpu{empty_view({bytes}, DType::u8, buffers.device), cuda::current_stream(buffers.device)});
    copy_on_gpu(buffers.device, message.on_gpu->data.data(), buffers.device, buffers.in, buffers.device, bytes);
  } else if (bytes > 0) {
    message.data = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
    std::memcpy(message.data.get(), buffers.in, static_cast<std::size_t>(bytes));
  }
  group_->post(call.root, std::move(message));
}

void LocalBackend::take(const LocalMessage& message, const Buffers& buffers, std::int64_t bytes) {
  if (message.on_gpu) {
    const cuda::Stream stream = cuda::current_stream(buffers.device);
    const tandem::detail::View& data = message.on_gpu->data;
    stream.wait_stream(message.on_gpu->stream);
    copy_on_gpu(buffers.device, buffers.out, buffers.device, data.data(), data.device(), bytes);
    message.on_gpu->stream.wait_stream(stream);  // that stream's order decides when the copy's memory is reused
  } else if (bytes > 0) {
    std::memcpy(buffers.out, message.data.get(), static_cast<std::size_t>(bytes));
  }
}

void LocalBackend::receive(const Collective& call, const Buffers& buffers, const CallTime& time) {
  const int peer = call.root;
  for (;;) {
    // Read these flags before the mailbox: it then contains everything that the peer sent before it left or came to a
    // collective.
    const bool lost = group_->is_lost(peer);
    const bool elsewhere = group_->slot(peer).arrived.load() > meeting_;
    if (const std::optional<LocalMessage> message = group_->fetch(rank_, peer, call.tag)) {
      Collective expected = message->call;
      expected.kind = call.kind;
      expected.root = peer;
      if (expected != call) {
        fail_pair(call, message->call, time);
      }
      take(*message, buffers, bytes_of(call, buffers.numel));
      return;
    }
    if (lost || group_->is_lost(rank_)) {
      fail_lost(lost ? peer : rank_, call, time);
    }
    if (group_->has_failed()) {
      group_->throw_failure();
    }
    if (elsewhere) {
      // The peer waits in a collective for this rank, which waits here for the peer.
      fail_pair(call, group_->slot(peer).note(meeting_ + 1).call, time);
    }
    if (ParkingLot::Clock::now() >= time.deadline) {
      fail_late(peer, meeting_, call, time);
    }
    await_message(call, time);
  }
}

bool LocalBackend::await_message(const Collective& call, const CallTime& time) {
  const int peer = call.root;
  for (;;) {
    const std::uint64_t posts = group_->posts(rank_);
    const auto is_over = [&] {
      return group_->has_failed() || group_->is_lost(peer) || group_->is_lost(rank_) ||
             group_->slot(peer).arrived.load() > meeting_;
    };
    if (group_->has_message(rank_, peer, call.tag) || is_over()) {
      return true;
    }
    if (interrupted_.exchange(false)) {
      return false;
    }
    const auto has_news = [&] { return group_->posts(rank_) != posts || interrupted_.load() || is_over(); };
    if (!group_->lot().wait(time.deadline, patience_of(time, group_->world().size()), has_news)) {
      return true;
    }
  }
}

void LocalBackend::interrupt() noexcept {
  interrupted_.store(true);
  group_->lot().wake();
}

}  // namespace tandem::inline v0::parallel
