#pragma once

#include <string>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {
class Trace;
}

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Ends the traces of all ranks of `group`, and rank 0 writes them as one picture to `path`, as JSON for
/// https://ui.perfetto.dev. A collective. The clocks of ranks on other machines are set by one barrier, to about the
/// time of a message. Throws IoError on rank 0, CommError like any collective.
TANDEM_API void write_trace(telemetry::Trace& trace, ProcessGroup& group, const std::string& path);

}  // namespace tandem::inline v0::parallel
