#pragma once

#include <string>

// Internal: who may do without a token.

namespace tandem::inline v0::parallel {

/// A connection without a token is for this machine alone. Throws ConfigError for another address, with the command
/// that makes a token; with TANDEM_INSECURE_RENDEZVOUS=1 it is a warning.
void check_exposure(const std::string& address, bool is_loopback, bool has_token);

}  // namespace tandem::inline v0::parallel
