#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/parallel/rendezvous/store.h>

namespace tandem::inline v0::parallel {

class Alarm;

/// Settings of gloo_backend().
struct GlooOptions {
  /// The store in which the ranks meet. Only these ranks may access it. Sub-groups use it too.
  std::shared_ptr<Store> store = nullptr;
  /// Prefix of all keys, equal on all ranks, never used by another group. Includes the job's generation.
  std::string prefix = "gloo";
  int rank = 0;  // of this process or thread
  int size = 1;  // number of ranks
  /// The ranks' numbers in the job, for texts. Empty: 0, 1, 2, ...
  std::vector<int> numbers = {};
  /// The local address or host name to listen at. Empty selects the address of the network interface named by
  /// TANDEM_SOCKET_IFNAME or GLOO_SOCKET_IFNAME, otherwise the local address from which `store_host` is reached.
  std::string address = {};
  /// The store's host. Empty or loopback means that all ranks are on this machine and listen on 127.0.0.1.
  std::string store_host = {};
  /// Whether ranks that listen at the same address, and so share a host, reduce in shared memory if the system allows
  /// it. If false on one rank, no rank of the group does.
  bool shared_memory = true;
  /// Explains why a connection closed, and receives this group's failures. Null: no control channel.
  std::shared_ptr<Alarm> alarm = nullptr;
  /// The deadline for all ranks to arrive and connect; must be positive.
  std::chrono::milliseconds setup_timeout{60'000};
  /// The time in which the right rank must identify itself on a new connection. After a failure all ranks connect
  /// again, until `setup_timeout` has passed.
  std::chrono::milliseconds greeting_timeout{10'000};
  /// Told once a second, on a thread of its own, why the ranks are not connected yet.
  std::function<void(const std::string& line)> on_waiting = {};
};

}  // namespace tandem::inline v0::parallel
