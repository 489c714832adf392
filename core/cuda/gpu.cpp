#include <tandem/core/cuda/gpu.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_set>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::cuda {

namespace {

constexpr int kMostGpus = 64;

struct Slot {
  std::once_flag once;
  std::unique_ptr<const Gpu> gpu;
};

std::array<Slot, kMostGpus>& slots() {
  static auto* all = new std::array<Slot, kMostGpus>;  // outlives every thread and static tensor
  return *all;
}

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
  const int count = device_count();
  check<DeviceError>(index >= 0 && index < count && index < kMostGpus, "device 'cuda:{}': there are {} GPUs", index,
                     count);
  Slot& slot = slots()[static_cast<std::size_t>(index)];
  std::call_once(slot.once, [&] { slot.gpu = make(index); });
  return *slot.gpu;
}

const Stream& current_stream_of(const Gpu& gpu) noexcept {
  for (const StreamScope* scope = core::thread_state().stream; scope != nullptr; scope = scope->outer()) {
    if (scope->stream().device().index == gpu.index) {
      return scope->stream();
    }
  }
  return gpu.stream;
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

void synchronize(const Gpu& gpu, CUstream_st* stream) {
  require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  throw_fault(*gpu.fault, gpu.index);
}

const char* name_in_notes(const char* op) {
  if (core::thread_state().scope == nullptr) {
    return op;
  }
  std::string name = core::message_prefix(op);
  name.resize(name.size() - 2);  // ": "
  static std::mutex mutex;
  static auto& names = *new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(std::move(name)).first->c_str();
}

void throw_fault(Fault& fault, int device) {
  // Written by the GPU before the call that was waited for returned; or just now, by what another stream still does.
  if (std::atomic_ref(fault.ready).load(std::memory_order_acquire) == 0) [[likely]] {
    return;
  }
  Fault note;
  {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (std::atomic_ref(fault.ready).load(std::memory_order_acquire) == 0) {
      return;  // another thread throws it
    }
    note = fault;
    std::atomic_ref(fault.ready).store(0, std::memory_order_relaxed);
    std::atomic_ref(fault.claimed).store(0, std::memory_order_release);  // last: from here on there may be a new one
  }
  const std::string found = fmt::format(
      "(found on the GPU cuda:{} while the program went on; results since then are not to be used)", device);
  switch (note.kind) {
    case FaultKind::index:
      fail<ValueError>("{}: index {} at position {} is outside [0, {}) {}", note.op, note.value, note.position,
                       note.end, found);
    case FaultKind::target:
      fail<ValueError>("{}: target {} in row {} is not a class index: expected 0 to {}, or {} (ignore_index) {}",
                       note.op, note.value, note.position, note.end - 1, note.ignored, found);
    case FaultKind::probability:
      fail<ValueError>(
          "{}: element {} of the input is {}, expected a probability between 0 and 1; for logits use "
          "binary_cross_entropy_with_logits {}",
          note.op, note.position, note.number, found);
  }
}

}  // namespace tandem::inline v0::cuda
