#include <tandem/core/cuda/gpu.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_set>
#include <utility>

#include <cuda_runtime_api.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/cuda/per_gpu.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/fork.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::cuda {

namespace {

constinit bool is_child = false;  // forked from a process that uses CUDA

int count_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {  // no driver, no GPU, or none visible
    cudaGetLastError();                             // clears the error, or a later check would report it
    return 0;
  }
  core::in_forked_child([] { is_child = true; });
  return std::min(count, kMostGpus);
}

void require_index(int index, const char* asked) {
  const int count = device_count();
  check<DeviceError>(count > 0, "cuda::{}({}): {} [TDM-E115]", asked, index, why_unavailable());
  check<DeviceError>(index >= 0 && index < count, "cuda::{}({}): there are {} GPUs, cuda:0 to cuda:{} [TDM-E115]",
                     asked, index, count, count - 1);
}

cudaDeviceProp properties_of(int index, const char* asked) {
  require_index(index, asked);
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return properties;
}

}  // namespace

int device_count() noexcept {
  static const int count = count_devices();
  return is_child ? 0 : count;
}

std::string device_name(int index) { return properties_of(index, "device_name").name; }

DeviceProperties device_properties(int index) {
  const cudaDeviceProp properties = properties_of(index, "device_properties");
  return {.name = properties.name,
          .total_memory = static_cast<std::int64_t>(properties.totalGlobalMem),
          .multi_processor_count = properties.multiProcessorCount};
}

bool can_device_access_peer(int index, int peer) {
  require_index(index, "can_device_access_peer");
  require_index(peer, "can_device_access_peer");
  int can = 0;
  require(cudaDeviceCanAccessPeer(&can, index, peer), "cudaDeviceCanAccessPeer");
  return can != 0;
}

const char* why_unavailable() noexcept {
  return is_child
             ? "CUDA was initialised before fork(), and does not work in the child: fork before the first use of a "
               "GPU (cuda::is_available() is one), or start the child's work by exec()"
             : "no GPU is visible: look at nvidia-smi and CUDA_VISIBLE_DEVICES";
}

namespace {

constinit PerGpu<const Gpu, LockPlace::gpu_made> gpus;

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  require(cudaDeviceGetAttribute(&value, which, index), "cudaDeviceGetAttribute");
  return value;
}

std::unique_ptr<const Gpu> make(int index) {
  const GpuScope scope(index);
  void* memory = nullptr;
  require(cudaHostAlloc(&memory, sizeof(Fault), cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
  return std::make_unique<const Gpu>(Gpu{.index = index,
                                         .multiprocessors = attribute(cudaDevAttrMultiProcessorCount, index),
                                         .capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, index) +
                                                       attribute(cudaDevAttrComputeCapabilityMinor, index),
                                         .stream = Stream(Device(DeviceType::cuda, index)),
                                         .fault = new (memory) Fault});
}

}  // namespace

const Gpu& gpu(int index) {
  require_available(Device(DeviceType::cuda, index));
  return gpus.get(index, [&] { return make(index); });
}

const Stream& current_stream_of(const Gpu& gpu) noexcept {
  for (const StreamScope* scope = core::thread_state().stream; scope != nullptr; scope = scope->outer()) {
    if (scope->stream().device().index == gpu.index) {
      return scope->stream();
    }
  }
  return gpu.stream;
}

CaptureMutex& capture_mutex() noexcept {
  static constinit CaptureMutex mutex;
  return mutex;
}

namespace {
constinit std::atomic<ReleaseCache> cache_releaser{nullptr};
}

void set_release_cache(ReleaseCache release) noexcept { cache_releaser.store(release, std::memory_order_release); }

void release_cache(int gpu) {
  if (const ReleaseCache release = cache_releaser.load(std::memory_order_acquire); release != nullptr) {
    release(gpu);
  }
}

const char* name_in_notes(const char* op) {
  if (core::thread_state().scope == nullptr) {
    return op;
  }
  std::string name = core::message_prefix(op);
  name.resize(name.size() - 2);  // removes the trailing ": "
  static auto& mutex = *new OrderedMutex<LockPlace::memory, core::ForkSafeMutex>;
  static auto& names = *new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(std::move(name)).first->c_str();
}

void throw_fault(Fault& fault, int device) {
  // The GPU writes the note before the awaited call returns. The note may also come from another stream that is still
  // running.
  if (std::atomic_ref(fault.ready).load(std::memory_order_acquire) == 0) [[likely]] {
    return;
  }
  core::BadValue found;
  {
    static constinit OrderedMutex<LockPlace::memory> mutex;
    const std::lock_guard lock(mutex);
    if (std::atomic_ref(fault.ready).load(std::memory_order_acquire) == 0) {
      return;  // another thread has taken the note and throws it
    }
    found = fault.found;
    std::atomic_ref(fault.ready).store(0, std::memory_order_relaxed);
    std::atomic_ref(fault.claimed).store(0, std::memory_order_release);  // last: a new note may follow at once
  }
  fail<ValueError>(
      "{}: {} (found on the GPU cuda:{} while the program went on; results since then are not to be used){}", found.op,
      describe(found), device, code_of(found));
}

}  // namespace tandem::inline v0::cuda
