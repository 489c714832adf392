#include <tandem/telemetry/emit_nvtx.h>

#include <tandem/core/gpu_spans.h>

namespace tandem::inline v0::telemetry {

EmitNvtx::EmitNvtx() {
  open();  // threads record spans for sinks only
  core::add_gpu_listener(core::GpuListener::of_ranges);
}

EmitNvtx::~EmitNvtx() {
  core::remove_gpu_listener(core::GpuListener::of_ranges);
  close();
}

void EmitNvtx::take(const core::Span& /*span*/, const ThreadName& /*thread*/) noexcept {}

}  // namespace tandem::inline v0::telemetry
