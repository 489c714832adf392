#include <tandem/core/cuda/gpu_phases.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <utility>

#include <cuda_runtime_api.h>

#include <tandem/core/cuda/runtime.h>
#include <tandem/core/error.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::core {

namespace {

struct Records {
  ForkSafeMutex mutex;
  std::vector<std::weak_ptr<GpuPhases>> all;
};

Records& records() {
  static auto* const list = new Records;  // outlives every thread
  return *list;
}

constinit std::atomic<std::uint64_t> made{0};

// The records that still exist, of this rank.
std::shared_ptr<GpuPhases> find_locked(const parallel::RankContext* rank) {
  for (const std::weak_ptr<GpuPhases>& known : records().all) {
    if (auto phases = known.lock(); phases != nullptr && phases->rank() == rank) {
      return phases;
    }
  }
  return nullptr;
}

cuda::Stream current_stream(int gpu) {
  return cuda::current_stream(Device(DeviceType::cuda, static_cast<std::int16_t>(gpu)));
}

bool is_capturing(const cuda::Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::require(cudaStreamIsCapturing(stream.handle(), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

// Unlike Event::synchronize() and elapsed_time(), leaves it to the program to find out what kernels complained of.
void wait(const cuda::Event& event) { cuda::wait_for(event.device().index, event.handle(), "the times of phases"); }

Span::Clock::duration time_between(const cuda::Event& begin, const cuda::Event& end) {
  float milliseconds = 0;
  cuda::require(cudaEventElapsedTime(&milliseconds, begin.handle(), end.handle()), "cudaEventElapsedTime");
  return std::chrono::duration_cast<Span::Clock::duration>(std::chrono::duration<double, std::milli>(milliseconds));
}

}  // namespace

GpuPhases::GpuPhases(const parallel::RankContext* rank)
    : rank_(rank), next_(((made.fetch_add(1, std::memory_order_relaxed) + 1) << 32U) + 1) {
  gpu_listeners.fetch_add(1, std::memory_order_relaxed);
}

GpuPhases::~GpuPhases() { gpu_listeners.fetch_sub(1, std::memory_order_relaxed); }

std::shared_ptr<GpuPhases> GpuPhases::find() {
  const std::lock_guard lock(records().mutex);
  return find_locked(thread_state().rank);
}

std::shared_ptr<GpuPhases> gpu_phases_of_this_rank() {
  const std::lock_guard lock(records().mutex);
  std::shared_ptr<GpuPhases> phases = find_locked(thread_state().rank);
  if (phases == nullptr) {
    phases = std::make_shared<GpuPhases>(thread_state().rank);
    std::erase_if(records().all, [](const auto& known) { return known.expired(); });
    records().all.push_back(phases);
  }
  return phases;
}

void compare_gpu_clocks(GpuPhases& phases) { phases.compare_clocks(); }
std::uint64_t next_gpu_phase(GpuPhases& phases) noexcept { return phases.next(); }

std::vector<GpuPhase> gpu_phases_between(GpuPhases& phases, std::uint64_t begin, std::uint64_t end) {
  return phases.between(begin, end);
}

int GpuPhases::gpu_of_this_thread() noexcept {
  const Device device = thread_state().device;
  return device.type == DeviceType::cuda ? device.index : cuda::latest_gpu();
}

std::uint64_t GpuPhases::begin(Phase phase, int gpu) {
  const cuda::OutsideOfCapture outside;
  const cuda::Stream stream = current_stream(gpu);
  if (is_capturing(stream)) {
    return 0;
  }
  const std::lock_guard lock(mutex_);
  if (const auto known = origins_.find(gpu); known == origins_.end() || known->second.is_stale) {
    origins_.insert_or_assign(gpu, origin_of(stream));
  }
  if (latest_.size() == kMost) {
    One& oldest = latest_.front();
    std::vector<cuda::Event>& idle = idle_[oldest.began.device().index];
    idle.push_back(std::move(oldest.began));
    if (oldest.ended) {
      idle.push_back(std::move(*oldest.ended));
    }
    latest_.pop_front();
  }
  latest_.push_back({next_, phase, std::this_thread::get_id(), reached_by(stream), {}});
  return next_++;
}

void GpuPhases::end(std::uint64_t number) {
  const cuda::OutsideOfCapture outside;
  const std::lock_guard lock(mutex_);
  const auto one = std::ranges::lower_bound(latest_, number, std::ranges::less(), &One::number);
  if (one != latest_.end() && one->number == number) {
    const cuda::Stream stream = current_stream(one->began.device().index);
    if (!is_capturing(stream)) {
      one->ended = reached_by(stream);
    }
  }
}

void GpuPhases::compare_clocks() {
  const std::lock_guard lock(mutex_);
  for (auto& [gpu, origin] : origins_) {
    origin.is_stale = true;
  }
}

std::uint64_t GpuPhases::next() {
  const std::lock_guard lock(mutex_);
  return next_;
}

std::vector<GpuPhase> GpuPhases::between(std::uint64_t begin, std::uint64_t end) {
  std::vector<One> wanted;
  std::map<int, Origin> origins;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::copy_if(latest_, std::back_inserter(wanted), [&](const One& one) {
      return one.number >= begin && one.number < end && one.ended.has_value();
    });
    origins = origins_;
  }
  std::vector<GpuPhase> phases;
  std::set<int> failed;
  std::map<int, Origin> nearby;    // CUDA gives times in floats: those of long ago have no microseconds
  for (const One& one : wanted) {  // other threads go on while this one waits
    const int gpu = one.began.device().index;
    if (failed.contains(gpu)) {
      continue;
    }
    try {
      wait(*one.ended);
      if (!nearby.contains(gpu)) {
        const Origin& first = origins.at(gpu);
        nearby.emplace(gpu, Origin{one.began, first.at + time_between(first.event, one.began)});
      }
      const Origin& origin = nearby.at(gpu);
      const Span::Clock::time_point began = origin.at + time_between(origin.event, one.began);
      phases.push_back({one.number, one.phase, gpu, one.thread, began, began + time_between(one.began, *one.ended)});
    } catch (const Error&) {
      failed.insert(gpu);
    }
  }
  std::erase_if(phases, [&](const GpuPhase& phase) { return failed.contains(phase.gpu); });
  return phases;
}

// The stream is idle when the event is recorded, so the GPU reaches it at once.
GpuPhases::Origin GpuPhases::origin_of(const cuda::Stream& stream) {
  cuda::Event event(stream.device(), true);
  for (int i = 0; i < 2; ++i) {
    event.record(stream);
    wait(event);
  }
  return {std::move(event), Span::Clock::now()};
}

cuda::Event GpuPhases::reached_by(const cuda::Stream& stream) {
  std::vector<cuda::Event>& idle = idle_[stream.device().index];
  if (idle.empty()) {
    idle.emplace_back(stream.device(), true);
  }
  cuda::Event event = std::move(idle.back());
  idle.pop_back();
  event.record(stream);
  return event;
}

}  // namespace tandem::inline v0::core
