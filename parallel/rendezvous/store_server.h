#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

/// A rank, as it introduced itself to the StoreServer.
struct TANDEM_API RankProcess {
  int rank = 0;          // in the job
  std::int64_t pid = 0;  // on its host
  std::string host;      // the name that the host has for itself

  bool operator==(const RankProcess&) const = default;
};

/// A rank that is not there any more.
struct TANDEM_API LostRank {
  /// How that was seen.
  enum class Sign : std::uint8_t {
    closed,  // its connection closed, and it had not said goodbye: its process ended
    silent   // no heartbeat for the limit: its process is stopped, or its machine is cut off
  };

  RankProcess process;                   // which
  Sign sign = Sign::closed;              // how that was seen
  std::chrono::milliseconds silence{0};  // since it was last heard
};

/// "rank 2 (pid 4711 on node7) is gone: its connection closed without a goodbye".
TANDEM_API std::string describe(const LostRank& lost);

/// What a StoreServer is made with.
struct TANDEM_API StoreServerOptions {
  /// The address to listen at, exactly; a name stands for the first of its addresses.
  std::string host = "127.0.0.1";
  /// 0: one that is free, see StoreServer::port().
  std::uint16_t port = 0;
  /// Without one only addresses of this machine's own (127.0.0.1, ::1) are taken, unless the variable
  /// TANDEM_INSECURE_RENDEZVOUS is 1.
  std::optional<JobToken> token = std::nullopt;
  /// A rank that is not heard for so long is lost. At least twice the clients' heartbeat interval.
  std::chrono::milliseconds heartbeat_limit{10'000};
  /// How long a stranger may take to become a client.
  std::chrono::milliseconds handshake_limit{2'000};
  /// Called on the server's thread for each rank that is lost, once; empty: describe() becomes the verdict. Who knows
  /// more, such as the signal that ended the process, publishes that. It must neither
  /// wait nor throw, nor destroy the server.
  std::function<void(const LostRank&)> on_lost = {};
  /// Called on the server's thread, once, when there is a verdict, whoever gave it; with the same limits.
  std::function<void(const std::string& verdict)> on_verdict = {};
};

/// Hosts the store of a job, and tells its ranks when the job is over. It has a thread of its own; the launcher has
/// one, or rank 0 where a foreign launcher started the job. Connections are TLS 1.3 with the job's token as their key
/// (docs/rendezvous.md). Not for a child of fork().
class TANDEM_API StoreServer {
 public:
  /// Listens from here on. Throws ConfigError for options that are not allowed, IoError where the address cannot be
  /// had.
  explicit StoreServer(StoreServerOptions options = {});
  /// Closes all connections: clients that wait get an error.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Where it listens, as a number: "127.0.0.1".
  const std::string& host() const noexcept;
  /// The port there.
  std::uint16_t port() const noexcept;

  /// The job is over, and why: "rank 2 (pid 4711) was killed by signal 9". Every client that is connected is told at
  /// once, others when they come; what waits on the store ends with this text. The first verdict stays. At most 4096
  /// bytes are sent.
  void publish_verdict(const std::string& text);
  /// Empty until there is one, from here or from a client.
  std::string verdict() const;

  /// The ranks that are connected now, in order.
  std::vector<RankProcess> ranks() const;
  /// A rank that has said goodbye, or does from here on, is not let in again: for it, it is as if there were no server
  /// yet. For a server that is made anew each time a job is joined.
  void stop_readmitting();
  /// Waits until no rank is connected. False when `timeout` passed first, or there is a verdict.
  bool wait_until_left(std::chrono::milliseconds timeout) const;
  /// How many connections were turned away: no token or another one, no tandem, too slow.
  std::size_t refused() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0::parallel
