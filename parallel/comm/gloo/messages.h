#pragma once

#include <tandem/parallel/comm/gloo/wire.h>  // first: see mesh.h

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

// Internal: send() and recv().

namespace tandem::inline v0::parallel {

/// Messages between this rank and the others. A send() copies, and waits for nobody until the copies that are not
/// taken yet have kMaxUntaken bytes. Messages come in the order of the sender's calls; those that come before their
/// recv() are kept, short ones here and long ones where they come from.
class GlooMessages {
 public:
  /// More is sent only once the first of it was received.
  static constexpr std::size_t kMaxUntaken = std::size_t{256} << 20;

  explicit GlooMessages(GlooWire& wire) : wire_(wire), peers_(static_cast<std::size_t>(wire.size())) {}

  void send(const Buffers& buffers, const GlooCall& now);
  void receive(const Buffers& buffers, const GlooCall& now);
  /// Until receive() need not wait for the sender. False: interrupted.
  bool await(const GlooCall& now);

  /// This rank has come to that collective.
  void note_call(const Collective& call) { begun_ = std::max(begun_, call.sequence); }
  /// A message has come while another mail was waited for.
  void keep(int peer, const GlooMail& mail);
  /// What any mail from that rank says of messages to it.
  void note_taken(int peer, std::uint64_t taken);
  /// What any mail to that rank says.
  std::uint64_t taken_from(int peer) const;
  /// Waits until all that was sent has been received.
  void flush(std::chrono::steady_clock::time_point deadline);

 private:
  using Buffer = GlooWire::Buffer;
  struct Sent {
    std::uint64_t number = 0;
    std::size_t bytes = 0;
    std::unique_ptr<std::byte[]> memory;  // head and payload
    std::unique_ptr<Buffer> mail;
    std::unique_ptr<Buffer> data;  // of a long one
  };
  struct Kept {
    GlooMail head;
    std::unique_ptr<std::byte[]> payload;  // of a short one
  };
  struct Peer {
    std::deque<Sent> sent;
    std::deque<Kept> kept;
    std::uint64_t next = 0;  // number of the next message to it
    std::uint64_t came = 0;  // how many from it
  };

  /// Whether the mail is of one who waited in a collective that this rank has come to meanwhile.
  bool is_stale(const GlooMail& mail) const noexcept {
    return mail.kind == GlooMail::Kind::waiting && mail.call.sequence <= begun_;
  }
  void make_room(Peer& peer, std::size_t bytes, const GlooCall& now);
  void forget_first(Peer& peer);
  std::deque<Kept>::iterator find_kept(Peer& peer, int tag);
  bool take_kept(Peer& peer, const Buffers& buffers, const GlooCall& now);
  void deliver(const GlooMail& head, const void* payload, const Buffers& buffers, const GlooCall& now);
  [[noreturn]] void fail_pair(const Collective& theirs, const GlooCall& now);

  GlooWire& wire_;
  std::vector<Peer> peers_;
  std::size_t untaken_ = 0;  // bytes
  std::int64_t begun_ = -1;  // number of the last collective
};

}  // namespace tandem::inline v0::parallel
