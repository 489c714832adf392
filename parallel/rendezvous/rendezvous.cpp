#include <tandem/parallel/rendezvous/rendezvous.h>

#include <utility>

#include <tandem/core/check.h>
#include <tandem/parallel/rendezvous/file_store.h>
#include <tandem/parallel/rendezvous/memory_store.h>
#include <tandem/parallel/rendezvous/store_server.h>
#include <tandem/parallel/rendezvous/tcp_store.h>

namespace tandem::inline v0::parallel {

namespace {

// A token that everybody can find out, for stores that only this host reaches. It keeps ranks out of the stores of
// other jobs.
JobToken token_of(const std::string& job) { return JobToken::from_hex(std::string(64, '0')).derived(job); }

std::unique_ptr<StoreServer> serve(const WorldInfo& world, const RendezvousOptions& options) {
  try {
    return std::make_unique<StoreServer>(StoreServerOptions{
        .host = world.address, .port = world.port, .token = options.token, .heartbeat_limit = options.heartbeat_limit});
  } catch (const IoError& error) {
    if (world.job.empty()) {
      throw;
    }
    fail<IoError>("{}. For {}: export MASTER_PORT=<another> to all of its ranks", error.what(), world.job);
  }
}

}  // namespace

Rendezvous::Rendezvous(const InitMethod& method, const WorldInfo& world, RendezvousOptions options)
    : leave_timeout_(options.leave_timeout) {
  if (method.kind == InitMethod::Kind::file) {
    store_ = std::make_unique<FileStore>(method.path, world.rank);
    return;
  }
  if (world.world_size == 1 && world.port == 0) {
    store_ = std::make_unique<MemoryStore>();
    return;
  }
  if (!options.token && !world.job.empty() && world.address == "127.0.0.1") {
    options.token = token_of(world.job);
  }
  if (world.rank == 0 && !world.store_is_hosted) {
    server_ = serve(world, options);
  }
  auto store = std::make_unique<TcpStore>(TcpStoreOptions{.host = world.address,
                                                          .port = world.port,
                                                          .token = std::move(options.token),
                                                          .rank = world.rank,
                                                          .connect_timeout = options.connect_timeout,
                                                          .heartbeat_interval = options.heartbeat_interval,
                                                          .heartbeat_limit = options.heartbeat_limit,
                                                          .on_waiting = std::move(options.on_waiting),
                                                          .on_verdict = std::move(options.on_verdict),
                                                          .on_lost = std::move(options.on_lost)});
  watched_ = store.get();
  store_ = std::move(store);
}

void Rendezvous::settle() {
  if (server_ != nullptr) {
    server_->stop_readmitting();
  }
}

void Rendezvous::announce_verdict(const std::string& text) {
  if (watched_ != nullptr) {
    watched_->announce_verdict(text);
  }
}

Rendezvous::~Rendezvous() {
  if (watched_ != nullptr) {
    watched_->leave();  // even if another owner keeps the store alive
  }
  if (server_ != nullptr) {
    server_->wait_until_left(leave_timeout_);
  }
}

}  // namespace tandem::inline v0::parallel
