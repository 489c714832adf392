#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/launch/step.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::size_t kSmallest = std::size_t{1} << 20;

// Page-locked host memory for short copies. Places are used in turn, so that the host can be some copies ahead.
struct StagingRing {
  static constexpr std::size_t kPlaces = 8;
  std::array<Queue::Staging, kPlaces> places{};
  std::size_t next = 0;
};

// Rings that ended threads have left for new ones. Freeing page-locked memory would wait for all GPUs.
struct Stagings {
  cuda::OrderedMutex<cuda::LockPlace::memory> mutex;
  std::vector<StagingRing> left;

  static Stagings& instance() {
    static auto* all = new Stagings;  // outlives every thread
    return *all;
  }
  void give(StagingRing ring) {
    const std::lock_guard lock(mutex);
    left.push_back(std::move(ring));
  }
  StagingRing take() {
    {
      const std::lock_guard lock(mutex);
      if (!left.empty()) {
        StagingRing ring = std::move(left.back());
        left.pop_back();
        return ring;
      }
    }
    void* memory = nullptr;
    cuda::require(cudaHostAlloc(&memory, StagingRing::kPlaces * Queue::kStaged, cudaHostAllocPortable),
                  "cudaHostAlloc");
    StagingRing ring;
    for (std::size_t i = 0; i < StagingRing::kPlaces; ++i) {
      ring.places[i].memory = static_cast<std::byte*>(memory) + i * Queue::kStaged;
    }
    return ring;
  }
};

/// Scratch memory of one thread for one GPU. Blocks are kept, because a captured step holds their addresses; the step
/// also shares ownership of the workspace.
struct Workspace final : GpuState {
  struct Block {
    cuda::Stream stream;  // keeps the stream alive, in whose order the memory is freed
    unsigned int* tickets;
    void* memory;  // behind the tickets
    std::size_t bytes;
  };
  std::vector<Block> blocks;
  std::optional<StagingRing> staging;

  static Workspace& of(Context& context) {
    if (!context.gpu_state) {
      context.gpu_state = std::make_shared<Workspace>();
    }
    return static_cast<Workspace&>(*context.gpu_state);
  }

  // Runs when the thread and the steps that it captured have ended. Queued work still finishes first, because the
  // memory is freed in the order of the stream.
  ~Workspace() override {
    for (const Block& block : blocks) {
      cudaFreeAsync(block.tickets, block.stream.handle());
    }
    if (staging && cuda::device_count() > 0) {  // not in a forked child
      Stagings::instance().give(std::move(*staging));
    }
  }
};

void* try_allocate(std::size_t bytes, const cuda::Stream& stream) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocAsync(&memory, bytes, stream.handle());
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  cuda::require(status, "cudaMallocAsync");
  return memory;
}

}  // namespace

namespace {

// A block of the stream's that has at least so many bytes. While its step is captured, a thread allocates on the stream
// that the step will run on.
const Workspace::Block& block_of(const Queue& queue, std::size_t bytes) {
  const Context& context = queue.context();
  auto& blocks = Workspace::of(queue.context()).blocks;
  CUstream_st* const order = context.step_slots != nullptr ? context.step_slots->stream->handle() : queue.stream();
  for (const Workspace::Block& block : blocks) {
    if (block.stream.handle() == order && block.bytes >= bytes) {
      return block;
    }
  }
  const auto of_tickets =
      static_cast<std::size_t>(std::max(queue.most_blocks(), Queue::kLeastTickets)) * sizeof(unsigned int);
  const std::size_t before = (of_tickets + 255) / 256 * 256;
  const std::size_t all = std::bit_ceil(std::max(before + bytes, kSmallest));
  const cuda::OutsideOfCapture outside;
  const cuda::Stream stream =
      context.step_slots != nullptr ? *context.step_slots->stream : cuda::current_stream(context.device);
  void* memory = try_allocate(all, stream);
  if (memory == nullptr) {
    cuda::release_cache(context.device.index);
    memory = try_allocate(all, stream);
  }
  check<OutOfMemory>(
      memory != nullptr,
      "cuda:{} is out of memory: {} bytes of scratch memory for a kernel. Take a smaller batch [TDM-E114]",
      context.device.index, all);
  cuda::require(cudaMemsetAsync(memory, 0, of_tickets, stream.handle()), "cudaMemsetAsync");
  blocks.push_back(
      {stream, static_cast<unsigned int*>(memory), static_cast<std::byte*>(memory) + before, all - before});
  return blocks.back();
}

}  // namespace

void* Queue::workspace(std::size_t bytes) const { return block_of(*this, bytes).memory; }

unsigned int* Queue::tickets() const { return block_of(*this, 0).tickets; }

Queue::Staging& Queue::staging() const {
  std::optional<StagingRing>& ring = Workspace::of(context_).staging;
  if (!ring) {
    ring = Stagings::instance().take();
  }
  Staging& place = ring->places[ring->next++ % StagingRing::kPlaces];
  if (place.end && !place.end->query()) {
    cuda::wait_for(gpu_.index, place.end->handle(), "copy");
  }
  return place;
}

void Queue::keep(Staging& staging) const {
  const cuda::Stream stream = cuda::current_stream(context_.device);
  if (!staging.end || staging.end->device() != context_.device) {
    staging.end.emplace(context_.device);
  }
  staging.end->record(stream);
}

bool Queue::is_capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::require(cudaStreamIsCapturing(stream_, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void Queue::wait(const char* call) const {
  cuda::wait_for(gpu_.index, stream_, call);
  cuda::throw_fault(*gpu_.fault, gpu_.index);
}

}  // namespace tandem::inline v0::kernels
