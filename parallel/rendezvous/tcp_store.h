#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/job_token.h>
#include <tandem/parallel/rendezvous/store.h>

namespace tandem::inline v0::parallel {

/// What a TcpStore is made with.
struct TANDEM_API TcpStoreOptions {
  /// Where the StoreServer listens: an address or a name.
  std::string host = "127.0.0.1";
  /// Its port there.
  std::uint16_t port = 0;
  /// The server's.
  std::optional<JobToken> token = std::nullopt;
  /// Whose connection this is; the server watches over ranks. -1: nobody's.
  int rank = -1;
  /// How long to try until the server is there. It may start later.
  std::chrono::milliseconds connect_timeout{60'000};
  /// How often the server hears that this process is alive: at most half of its limit.
  std::chrono::milliseconds heartbeat_interval{1'000};
  /// A server that is not heard for so long is lost.
  std::chrono::milliseconds heartbeat_limit{10'000};
  /// Called on the store's thread, once, when the job is over, with the server's verdict. It must neither wait nor
  /// throw, nor destroy the store.
  std::function<void(const std::string& verdict)> on_verdict = {};
  /// Likewise when the server is gone, or not heard any more.
  std::function<void(const std::string& reason)> on_lost = {};
};

/// A client of a StoreServer. A thread of its own sends heartbeats and listens, so that a rank that computes is alive,
/// and hears at once that the job is over: then each call that waits, and each later one, throws StoreError with the
/// verdict as its text. A connection that fails is not made again, since nobody could know whether what was asked for
/// was done: the store is then lost. The destructor says goodbye; a process that ends without it counts as lost. Not
/// for a child of fork().
class TANDEM_API TcpStore final : public Store {
 public:
  /// Connects. Throws ConfigError for options that are not allowed, StoreError where there is no server in time, and
  /// where it is not the job's.
  explicit TcpStore(TcpStoreOptions options);
  ~TcpStore() override;

  /// Says goodbye, as the destructor does, for who shares the store: each call that waits, and each later one, throws
  /// StoreError (lost), and nobody is called back any more. Once; not from a callback.
  void leave();

  /// Tells the server, and so all ranks, that the job is over; the first verdict stays. Returns once it is on its way.
  void announce_verdict(const std::string& text);

 private:
  struct Impl;

  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) override;
  std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  bool do_compare_set(std::string_view key, std::optional<std::string_view> expected, std::string_view desired,
                      Deadline deadline) override;
  bool do_erase(std::string_view key, Deadline deadline) override;

  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0::parallel
