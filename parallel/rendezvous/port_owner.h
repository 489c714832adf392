#pragma once

#include <string>

#include <asio/ip/tcp.hpp>

// Internal: names the program that keeps us from a port, from the tables in /proc.

namespace tandem::inline v0::parallel {

/// Names the process that listens at this address of this machine: "pid 4711 (mlp --parallel ddp)"; "a process of user
/// 1002" if the system does not show us that user's descriptors; "another program" if the tables do not say.
std::string port_owner(const asio::ip::tcp::endpoint& endpoint);

}  // namespace tandem::inline v0::parallel
