#pragma once

#include <memory>

#include <asio/awaitable.hpp>

#include <tandem/parallel/rendezvous/channel.h>
#include <tandem/parallel/rendezvous/tcp_store.h>

// Internal: how a TcpStore comes to its server.

namespace tandem::inline v0::parallel {

/// Tries until there is a server, shakes hands, and is let in. Throws ConfigError or StoreError.
asio::awaitable<std::shared_ptr<Channel>> connect_to_server(const TcpStoreOptions& options, TlsContext& tls);

}  // namespace tandem::inline v0::parallel
