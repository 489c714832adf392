#pragma once

#include <string>

#include <tandem/parallel/comm/gloo/gloo_backend.h>

// Internal: on which of this machine's addresses the other ranks reach it.

namespace tandem::inline v0::parallel {

/// As GlooOptions::address says. Throws ConfigError for an interface that is not there or has no address, and where no
/// way leads to the store's host.
std::string listen_address(const GlooOptions& options);

}  // namespace tandem::inline v0::parallel
