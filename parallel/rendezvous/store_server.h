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

/// A rank's process, as the rank introduced itself to the StoreServer.
struct TANDEM_API RankProcess {
  int rank = 0;          // in the job
  std::int64_t pid = 0;  // on its host
  std::string host;      // the host's own name for itself

  bool operator==(const RankProcess&) const = default;
};

/// A rank that the server has lost.
struct TANDEM_API LostRank {
  /// How the server noticed the loss.
  enum class Sign : std::uint8_t {
    closed,  // the connection closed without a goodbye: the process ended
    silent   // no heartbeat within the limit: the process is stopped, or its machine is unreachable
  };

  RankProcess process;                   // the lost rank
  Sign sign = Sign::closed;              // how the loss was noticed
  std::chrono::milliseconds silence{0};  // since the rank was last heard
  /// How its process ended, as from waitpid(): known only without StoreServerOptions::on_lost, for a process of the
  /// server's machine, and on Linux 6.15 or later.
  std::optional<int> status = std::nullopt;
};

/// Describes the loss: "rank 2 (pid 4711 on node7) was killed by signal 9 (SIGKILL)"; without a status "... is gone:
/// its connection closed without a goodbye".
TANDEM_API std::string describe(const LostRank& lost);

/// The address, token and limits of a StoreServer.
struct TANDEM_API StoreServerOptions {
  /// The exact address to listen at; a name stands for the first of its addresses.
  std::string host = "127.0.0.1";
  /// The port to listen at; 0 selects a free one, see StoreServer::port().
  std::uint16_t port = 0;
  /// The job's token. Without a token only loopback addresses (127.0.0.1, ::1) are allowed, unless the variable
  /// TANDEM_INSECURE_RENDEZVOUS is 1.
  std::optional<JobToken> token = std::nullopt;
  /// A rank that is silent for this long is lost. Must be at least twice the clients' heartbeat interval.
  std::chrono::milliseconds heartbeat_limit{10'000};
  /// The time that an unknown connection has for its handshake.
  std::chrono::milliseconds handshake_limit{10'000};
  /// Called once for each lost rank, on the server's thread. If empty, describe() becomes the verdict. A callback with
  /// more knowledge, such as the signal that ended the process, publishes its own verdict. The callback must not wait,
  /// throw or destroy the server.
  std::function<void(const LostRank&)> on_lost = {};
  /// Called once on the server's thread when the first verdict is published, by any process. The same restrictions
  /// apply.
  std::function<void(const std::string& verdict)> on_verdict = {};
};

/// Hosts the store of a job and tells its ranks when the job is over. The server has its own thread. The launcher hosts
/// it, or rank 0 if another launcher started the job. Connections use TLS 1.3 with the job's token as their key
/// (docs/rendezvous.md). Cannot be used in a child of fork().
class TANDEM_API StoreServer {
 public:
  /// Starts to listen. Throws ConfigError for options that are not allowed, and IoError if the address cannot be used.
  explicit StoreServer(StoreServerOptions options = {});
  /// Closes all connections: clients that wait get an error.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// The numeric address at which the server listens: "127.0.0.1".
  const std::string& host() const noexcept;
  /// The port at which the server listens.
  std::uint16_t port() const noexcept;

  /// Declares the job over, with the reason: "rank 2 (pid 4711) was killed by signal 9". Connected clients receive the
  /// verdict at once and later clients when they connect. Every wait on the store ends with this text. The first
  /// verdict stays. At most 4096 bytes are sent.
  void publish_verdict(const std::string& text);
  /// The verdict, published here or by a client; empty until then.
  std::string verdict() const;

  /// The connected ranks in ascending order.
  std::vector<RankProcess> ranks() const;
  /// From now on refuses a rank that has said goodbye or will say it: to this rank the server appears not to have
  /// started. Needed where a new server is created each time the job is joined.
  void stop_readmitting();
  /// Waits until no rank is connected. Returns false if `timeout` passed first or a verdict exists.
  bool wait_until_left(std::chrono::milliseconds timeout) const;
  /// The number of refused connections: wrong or missing token, not a tandem client, or too slow.
  std::size_t refused() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0::parallel
