#include <tandem/core/cuda/runtime.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/cuda/gpu.h>

namespace tandem::inline v0::cuda {

namespace {

constexpr std::size_t kRemembered = 8;

struct Launches {
  std::array<const char*, kRemembered> names{};
  std::size_t count = 0;
};

constinit thread_local Launches launches;

// Whether a kernel caused the error: the context is lost, and every later CUDA call reports the same error.
bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorECCUncorrectable: return true;
    default: break;
  }
  // Toolkits before 12.8 do not name these.
  constexpr int kContained = 226;
  constexpr int kTensorMemoryLeak = 721;
  return status == kContained || status == kTensorMemoryLeak;
}

}  // namespace

OutsideOfCapture::OutsideOfCapture() {
  require(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
}
OutsideOfCapture::~OutsideOfCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

void make_room(int gpu) {
  cudaGetLastError();  // the failure is being dealt with
  const OutsideOfCapture outside;
  release_cache(gpu);
}

void note_launch(const char* name) noexcept {
  launches.names[launches.count % kRemembered] = name;
  ++launches.count;
}

std::string last_launches() {
  std::string text;
  const std::size_t kept = launches.count < kRemembered ? launches.count : kRemembered;
  for (std::size_t i = launches.count - kept; i < launches.count; ++i) {
    text += (text.empty() ? "" : ", ") + std::string(launches.names[i % kRemembered]);
  }
  return text.empty() ? "none" : text;
}

void fail_without_room(std::string_view failure) {
  fail<OutOfMemory>(
      "{}, for memory that is not a tensor's: the code of kernels, a graph, a library or page-locked memory. Take a "
      "smaller batch; other programs on this GPU are listed by nvidia-smi [TDM-E114]",
      failure);
}

void throw_status(cudaError_t status, const char* call) {
  cudaGetLastError();  // clears the error; otherwise a later, unrelated check would report it
  check<DeviceError>(device_count() > 0, "CUDA: {} ({}), from {}: {}", cudaGetErrorString(status),
                     cudaGetErrorName(status), call, why_unavailable());
  if (is_sticky(status)) {
    fail<DeviceError>(
        "CUDA: {} ({}), found at {}. A kernel went wrong before; the last ones this thread launched: {}. This process "
        "can use the GPU no more: end it, and run it again with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer to "
        "see which",
        cudaGetErrorString(status), cudaGetErrorName(status), call, last_launches());
  }
  if (status == cudaErrorMemoryAllocation) {
    fail_without_room(
        fmt::format("CUDA: {} ({}), from {}", cudaGetErrorString(status), cudaGetErrorName(status), call));
  }
  if (status == cudaErrorNoKernelImageForDevice) {
    fail<DeviceError>(
        "CUDA: {} ({}), found at {}. This build has no code for this GPU: configure with "
        "-DTANDEM_CUDA_ARCHITECTURES=native, or with its compute capability",
        cudaGetErrorString(status), cudaGetErrorName(status), call);
  }
  fail<DeviceError>("CUDA: {} ({}), from {}", cudaGetErrorString(status), cudaGetErrorName(status), call);
}

namespace {
constinit thread_local int used_last = -1;
}  // namespace

int latest_gpu() noexcept { return used_last; }

GpuScope::GpuScope(int index) {
  used_last = index;
  require(cudaGetDevice(&saved_), "cudaGetDevice");
  if (saved_ == index) {
    saved_ = -1;
    return;
  }
  require(cudaSetDevice(index), "cudaSetDevice");
}

GpuScope::~GpuScope() {
  if (saved_ >= 0) {
    cudaSetDevice(saved_);
  }
}

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// A wait spins for kSpin, as CUDA's own waits do, because sleeping would delay a short wait by about 50 us. After that,
// a wait naps for a hundredth of its duration so far and so ends at most that much late.
constexpr Clock::duration kSpin = std::chrono::milliseconds(10);
constexpr Clock::duration kLongestNap = std::chrono::milliseconds(10);

Seconds limit_from_environment() {
  const char* text = std::getenv("TANDEM_GPU_TIMEOUT");
  if (text == nullptr) {
    return Seconds(600);
  }
  double seconds = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, seconds);
  check<ConfigError>(error == std::errc() && stop == end && std::isfinite(seconds) && seconds >= 0,
                     "TANDEM_GPU_TIMEOUT='{}': expected a number of seconds, 0 for no limit", text);
  return Seconds(seconds);
}

// `handle` is the stream or event that query() found unfinished.
template <class Query>
void wait(int gpu, const char* kind, const void* const& handle, const char* call, const Query& query) {
  static const Seconds limit = limit_from_environment();
  cudaError_t status = query();
  if (status != cudaErrorNotReady) [[likely]] {
    return require(status, call);
  }
  const Clock::time_point begin = Clock::now();
  while ((status = query()) == cudaErrorNotReady) {
    const Clock::duration lasted = Clock::now() - begin;
    if (limit.count() > 0 && lasted > limit) {
      cudaGetLastError();
      fail<DeviceError>(
          "{}: cuda:{} is not done after {} s, on its {} {}; the last launches of this thread: {}. A kernel may never "
          "end, or the work may wait for an event or a program that never comes: end this process, and see by "
          "nvidia-smi what the GPU does. TANDEM_GPU_TIMEOUT=<seconds> sets how long to wait, 0 for ever",
          call, gpu, limit.count(), kind, handle, last_launches());
    }
    if (lasted > kSpin) {
      std::this_thread::sleep_for(std::min(lasted / 100, kLongestNap));
    }
  }
  cudaGetLastError();  // cudaErrorNotReady is no failure, but CUDA stores it as the last error
  require(status, call);
}

}  // namespace

void QueuedWork::DestroyEvent::operator()(CUevent_st* event) const { cudaEventDestroy(event); }

QueuedWork::Busy QueuedWork::end_of(int gpu, CUstream_st* stream) {
  const GpuScope scope(gpu);
  cudaEvent_t event = nullptr;
  require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  Busy busy{stream, {event, {}}};
  require(cudaEventRecord(event, stream), "cudaEventRecord");
  return busy;
}

// A stream that other threads keep filling never becomes idle. Each busy stream therefore gets an event at the end of
// its current work.
QueuedWork::QueuedWork(int gpu, std::span<CUstream_st* const> streams, const char* call) : gpu_(gpu), call_(call) {
  for (CUstream_st* stream : streams) {
    if (const cudaError_t status = cudaStreamQuery(stream); status != cudaErrorNotReady) {
      require(status, call);
    } else {
      cudaGetLastError();
      busy_.push_back(end_of(gpu, stream));
    }
  }
}

void QueuedWork::wait() {
  const void* at_work = nullptr;
  cuda::wait(gpu_, "stream", at_work, call_, [&] {
    while (!busy_.empty()) {
      if (const cudaError_t status = cudaEventQuery(busy_.back().end.get()); status != cudaSuccess) {
        at_work = busy_.back().stream;
        return status;
      }
      busy_.pop_back();
    }
    return cudaSuccess;
  });
}

void wait_for(int gpu, CUstream_st* stream, const char* call) { QueuedWork(gpu, std::span(&stream, 1), call).wait(); }

void wait_for(int gpu, CUevent_st* event, const char* call) {
  wait(gpu, "event", event, call, [=] { return cudaEventQuery(event); });
}

}  // namespace tandem::inline v0::cuda
