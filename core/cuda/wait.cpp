#include <tandem/core/cuda/wait.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/cuda/runtime.h>

namespace tandem::inline v0::cuda {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// As long as this the core is kept, as CUDA's own waits do: to sleep would make a short wait late by some 50 us. After
// that a wait naps for a hundredth of what it has lasted, and is late by no more.
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

// `handle` is of what query() found not to be ready.
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
  cudaGetLastError();  // not to be ready is none, but CUDA keeps it as one
  require(status, call);
}

struct DestroyEvent {
  void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
};
using EventHandle = std::unique_ptr<CUevent_st, DestroyEvent>;

EventHandle event_behind(int gpu, CUstream_st* stream) {
  const GpuScope scope(gpu);
  cudaEvent_t event = nullptr;
  require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  EventHandle handle(event);
  require(cudaEventRecord(event, stream), "cudaEventRecord");
  return handle;
}

}  // namespace

// Asked whether it is done, a stream that other threads go on filling never is: so each that is not gets an event at
// the end of what it holds now.
void wait_for(int gpu, std::span<CUstream_st* const> streams, const char* call) {
  std::vector<std::pair<CUstream_st*, EventHandle>> busy;
  for (CUstream_st* stream : streams) {
    if (const cudaError_t status = cudaStreamQuery(stream); status != cudaErrorNotReady) {
      require(status, call);
    } else {
      cudaGetLastError();
      busy.emplace_back(stream, event_behind(gpu, stream));
    }
  }
  const void* at_work = nullptr;
  wait(gpu, "stream", at_work, call, [&] {
    while (!busy.empty()) {
      if (const cudaError_t status = cudaEventQuery(busy.back().second.get()); status != cudaSuccess) {
        at_work = busy.back().first;
        return status;
      }
      busy.pop_back();
    }
    return cudaSuccess;
  });
}

void wait_for(int gpu, CUevent_st* event, const char* call) {
  wait(gpu, "event", event, call, [=] { return cudaEventQuery(event); });
}

}  // namespace tandem::inline v0::cuda
