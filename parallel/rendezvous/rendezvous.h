#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/init_method.h>
#include <tandem/parallel/rendezvous/job_token.h>
#include <tandem/parallel/rendezvous/store.h>

namespace tandem::inline v0::parallel {

class StoreServer;
class TcpStore;

/// What a Rendezvous is made with, beside who we are. The rest is as in TcpStoreOptions and StoreServerOptions.
struct TANDEM_API RendezvousOptions {
  std::optional<JobToken> token = std::nullopt;                     // the job's
  std::chrono::milliseconds connect_timeout{60'000};                // until there is a server
  std::chrono::milliseconds heartbeat_interval{1'000};              // how often this rank says that it is alive
  std::chrono::milliseconds heartbeat_limit{10'000};                // after which silence is loss
  std::chrono::milliseconds leave_timeout{30'000};                  // how long rank 0 with a server stays for others
  std::function<void(const std::string& verdict)> on_verdict = {};  // the job is over
  std::function<void(const std::string& reason)> on_lost = {};      // the server is gone
};

/// This rank's place in its job, from the moment it is made to its end: its store and, on rank 0 of a job whose
/// launcher has none, the server.
///
///     const InitMethod method = parse_init_method("env://");
///     Rendezvous rendezvous(method, read_world(method), {.token = JobToken::from_environment()});
///     rendezvous.store()->set("address/0", ...);
///
/// "file://" is a FileStore; a job with one process and no port has a MemoryStore; all others are a TcpStore.
class TANDEM_API Rendezvous {
 public:
  /// Throws what the stores and the server throw.
  Rendezvous(const InitMethod& method, const WorldInfo& world, RendezvousOptions options = {});
  /// Says goodbye. Rank 0 with a server waits for the others: they would take its end for the end of the job.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Of no use after this is gone: each call throws StoreError.
  const std::shared_ptr<Store>& store() noexcept { return store_; }
  /// All ranks are there. Who leaves from here on, and joins again, is for the next server, which this rank will have
  /// when it joins again itself.
  void settle();
  /// Tells the server, and so all ranks, that the job is over; the first verdict stays. Where the store has no server
  /// (files, memory) there is nobody to tell.
  void announce_verdict(const std::string& text);
  /// Null unless this rank has it.
  StoreServer* server() noexcept { return server_.get(); }

 private:
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<Store> store_;
  TcpStore* watched_ = nullptr;  // the store, if it has a server
  std::chrono::milliseconds leave_timeout_;
};

}  // namespace tandem::inline v0::parallel
