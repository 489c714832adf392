#include <tandem/core/cuda.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/core/gpu_spans.h>

// The CUDA functions of a build without CUDA: no GPU exists, so no object of a GPU can be made.

namespace tandem::inline v0::cuda {

namespace {
[[noreturn]] void fail_without(const char* what) { fail<DeviceError>("{}: {}", what, why_unavailable()); }
}  // namespace

int device_count() noexcept { return 0; }
std::string device_name(int index) { fail<DeviceError>("cuda::device_name({}): {}", index, why_unavailable()); }
DeviceProperties device_properties(int index) {
  fail<DeviceError>("cuda::device_properties({}): {}", index, why_unavailable());
}
bool can_device_access_peer(int index, int peer) {
  fail<DeviceError>("cuda::can_device_access_peer({}, {}): {}", index, peer, why_unavailable());
}
const char* why_unavailable() noexcept {
  return "this build of tandem has no CUDA (it was configured with TANDEM_CUDA=OFF, or found no toolkit)";
}

struct Event::Impl {};
Event::Event(Device, bool) { fail_without("cuda::Event"); }
void Event::record(const Stream&) { fail_without("cuda::Event::record"); }
bool Event::query() const { fail_without("cuda::Event::query"); }
void Event::synchronize() const { fail_without("cuda::Event::synchronize"); }
double Event::elapsed_time(const Event&) const { fail_without("cuda::Event::elapsed_time"); }
Device Event::device() const noexcept { return {}; }
CUevent_st* Event::handle() const noexcept { return nullptr; }

struct Stream::Impl {};
Stream::Stream(Device, int) { fail_without("cuda::Stream"); }
Device Stream::device() const noexcept { return {}; }
bool Stream::query() const { fail_without("cuda::Stream::query"); }
void Stream::synchronize() const { fail_without("cuda::Stream::synchronize"); }
Event Stream::record_event() const { fail_without("cuda::Stream::record_event"); }
void Stream::wait_event(const Event&) const { fail_without("cuda::Stream::wait_event"); }
void Stream::wait_stream(const Stream&) const { fail_without("cuda::Stream::wait_stream"); }
CUstream_st* Stream::handle() const noexcept { return nullptr; }

Stream default_stream(Device) { fail_without("cuda::default_stream"); }
Stream current_stream(Device) { fail_without("cuda::current_stream"); }
void synchronize(Device) { fail_without("cuda::synchronize"); }

StreamScope::StreamScope(Stream stream) noexcept : stream_(std::move(stream)), outer_(nullptr) {}
StreamScope::~StreamScope() = default;

}  // namespace tandem::inline v0::cuda

namespace tandem::inline v0::core {

constinit std::atomic<int> gpu_listeners{0};  // stays 0
GpuMark begin_on_gpu(const Span&, std::optional<Phase>) noexcept { return {}; }
void end_on_gpu(const GpuMark&) noexcept {}
void emit_ranges(bool) noexcept {}
std::shared_ptr<GpuPhases> gpu_phases_of_this_rank() { return nullptr; }
void compare_gpu_clocks(GpuPhases&) {}
std::uint64_t next_gpu_phase(GpuPhases&) noexcept { return 0; }
std::vector<GpuPhase> gpu_phases_between(GpuPhases&, std::uint64_t, std::uint64_t) { return {}; }

}  // namespace tandem::inline v0::core
