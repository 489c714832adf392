#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/rendezvous/store.h>

namespace tandem::inline v0::parallel {

class Alarm;

/// What gloo_backend() is made with.
struct GlooOptions {
  /// By which the ranks find each other, and which only they can reach. Kept for sub-groups.
  std::shared_ptr<Store> store = nullptr;
  /// In front of all keys, the same on all ranks; no other group may have used it. Has the job's generation in it.
  std::string prefix = "gloo";
  int rank = 0;  // of this process or thread
  int size = 1;  // how many there are
  /// Where to listen for the other ranks: an address or a name of this machine. Empty: that of the network interface
  /// which TANDEM_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names, else the one from which `store_host` is reached.
  std::string address = {};
  /// Host of the store. Empty, or loopback: all ranks are on this machine, and listen on 127.0.0.1.
  std::string store_host = {};
  /// Whether ranks that listen at one address, and so are on one host, reduce long tensors through memory that all of
  /// them see, if the system lets them.
  bool shared_memory = true;
  /// Tells why a connection closed, and hears what fails here. Null: there is no control channel.
  std::shared_ptr<Alarm> alarm = nullptr;
  /// Until all ranks are there and connected; more than 0.
  std::chrono::milliseconds setup_timeout{60'000};
  /// Until a new connection has proved that the right rank is at its other end. Who does not is left, and all ranks
  /// connect again, until `setup_timeout` has passed.
  std::chrono::milliseconds greeting_timeout{10'000};
};

/// Whether this library was built with Gloo.
TANDEM_API bool has_gloo() noexcept;

/// Ranks as processes (or threads), over TCP by the library Gloo, for tensors on CPU devices; a collective, which all
/// ranks call. Values are combined in the order of ranks, so that all have the same bits, in every run. What a rank
/// learns of a failure it tells the others as its last word; a connection that closes without one is explained by the
/// alarm, if that rings within 0.7 s, and otherwise by the loss of the rank at its other end.
///
/// Anybody who can connect to these ports is trusted not to send malformed packets, which end the process: the network
/// between the ranks must be the job's own.
///
/// Throws ConfigError for wrong options and where the library was built without Gloo; CommError (init) where ranks are
/// missing, two processes claim one rank, or nothing can be connected in time; what the alarm rang for.
TANDEM_API std::unique_ptr<Backend> gloo_backend(GlooOptions options);

}  // namespace tandem::inline v0::parallel
