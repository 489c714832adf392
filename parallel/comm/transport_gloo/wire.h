#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <tandem/core/error.h>
#include <tandem/parallel/comm/alarm.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/transport_gloo/mail.h>

// Internal: one rank's end of a group's connections.
//
// A sender copies a mail into one of the four places that it has for each peer and goes on. It waits only if the peer
// has not yet read the mail before the last three. From the start Gloo has memory for each peer's next four mails, so a
// mail travels at once. Long data goes from tensor to tensor, as a Stream.
//
// The rank that notices a failure first (a deadline passes, a connection closes, calls differ) rings the alarm, sends
// every peer a farewell with its error, and closes all connections; from then on everything here throws that error. A
// rank whose connection closes looks for the reason in this order: the peer's farewell, the peer's goodbye, the alarm
// within 0.7 s. Without any of them the peer itself is lost. So all ranks throw the same error.

namespace gloo::transport {
class UnboundBuffer;
}

namespace tandem::inline v0::parallel {

class GlooMesh;

/// Says why a rank waits. Lines about a long wait name the call and the other rank.
struct WaitCause {
  const CallInProgress* now = nullptr;  // null: the wait gets no line
  int peer = -1;
  bool has_come = false;  // the peer is in the call, and only data is missing
};

/// Mails to and from every other rank in order, waits that end at their deadline, and the first error, which all ranks
/// receive. Only abort(), spread(), interrupt() and failure() are thread-safe; one thread at a time may call the other
/// functions.
class Wire {
 public:
  enum class Waited : std::uint8_t { done, late, broken, interrupted };

  /// Uses existing connections. `alarm` may be null.
  Wire(std::shared_ptr<GlooMesh> mesh, std::shared_ptr<Alarm> alarm);
  /// Closes the connections.
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(boxes_.size()); }
  /// All other ranks, in ascending order.
  const std::vector<int>& peers() const noexcept { return peers_; }

  /// Sends a mail with this head and `bytes` bytes from `payload`, at most kMailPayload. Copies both.
  void post(int peer, const Mail& head, const void* payload, std::size_t bytes, const CallInProgress& now);
  /// Like post(), but returns the result instead of throwing.
  Waited try_post(int peer, Mail head, const void* payload, std::size_t bytes,
                  std::chrono::steady_clock::time_point deadline, const CallInProgress* now = nullptr);
  /// Returns the next mail from a rank; the mail stays valid until take().
  const Mail& mail(int peer, const CallInProgress& now);
  /// Like mail(), but returns null if no mail came in time or the connection is gone.
  const Mail* mail_until(int peer, std::chrono::steady_clock::time_point deadline);
  /// Waits until mail() can return at once; does not throw. A long wait gets lines if it serves a call, `now`.
  Waited look(int peer, std::chrono::steady_clock::time_point deadline, const CallInProgress* now = nullptr,
              bool interruptible = false);
  void take(int peer);
  /// Ends the current or the next interruptible wait. Thread-safe.
  void interrupt();
  /// Notes the peer's last call, which errors about a timeout of that peer mention.
  void note_call(int peer, const Collective& call) { box(peer).last = call; }

  /// Throws the first failure, if any.
  void check() const;
  /// Returns the first failure, if any. Thread-safe.
  std::optional<CommError> failure() const;
  /// Spreads `error` and throws it, or throws an earlier failure.
  [[noreturn]] void fail(const CommError& error);
  /// Fails because the connection to that rank is gone.
  [[noreturn]] void fail_lost(int peer, const CallInProgress& now);
  /// Fails because the rank has not come before the deadline; or has come, but not its data.
  [[noreturn]] void fail_late(int peer, bool has_come, const CallInProgress& now);
  /// Says that this rank waits for that one, if a line is due.
  void tell_if_due(int peer, const CallInProgress& now);
  /// Fails because the rank has said goodbye.
  [[noreturn]] void fail_left(int peer, const CallInProgress& now);
  /// Rings the alarm and aborts with the alarm's cause, which may be an earlier one.
  void spread(const CommError& error) noexcept;
  /// Tells the other ranks, and ends all waits here.
  void abort(const CommError& cause) noexcept;

 private:
  friend class Stream;
  using Buffer = gloo::transport::UnboundBuffer;
  enum class Direction : std::uint8_t { send, recv };
  static constexpr std::size_t kPlaces = 4;  // mails that may be in flight to one rank before the sender waits

  // The mails of one peer; places are used in turn.
  struct Mailbox {
    struct Place {
      alignas(64) std::byte bytes[kMailBytes];
      std::unique_ptr<Buffer> buffer;
    };
    std::array<Place, kPlaces> in;
    std::array<Place, kPlaces> out;
    std::uint64_t taken = 0;
    std::uint64_t posted = 0;
    bool looked = false;                    // the next mail has arrived
    std::uint64_t end = ~std::uint64_t{0};  // mails from this number on cannot arrive: the connection is gone
    Farewell farewell;
    std::unique_ptr<Buffer> farewell_buffer;
    std::optional<Collective> last;  // the peer's call in the last exchange()
  };

  Mailbox& box(int peer) { return *boxes_[static_cast<std::size_t>(peer)]; }
  Mailbox::Place& next_place(Mailbox& from) { return from.in[from.taken % kPlaces]; }
  std::unique_ptr<Buffer> buffer_over(void* memory, std::size_t bytes) const;
  /// Returns false if the connection is gone.
  static bool start(Direction direction, Buffer& buffer, int peer, std::uint64_t slot, std::size_t offset,
                    std::size_t bytes);
  Waited wait_until(Direction direction, Buffer& buffer, std::chrono::steady_clock::time_point deadline,
                    const WaitCause& why = {}, bool interruptible = false);
  void expect(Waited waited, const WaitCause& why);
  Awaited late(int peer, bool has_come);
  CommError why_broken(int peer, const CallInProgress& now);
  void watch();
  void tell_line(std::unique_lock<std::mutex>& lock);
  void wake();

  std::shared_ptr<GlooMesh> mesh_;
  std::shared_ptr<Alarm> alarm_;
  int rank_;
  std::vector<int> peers_;
  std::vector<std::unique_ptr<Mailbox>> boxes_;  // indexed by rank; null for this rank
  Farewell own_farewell_;
  std::unique_ptr<Buffer> farewell_;

  // On a timeout Gloo would close all connections without telling the other ranks why, so a thread of our own watches
  // the deadlines.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<CommError> cause_;
  Buffer* awaited_ = nullptr;
  Direction direction_ = Direction::send;
  WaitCause why_;
  std::chrono::steady_clock::time_point deadline_;
  std::chrono::steady_clock::time_point line_due_;
  std::chrono::steady_clock::time_point watched_until_;  // the watching thread sleeps until then
  bool late_ = false;
  bool interrupted_ = false;
  bool ended_ = false;
  std::thread watcher_;
  std::optional<Alarm::Subscription> subscription_;
};

/// Memory whose parts one rank sends or receives in an order known to both sides. After the destructor nothing accesses
/// the memory, even if a transfer was unfinished.
class Stream {
 public:
  /// Long parts travel in segments of this size, so that the receiver can use one segment while the next one travels.
  static constexpr std::size_t kSegment = 512 << 10;

  /// Both sides must pass the same `slot`, unique between them at that time. `data` may point to const memory if the
  /// stream only sends.
  Stream(Wire& wire, int peer, const void* data, std::size_t bytes, std::uint64_t slot);
  Stream(Stream&& other) noexcept;
  ~Stream();

  std::size_t bytes() const noexcept { return bytes_; }
  /// Starts to transfer a part; empty parts are skipped.
  void send(std::size_t offset, std::size_t bytes, const CallInProgress& now);
  void recv(std::size_t offset, std::size_t bytes, const CallInProgress& now);
  /// Starts the segment at `offset`, if there is one.
  void send_segment(std::size_t offset, const CallInProgress& now);
  /// Starts all segments of the memory.
  void send_all(const CallInProgress& now);
  void recv_all(const CallInProgress& now);
  /// Waits until the next part has arrived.
  void wait_recv(const CallInProgress& now);
  /// Waits until all parts have arrived and all sent memory may be changed.
  void finish(const CallInProgress& now);
  /// Waits until the memory of one sent part may be changed. Returns false at the deadline or if the connection is
  /// gone.
  bool sent_until(std::chrono::steady_clock::time_point deadline);

 private:
  void start(Wire::Direction direction, std::size_t offset, std::size_t bytes, const CallInProgress& now);

  Wire* wire_;
  int peer_;
  std::size_t bytes_;
  std::uint64_t slot_;
  int sending_ = 0;
  int receiving_ = 0;
  std::unique_ptr<Wire::Buffer> buffer_;
};

}  // namespace tandem::inline v0::parallel
