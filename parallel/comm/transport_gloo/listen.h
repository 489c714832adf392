#pragma once

#include <memory>
#include <string>

#include <tandem/parallel/comm/transport_gloo/gloo_options.h>

// Internal: the address at which the other ranks reach this one.

namespace gloo::transport {
class Device;
}

namespace tandem::inline v0::parallel {

/// Resolves GlooOptions::address to an address of this machine. Throws ConfigError if the interface does not exist or
/// has no address, or if the store's host cannot be reached.
std::string listen_address(const GlooOptions& options);

/// Creates Gloo's thread, which listens at `address`. Throws ConfigError if the address cannot be used.
std::shared_ptr<gloo::transport::Device> listen_at(const std::string& address);

}  // namespace tandem::inline v0::parallel
