#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <tandem/parallel/comm/transport_gloo/wire.h>

// Internal: send() and recv().
//
// send() copies the tensor and returns. A short message is one mail. For a long message the mail is only an
// announcement: the data stays with the sender and travels when the receiver calls recv(). The sender keeps its copies
// until the receiver has taken them, which the receiver reports in Mail::taken of its next mail. Copies are limited to
// 256 MiB; beyond this limit send() waits for the oldest message.
//
// recv() takes the first message with its sender and tag. Earlier messages are put aside: short ones are copied, long
// ones stay with their sender. If a collective's mail arrives instead, the sender waits for this rank in that
// collective while this rank waits for the sender: both calls fail because they differ.

namespace tandem::inline v0::parallel {

/// Messages between this rank and the others, in the order of each sender's calls.
class Messages {
 public:
  explicit Messages(Wire& wire) : wire_(wire), peers_(static_cast<std::size_t>(wire.size())) {}

  void send(const Buffers& buffers, const CallInProgress& now);
  void receive(const Buffers& buffers, const CallInProgress& now);
  /// Waits until receive() can take a message without waiting for the sender. False: interrupted.
  bool await(const CallInProgress& now);

  /// Notes that this rank has reached `call`.
  void note_call(const Collective& call) { begun_ = std::max(begun_, call.sequence); }
  /// Takes a mail that belongs to no collective: keeps a message, and fails for a goodbye.
  void put_aside(int peer, const Mail& mail, const CallInProgress& now);
  /// Notes that the peer has taken all messages with numbers below `taken`.
  void note_taken(int peer, std::uint64_t taken);
  /// The value of Mail::taken in mails to that rank.
  std::uint64_t taken_from(int peer) const;
  /// Waits until all messages sent have been received.
  void flush(std::chrono::steady_clock::time_point deadline);

 private:
  struct Sent {
    std::uint64_t number = 0;
    std::size_t bytes = 0;
    std::unique_ptr<std::byte[]> memory;  // head and payload
    Stream mail;
    std::optional<Stream> data;  // for a long message
  };
  struct Kept {
    Mail head;
    std::unique_ptr<std::byte[]> payload;  // of a short message
  };
  struct Peer {
    std::deque<Sent> sent;
    std::deque<Kept> kept;
    std::uint64_t next = 0;  // number of the next message to the peer
    std::uint64_t came = 0;  // number of messages from the peer
  };

  Peer& peer_at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  bool concerns(const Mail& mail, int tag) const noexcept;
  void forget_first(Peer& peer);
  static std::deque<Kept>::iterator find_kept(Peer& peer, int tag);
  void deliver(const Mail& head, const void* payload, const Buffers& buffers, const CallInProgress& now);
  [[noreturn]] void fail_pair(const Collective& theirs, const CallInProgress& now);

  Wire& wire_;
  std::vector<Peer> peers_;
  std::size_t untaken_ = 0;  // bytes
  std::int64_t begun_ = -1;  // number of the last collective
};

}  // namespace tandem::inline v0::parallel
