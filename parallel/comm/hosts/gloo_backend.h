#pragma once

#include <memory>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/transport_gloo/gloo_options.h>

namespace tandem::inline v0::parallel {

/// Whether this library was built with Gloo.
TANDEM_API bool has_gloo() noexcept;

/// Connects ranks that are processes or threads over TCP, using Gloo's transport, for tensors on CPU devices. All ranks
/// must call this function. All ranks get the same bits in every run: values are combined in rank order; where several
/// hosts have several ranks, all-reduces combine in rank order within a host, then in the order of hosts. A rank
/// that learns of a failure sends it to the others before it closes its connections. If a connection closes without
/// such a message, the error comes from the alarm if the alarm rings within 0.7 s; otherwise the rank at the other end
/// is lost.
///
/// A process that can connect to these ports is trusted: a malformed packet ends the receiver's process. The network
/// between the ranks must therefore belong to the job alone.
///
/// Throws ConfigError for wrong options, or if the library was built without Gloo. Throws CommError (init) if ranks are
/// missing, two processes claim one rank, or a connection cannot be made in time. If the alarm rings, throws its error.
TANDEM_API std::unique_ptr<Backend> gloo_backend(GlooOptions options);

}  // namespace tandem::inline v0::parallel
