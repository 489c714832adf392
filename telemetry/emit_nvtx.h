#pragma once

#include <tandem/core/export.h>
#include <tandem/core/span.h>

namespace tandem::inline v0::telemetry {

/// While it exists, the spans of all threads of the process (phases, modules, ops of the backward pass, exchanges, see
/// Trace) are NVTX ranges of the domain "tandem", which Nsight Systems shows beside the kernels. It
/// corresponds to torch.autograd.profiler.emit_nvtx. In a build without CUDA it does nothing.
///
///     const telemetry::EmitNvtx ranges;
///     train();  // nsys profile ./program
class TANDEM_API EmitNvtx final : core::SpanSink {
 public:
  /// Begins to emit.
  EmitNvtx();
  ~EmitNvtx() override;
  EmitNvtx(const EmitNvtx&) = delete;
  EmitNvtx& operator=(const EmitNvtx&) = delete;

 private:
  void take(const core::Span& span, const ThreadName& thread) noexcept override;
};

}  // namespace tandem::inline v0::telemetry
