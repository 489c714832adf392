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

/// The server, identity and limits of a TcpStore.
struct TANDEM_API TcpStoreOptions {
  /// The host name or address of the StoreServer.
  std::string host = "127.0.0.1";
  /// The port of the StoreServer.
  std::uint16_t port = 0;
  /// The job's token, which must equal the server's.
  std::optional<JobToken> token = std::nullopt;
  /// The rank that makes this connection, which the server watches; -1: not a rank.
  int rank = -1;
  /// How long to try to connect. The server may start later than the client.
  std::chrono::milliseconds connect_timeout{60'000};
  /// The interval between signs of life; at most half of the server's limit.
  std::chrono::milliseconds heartbeat_interval{1'000};
  /// A server that is silent for this long is lost.
  std::chrono::milliseconds heartbeat_limit{10'000};
  /// Called after each attempt to connect that failed, on the thread that makes the store, with the system's reason.
  std::function<void(const std::string& reason)> on_waiting = {};
  /// Asked a few times a second on the thread that makes the store; false ends the attempt to connect.
  std::function<bool()> goes_on = {};
  /// Called once on the store's thread with the server's verdict when the job is over. The callback must not wait,
  /// throw or destroy the store.
  std::function<void(const std::string& verdict)> on_verdict = {};
  /// Called once when the server is lost. The same restrictions apply.
  std::function<void(const std::string& reason)> on_lost = {};
};

/// A client of a StoreServer. Its own thread sends heartbeats and listens, so that a rank that computes stays alive and
/// learns at once that the job is over. Then every pending and every later call throws StoreError with the verdict as
/// its text. A failed connection is not restored, since nobody could know whether the last request was executed: the
/// store is then lost. The destructor says goodbye; a process that ends without a goodbye counts as lost. Cannot be
/// used in a child of fork().
class TANDEM_API TcpStore final : public Store {
 public:
  /// Connects. Throws ConfigError for options that are not allowed. Throws StoreError if no server answers in time, the
  /// server belongs to another job, or `goes_on` has ended it.
  explicit TcpStore(TcpStoreOptions options);
  ~TcpStore() override;

  /// Says goodbye like the destructor, for a store with several owners. Every pending and every later call throws
  /// StoreError (lost), and no callback runs any more. May be called once, and not from a callback.
  void leave();

  /// Tells the server, and through it all ranks, that the job is over; the first verdict stays. Does not wait for
  /// delivery.
  void announce_verdict(const std::string& text);

 private:
  struct Impl;

  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) override;
  bool do_get_while(std::string_view key, std::string* value, Deadline deadline,
                    const std::function<bool()>& goes_on) override;
  std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  bool do_erase(std::string_view key, Deadline deadline) override;
  void do_post_set(std::string_view key, std::string_view value) override;
  void do_post_erase(std::string_view key) override;
  void do_post_count(std::string_view counter, std::int64_t count, std::string_view key) override;

  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0::parallel
