#include <tandem/core/gpu_spans.h>

#include <exception>
#include <string>

#include <nvtx3/nvToolsExt.h>

#include <tandem/core/cuda/gpu_phases.h>

namespace tandem::inline v0::core {

namespace {

constinit std::atomic<int> emitters{0};  // who asked for ranges

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t tandem = nvtxDomainCreateA("tandem");
  return tandem;
}

void open_range(const Span& span) {
  const std::string text(span.detail.empty() ? span.name : span.detail);
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.c_str();
  nvtxDomainRangePushEx(domain(), &attributes);
}

}  // namespace

constinit std::atomic<int> gpu_listeners{0};

void emit_ranges(bool on) noexcept {
  emitters.fetch_add(on ? 1 : -1, std::memory_order_relaxed);
  gpu_listeners.fetch_add(on ? 1 : -1, std::memory_order_relaxed);
}

GpuMark begin_on_gpu(const Span& span, std::optional<Phase> phase) noexcept {
  GpuMark mark;
  try {
    if (emitters.load(std::memory_order_relaxed) != 0) {
      open_range(span);
      mark.is_range = true;
    }
    const int gpu = phase ? GpuPhases::gpu_of_this_thread() : -1;
    if (const auto phases = gpu >= 0 ? GpuPhases::find() : nullptr) {
      mark.phase = phases->begin(*phase, gpu);
    }
  } catch (const std::exception&) {  // the next call that needs the GPU throws its failure
  }
  return mark;
}

void end_on_gpu(const GpuMark& mark) noexcept {
  if (mark.is_range) {
    nvtxDomainRangePop(domain());
  }
  try {
    if (const auto phases = mark.phase != 0 ? GpuPhases::find() : nullptr) {
      phases->end(mark.phase);
    }
  } catch (const std::exception&) {  // as above
  }
}

}  // namespace tandem::inline v0::core
