#pragma once

#include <tandem/parallel/comm/gloo/wire.h>  // first: see mesh.h

#include <cstddef>
#include <cstdint>
#include <memory>

// Internal: long data to or from one rank.

namespace tandem::inline v0::parallel {

/// Memory whose parts one rank sends, or gets, in an order that both know. When it goes nothing touches the memory any
/// more, finished or not.
class GlooStream {
 public:
  /// Both sides give the same `slot`, which nothing else of theirs has at the time. `data` may be const where nothing
  /// is received.
  GlooStream(GlooWire& wire, int peer, const void* data, std::size_t bytes, std::uint64_t slot, const GlooCall& now)
      : wire_(wire),
        peer_(peer),
        slot_(slot),
        now_(now),
        buffer_(wire.mesh().createUnboundBuffer(const_cast<void*>(data), bytes)) {}

  int peer() const noexcept { return peer_; }
  /// Starts a part; parts without bytes are not sent.
  void send(std::size_t offset, std::size_t bytes) {
    if (bytes > 0) {
      ++sending_;
      wire_.send(peer_, *buffer_, slot_, offset, bytes, now_);
    }
  }
  void recv(std::size_t offset, std::size_t bytes) {
    if (bytes > 0) {
      ++receiving_;
      wire_.recv(peer_, *buffer_, slot_, offset, bytes, now_);
    }
  }
  /// Until the next part of those is there.
  void wait_recv() {
    --receiving_;
    wire_.wait(peer_, *buffer_, GlooWire::Direction::recv, now_);
  }
  /// Until all is there, and all that was to be sent may be changed.
  void finish() {
    while (receiving_ > 0) {
      wait_recv();
    }
    for (; sending_ > 0; --sending_) {
      wire_.wait(peer_, *buffer_, GlooWire::Direction::send, now_);
    }
  }

 private:
  GlooWire& wire_;
  int peer_;
  std::uint64_t slot_;
  GlooCall now_;
  int sending_ = 0;
  int receiving_ = 0;
  std::unique_ptr<GlooWire::Buffer> buffer_;
};

}  // namespace tandem::inline v0::parallel
