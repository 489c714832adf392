#pragma once

#include <tandem/parallel/comm/gloo/wire.h>  // first: see mesh.h

#include <chrono>
#include <memory>

#include <tandem/parallel/comm/gloo/gloo_backend.h>

// Internal: how the ranks of a group find each other.

namespace tandem::inline v0::parallel {

/// Connects this rank with all others of options.prefix. Throws CommError: init, or the alarm's. `is_first`: another
/// process may have come with the same rank, as it cannot into a group that another one was split into. Of a first
/// group one key stays in the store, by which a late process is refused; of others none.
std::unique_ptr<GlooWire> gloo_wire(const GlooOptions& options, const std::shared_ptr<gloo::transport::Device>& device,
                                    std::chrono::steady_clock::time_point deadline, bool is_first);

}  // namespace tandem::inline v0::parallel
