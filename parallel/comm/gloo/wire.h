#pragma once

#include <tandem/parallel/comm/gloo/mesh.h>  // first: see mesh.h

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <gloo/transport/unbound_buffer.h>

#include <tandem/core/error.h>
#include <tandem/parallel/comm/alarm.h>
#include <tandem/parallel/comm/gloo/farewell.h>
#include <tandem/parallel/comm/gloo/mail.h>

// Internal: waiting for Gloo, mails, and what happens when either fails.

namespace tandem::inline v0::parallel {

/// One rank's end of a group: mails to and from every other rank in order, waits that end at their deadline, and the
/// first error, which all ranks get. All but abort(),
/// interrupt() and failure() is for one thread at a time.
class GlooWire {
 public:
  using Buffer = gloo::transport::UnboundBuffer;
  enum class Direction : std::uint8_t { send, recv };
  enum class Waited : std::uint8_t { done, late, broken, interrupted };

  /// Over connections that are there. `alarm` may be null.
  GlooWire(std::shared_ptr<GlooMesh> mesh, std::shared_ptr<Alarm> alarm);
  /// Closes the connections.
  ~GlooWire();
  GlooWire(const GlooWire&) = delete;
  GlooWire& operator=(const GlooWire&) = delete;

  int rank() const noexcept { return mesh_->rank; }
  int size() const noexcept { return mesh_->size; }
  GlooMesh& mesh() noexcept { return *mesh_; }

  /// `bytes` from `payload`, at most kMailPayload, with this head; both are copied. Waits only while the peer has some
  /// mails that it has not looked at.
  void post(int peer, const GlooMail& head, const void* payload, std::size_t bytes, const GlooCall& now);
  /// The same without any error.
  Waited try_post(int peer, GlooMail head, const void* payload, std::size_t bytes,
                  std::chrono::steady_clock::time_point deadline);
  /// Another rank's next mail; it stays where it is until take().
  const GlooMail& mail(int peer, const GlooCall& now);
  void take(int peer);
  /// What a timeout says of that rank.
  void note_call(int peer, const Collective& call);
  /// A send of one's own making into the order of mails.
  void post_buffer(int peer, Buffer& mail, std::size_t bytes, const GlooCall& now);
  /// Sends or receives a part of `buffer`, which is from or for that rank alone.
  void send(int peer, Buffer& buffer, std::uint64_t slot, std::size_t offset, std::size_t bytes, const GlooCall& now);
  void recv(int peer, Buffer& buffer, std::uint64_t slot, std::size_t offset, std::size_t bytes, const GlooCall& now);
  /// Until one of those is done.
  void wait(int peer, Buffer& buffer, Direction direction, const GlooCall& now);
  /// The same without any error.
  Waited wait_until(Buffer& buffer, Direction direction, std::chrono::steady_clock::time_point deadline,
                    bool interruptible = false);
  /// What comes next from that rank, without any error. Null: nothing in time, or the connection is gone.
  const GlooMail* mail_until(int peer, std::chrono::steady_clock::time_point deadline);
  /// Until mail() from that rank need not wait; without any error.
  Waited look(int peer, std::chrono::steady_clock::time_point deadline, bool interruptible);
  /// Ends an interruptible wait, or the next one. From any thread.
  void interrupt();

  /// Throws what was first, if anything failed.
  void check() const;
  bool has_failed() const;
  /// What was first, or nothing. From any thread.
  std::optional<CommError> failure() const;
  /// Tells the other ranks and the alarm, and throws it, or what was first.
  [[noreturn]] void fail(const CommError& error);
  /// The connection to that rank is gone.
  [[noreturn]] void fail_lost(int peer, const GlooCall& now);
  /// That rank has not come before the deadline.
  [[noreturn]] void fail_late(int peer, const GlooCall& now);
  /// That rank has said goodbye.
  [[noreturn]] void fail_left(int peer, const GlooCall& now);
  /// Tells the other ranks, and ends what waits here.
  void abort(const CommError& cause) noexcept;

 private:
  struct Mailbox;

  static constexpr std::size_t kPlaces = 4;  // mails that may be on their way to one rank without anybody waiting

  Mailbox& box(int peer) { return *boxes_[static_cast<std::size_t>(peer)]; }
  void expect(Waited waited, int peer, const GlooCall& now);
  CommError why_broken(int peer, const GlooCall& now);
  void watch();
  void wake();

  std::shared_ptr<GlooMesh> mesh_;
  std::shared_ptr<Alarm> alarm_;
  std::vector<std::unique_ptr<Mailbox>> boxes_;  // of all ranks; none for this one
  Farewell own_farewell_;
  std::unique_ptr<Buffer> farewell_;

  // Gloo would close all connections where a deadline passes, and the others would not know why: so a thread of our
  // own looks at the deadlines.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<CommError> cause_;
  Buffer* awaited_ = nullptr;
  Direction direction_ = Direction::send;
  std::chrono::steady_clock::time_point deadline_;
  std::chrono::steady_clock::time_point watched_until_;  // the watching thread sleeps until then
  bool late_ = false;
  bool interrupted_ = false;
  bool ended_ = false;
  std::thread watcher_;
  std::optional<Alarm::Subscription> subscription_;
};

}  // namespace tandem::inline v0::parallel
