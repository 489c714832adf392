#include <tandem/core/gpu_spans.h>

#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <tandem/core/cuda/runtime.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/core/error.h>
#include <tandem/core/fork.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::core {

namespace {

constexpr std::size_t kMostPhases = 1U << 14U;

struct Phases {
  struct One {
    const char* name;
    const parallel::RankContext* rank;
    cuda::Event begin;
    std::optional<cuda::Event> end;
  };
  /// A point of time on both clocks.
  struct Origin {
    cuda::Event event;
    Span::Clock::time_point at;
  };

  ForkSafeMutex mutex;
  std::uint64_t next = 1;  // the number of the next phase
  std::deque<std::optional<One>> latest;
  std::map<int, Origin> origins;
  std::map<int, std::vector<cuda::Event>> idle;  // events of phases that were taken

  static Phases& all() {
    static auto* const phases = new Phases;  // outlives every thread
    return *phases;
  }

  std::optional<One>* find(std::uint64_t number) {
    const std::uint64_t first = next - latest.size();
    return number < first || number >= next ? nullptr : &latest[number - first];
  }

  cuda::Event reached_by(const cuda::Stream& stream) {
    std::vector<cuda::Event>& free = idle[stream.device().index];
    if (free.empty()) {
      free.emplace_back(stream.device(), true);
    }
    cuda::Event event = std::move(free.back());
    free.pop_back();
    event.record(stream);
    return event;
  }

  void drop(One& one) {
    std::vector<cuda::Event>& free = idle[one.begin.device().index];
    free.push_back(std::move(one.begin));
    if (one.end) {
      free.push_back(std::move(*one.end));
    }
  }

  std::uint64_t begin(const char* name, const cuda::Stream& stream) {
    const int gpu = stream.device().index;
    if (!origins.contains(gpu)) {
      cuda::Event event = reached_by(stream);
      event.synchronize();
      origins.emplace(gpu, Origin{std::move(event), Span::Clock::now()});
    }
    if (latest.size() == kMostPhases) {
      if (latest.front()) {
        drop(*latest.front());
      }
      latest.pop_front();
    }
    latest.push_back(One{name, thread_state().rank, reached_by(stream), {}});
    return next++;
  }

  GpuPhase of(const One& one) const {
    const Origin& origin = origins.at(one.begin.device().index);
    const auto since = [&](const cuda::Event& event) {
      return origin.at + std::chrono::duration_cast<Span::Clock::duration>(
                             std::chrono::duration<double, std::milli>(origin.event.elapsed_time(event)));
    };
    return {one.name, one.begin.device().index, since(one.begin), since(*one.end)};
  }
};

// The current stream of the thread's GPU; none without a GPU, or while the stream's work is recorded for a graph: its
// events belong to the graph.
std::optional<cuda::Stream> stream_of_this_thread() {
  const int gpu = cuda::latest_gpu();
  if (gpu < 0) {
    return std::nullopt;
  }
  cuda::Stream stream = cuda::current_stream(Device(DeviceType::cuda, static_cast<std::int16_t>(gpu)));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::require(cudaStreamIsCapturing(stream.handle(), &status), "cudaStreamIsCapturing");
  return status == cudaStreamCaptureStatusNone ? std::optional(std::move(stream)) : std::nullopt;
}

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t tandem = nvtxDomainCreateA("tandem");
  return tandem;
}

constinit std::atomic<int> of_phases{0};
constinit std::atomic<int> of_ranges{0};

std::atomic<int>& count_of(GpuListener listener) { return listener == GpuListener::of_phases ? of_phases : of_ranges; }

}  // namespace

constinit std::atomic<int> gpu_listeners{0};

void add_gpu_listener(GpuListener listener) noexcept {
  count_of(listener).fetch_add(1, std::memory_order_relaxed);
  gpu_listeners.fetch_add(1, std::memory_order_relaxed);
}

void remove_gpu_listener(GpuListener listener) noexcept {
  count_of(listener).fetch_sub(1, std::memory_order_relaxed);
  gpu_listeners.fetch_sub(1, std::memory_order_relaxed);
}

GpuMark begin_on_gpu(const Span& span, bool is_phase) noexcept {
  GpuMark mark;
  try {
    if (of_ranges.load(std::memory_order_relaxed) != 0) {
      const std::string text(span.detail.empty() ? span.name : span.detail);
      nvtxEventAttributes_t attributes{};
      attributes.version = NVTX_VERSION;
      attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
      attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
      attributes.message.ascii = text.c_str();
      nvtxDomainRangePushEx(domain(), &attributes);
      mark.is_range = true;
    }
    if (is_phase && of_phases.load(std::memory_order_relaxed) != 0) {
      const cuda::OutsideOfCapture outside;
      if (const std::optional<cuda::Stream> stream = stream_of_this_thread()) {
        const std::lock_guard lock(Phases::all().mutex);
        mark.phase = Phases::all().begin(span.name, *stream);
      }
    }
  } catch (const std::exception&) {  // a GPU's failure is for its next call to tell
  }
  return mark;
}

void end_on_gpu(const GpuMark& mark) noexcept {
  if (mark.is_range) {
    nvtxDomainRangePop(domain());
  }
  if (mark.phase == 0) {
    return;
  }
  try {
    const cuda::OutsideOfCapture outside;
    const std::optional<cuda::Stream> stream = stream_of_this_thread();
    const std::lock_guard lock(Phases::all().mutex);
    std::optional<Phases::One>* const one = Phases::all().find(mark.phase);
    if (one != nullptr && *one && stream && stream->device() == (*one)->begin.device()) {
      (*one)->end = Phases::all().reached_by(*stream);
    }
  } catch (const std::exception&) {  // as above
  }
}

std::vector<GpuPhase> take_gpu_phases(const parallel::RankContext* rank) {
  std::vector<GpuPhase> taken;
  Phases& phases = Phases::all();
  const std::lock_guard lock(phases.mutex);
  for (std::optional<Phases::One>& one : phases.latest) {
    if (one && one->end && one->rank == rank) {
      try {
        taken.push_back(phases.of(*one));
      } catch (const Error&) {  // the GPU has failed
      }
      phases.drop(*one);
      one.reset();
    }
  }
  while (!phases.latest.empty() && !phases.latest.front()) {
    phases.latest.pop_front();
  }
  return taken;
}

}  // namespace tandem::inline v0::core
