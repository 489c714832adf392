#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/job_token.h>
#include <tandem/parallel/rendezvous/store.h>

namespace tandem::inline v0::parallel {

class StoreServer;
class TcpStore;

/// Options of a Rendezvous, apart from the rank's identity. For the details see TcpStoreOptions and StoreServerOptions.
struct TANDEM_API RendezvousOptions {
  std::optional<JobToken> token = std::nullopt;         // the job's
  std::chrono::milliseconds connect_timeout{60'000};    // the wait for the server to start
  std::chrono::milliseconds heartbeat_interval{1'000};  // time between this rank's signs of life
  std::chrono::milliseconds heartbeat_limit{10'000};    // a silent rank or server is lost after this time
  std::chrono::milliseconds leave_timeout{30'000};      // how long rank 0 waits for the others if it hosts the server
  std::function<void(const std::string& reason)> on_waiting = {};   // called once a second while not connected
  std::function<void(const std::string& verdict)> on_verdict = {};  // the job is over
  std::function<void(const std::string& reason)> on_lost = {};      // the server is lost
};

/// This rank's membership in its job for the lifetime of the object: the store and, on rank 0 of a job whose launcher
/// hosts no store, the server.
///
///     const InitMethod method = parse_init_method("env://");
///     Rendezvous rendezvous(method, read_world(method), {.token = JobToken::from_environment()});
///     rendezvous.store()->set("address/0", ...);
///
/// "file://" uses a FileStore, a job with one process and no port uses a MemoryStore, and every other job uses a
/// TcpStore.
class TANDEM_API Rendezvous {
 public:
  /// Throws the errors of the stores and of the server.
  Rendezvous(const InitMethod& method, const WorldInfo& world, RendezvousOptions options = {});
  /// Says goodbye. If rank 0 hosts the server it waits for the others, which would take its end for the end of the job.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// The store. Once the Rendezvous is destroyed every call on the store throws StoreError.
  const std::shared_ptr<Store>& store() noexcept { return store_; }
  /// Declares that all ranks have arrived. A rank that leaves and joins again after this point belongs to the next
  /// server, which rank 0 creates when it joins again.
  void settle();
  /// Tells the server, and through it all ranks, that the job is over. The first verdict stays. Has no effect with a
  /// store that has no server (files, memory).
  void announce_verdict(const std::string& text);
  /// The server if this rank hosts it, else null.
  StoreServer* server() noexcept { return server_.get(); }

 private:
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<Store> store_;
  TcpStore* watched_ = nullptr;  // store_ if that is a TcpStore, else null
  std::chrono::milliseconds leave_timeout_;
};

}  // namespace tandem::inline v0::parallel
