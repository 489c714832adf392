#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include <tandem/parallel/rendezvous/store_server.h>

// Internal: where a StoreServer listens.

namespace tandem::inline v0::parallel {

/// Listens at the options' address and port, exactly. Throws ConfigError for an address that is not allowed, IoError
/// for one that cannot be had.
asio::ip::tcp::acceptor listen_at(asio::io_context& io, const StoreServerOptions& options);

}  // namespace tandem::inline v0::parallel
