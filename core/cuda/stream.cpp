#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/cuda/gpu.h>
#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/core/cuda/per_gpu.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::cuda {

namespace {

void require_gpu(Device device) {
  check<DeviceError>(device.type == DeviceType::cuda, "cuda::Stream: '{}' is not a GPU", to_string(device));
  require_available(device);
}

}  // namespace

// ---- events ----

struct Event::Impl {
  Device device;
  bool timing;
  cudaEvent_t handle = nullptr;
  ~Impl() {
    if (handle != nullptr) {
      cudaEventDestroy(handle);
    }
  }
};

Event::Event(Device device, bool timing) : impl_(std::make_shared<Impl>(Impl{device, timing})) {
  require_gpu(device);
  const GpuScope scope(device.index);
  require(cudaEventCreateWithFlags(&impl_->handle, timing ? cudaEventDefault : cudaEventDisableTiming),
          "cudaEventCreateWithFlags");
}

void Event::record(const Stream& stream) {
  check<DeviceError>(stream.device() == device(), "cuda::Event::record: the event is of {}, the stream of {}",
                     to_string(device()), to_string(stream.device()));
  const GpuScope scope(device().index);
  require(cudaEventRecord(impl_->handle, stream.handle()), "cudaEventRecord");
}

bool Event::query() const {
  const cudaError_t status = cudaEventQuery(impl_->handle);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  require(status, "cudaEventQuery");
  return true;
}

void Event::synchronize() const {
  wait_for(device().index, impl_->handle, "cuda::Event::synchronize");
  throw_fault(*gpu(device().index).fault, device().index);
}

double Event::elapsed_time(const Event& end) const {
  check<ConfigError>(impl_->timing && end.impl_->timing,
                     "cuda::Event::elapsed_time: needs events made for it, Event(device, true)");
  end.synchronize();
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, impl_->handle, end.impl_->handle), "cudaEventElapsedTime");
  return milliseconds;
}

Device Event::device() const noexcept { return impl_->device; }
CUevent_st* Event::handle() const noexcept { return impl_->handle; }

// ---- streams ----

struct Stream::Impl {
  Device device;
  int priority;
  std::shared_ptr<CUstream_st> handle;
};

namespace {

// CUDA can tell whether a stream is done, but not whether a whole GPU is. synchronize(device) therefore asks each
// stream of the device.
class LiveStreams {
 public:
  std::shared_ptr<CUstream_st> add(cudaStream_t stream) {
    std::shared_ptr<CUstream_st> handle(stream, cudaStreamDestroy);
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const auto& known) { return known.expired(); });
    all_.emplace_back(handle);
    return handle;
  }
  std::vector<std::shared_ptr<CUstream_st>> all() {
    std::vector<std::shared_ptr<CUstream_st>> live;
    const std::lock_guard lock(mutex_);
    for (const auto& known : all_) {
      if (auto handle = known.lock(); handle != nullptr) {
        live.push_back(std::move(handle));
      }
    }
    return live;
  }

  static LiveStreams& of(int gpu) {
    static constinit PerGpu<LiveStreams, LockPlace::streams_made> streams;
    return streams.get(gpu, [] { return std::make_unique<LiveStreams>(); });
  }

 private:
  OrderedMutex<LockPlace::streams> mutex_;
  std::vector<std::weak_ptr<CUstream_st>> all_;
};

}  // namespace

Stream::Stream(Device device, int priority) : impl_(std::make_shared<Impl>(Impl{device, priority, nullptr})) {
  require_gpu(device);
  const GpuScope scope(device.index);
  int least = 0;
  int greatest = 0;
  require(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  impl_->priority = std::clamp(priority, greatest, least);
  cudaStream_t handle = nullptr;
  require(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, impl_->priority),
          "cudaStreamCreateWithPriority");
  impl_->handle = LiveStreams::of(device.index).add(handle);
}

Device Stream::device() const noexcept { return impl_->device; }
int Stream::priority() const noexcept { return impl_->priority; }
CUstream_st* Stream::handle() const noexcept { return impl_->handle.get(); }

bool Stream::query() const {
  const cudaError_t status = cudaStreamQuery(handle());
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  require(status, "cudaStreamQuery");
  return true;
}

void Stream::synchronize() const {
  wait_for(device().index, handle(), "cuda::Stream::synchronize");
  throw_fault(*gpu(device().index).fault, device().index);
}

Event Stream::record_event() const {
  Event event(device());
  event.record(*this);
  return event;
}

void Stream::wait_event(const Event& event) const {
  const GpuScope scope(device().index);
  require(cudaStreamWaitEvent(handle(), event.handle(), 0), "cudaStreamWaitEvent");
}

void Stream::wait_stream(const Stream& other) const { wait_event(other.record_event()); }

Stream default_stream(Device device) {
  require_gpu(device);
  return gpu(device.index).stream;
}

Stream current_stream(Device device) {
  require_gpu(device);
  return current_stream_of(gpu(device.index));
}

// Querying a stream that is being captured, or a GPU with such a stream, would break off the capture; querying an event
// recorded earlier would not. The lock is therefore held only to find the queued work, not while this thread waits for
// it. The lock is held again for work without an event: work on streams that tandem did not make or that were released.
// This second wait covers only the work that others queued in the meantime.
void synchronize(Device device) {
  require_gpu(device);
  const GpuScope scope(device.index);
  const auto queued = [&] {
    const std::lock_guard lock(capture_mutex());
    const auto live = LiveStreams::of(device.index).all();
    std::vector<CUstream_st*> handles;
    for (const auto& stream : live) {
      handles.push_back(stream.get());
    }
    return QueuedWork(device.index, handles, "cuda::synchronize");
  };
  queued().wait();
  {
    const std::lock_guard lock(capture_mutex());
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  throw_fault(*gpu(device.index).fault, device.index);
}

StreamScope::StreamScope(Stream stream) noexcept
    : stream_(std::move(stream)), outer_(std::exchange(core::thread_state().stream, this)) {}
StreamScope::~StreamScope() { core::thread_state().stream = outer_; }

}  // namespace tandem::inline v0::cuda
