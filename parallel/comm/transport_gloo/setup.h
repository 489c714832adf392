#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <tandem/parallel/comm/transport_gloo/gloo_options.h>
#include <tandem/parallel/comm/transport_gloo/wire.h>

// Internal: how the ranks of a group find each other in their store and connect.
//
// Each rank claims its number, so that a second process with that number is refused, and waits until all ranks are
// present. Then an attempt begins. Every rank listens, publishes its addresses in the store, and connects. On each
// connection both sides prove with a secret of this attempt that no stranger has taken the peer's place. All ranks
// report the result in the store. If one rank failed, all try again with other ports. At the end the keys are erased.

namespace gloo::transport {
class Device;
}

namespace tandem::inline v0::parallel {

// listen.cpp: the address at which the other ranks reach this one.

/// Resolves GlooOptions::address to an address of this machine. Throws ConfigError if the interface does not exist or
/// has no address, or if the store's host cannot be reached.
std::string listen_address(const GlooOptions& options);

/// Creates Gloo's thread, which listens at `address`. Throws ConfigError if the address cannot be used.
std::shared_ptr<gloo::transport::Device> listen_at(const std::string& address);

// setup.cpp

/// Connects this rank to all other ranks of options.prefix. Throws CommError: init, or the alarm's error. Set
/// `is_first` for a group that is not split from another one: another process may claim the same rank there. Such a
/// group leaves one key for each rank in the store, by which a late process is refused; other groups leave no key.
std::unique_ptr<Wire> connect_wire(const GlooOptions& options, const std::shared_ptr<gloo::transport::Device>& device,
                                   std::chrono::steady_clock::time_point deadline, const GroupNames& names,
                                   bool is_first);

}  // namespace tandem::inline v0::parallel
