#include <tandem/telemetry/emit_nvtx.h>

#include <tandem/core/gpu_spans.h>

namespace tandem::inline v0::telemetry {

EmitNvtx::EmitNvtx() {
  open();  // threads record spans for sinks only
  core::emit_ranges(true);
}

EmitNvtx::~EmitNvtx() {
  core::emit_ranges(false);
  close();
}

void EmitNvtx::take(const core::Span& /*span*/, const ThreadName& /*thread*/) noexcept {}

}  // namespace tandem::inline v0::telemetry
