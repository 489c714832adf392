#pragma once

#include <string>

#include <tandem/core/error.h>

// Internal: errors as the text that the store's server spreads, and back. People read it, too.

namespace tandem::inline v0::parallel {

/// "mismatch by rank 2: ...": what the other ranks hear of an error that this one met.
std::string verdict_text(const CommError& error);
/// The error that such a text stands for, or one that a launcher or the server wrote: "rank 2 (pid 4711 on node7) was
/// killed by signal 9" is peer_lost, by rank 2. Whatever cannot be read so is aborted, by nobody.
CommError verdict_error(const std::string& text);

}  // namespace tandem::inline v0::parallel
