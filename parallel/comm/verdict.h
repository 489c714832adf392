#pragma once

#include <string>

#include <tandem/core/error.h>

// Internal: converts errors to and from the text that the store's server spreads. People read this text too.

namespace tandem::inline v0::parallel {

/// The text that tells other ranks of this rank's error: "mismatch by rank 2: ...".
std::string verdict_text(const CommError& error);
/// The error for such a text, or for one that a launcher or the server wrote: "rank 2 (pid 4711 on node7) was killed by
/// signal 9" becomes peer_lost by rank 2. Any other text becomes `aborted` without a rank.
CommError verdict_error(const std::string& text);

}  // namespace tandem::inline v0::parallel
