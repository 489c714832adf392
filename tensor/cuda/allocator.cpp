#include <tandem/tensor/cuda_allocator.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/cuda/gpu.h>
#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/core/cuda/per_gpu.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/peak_place.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/idle_gpus.h>

// One cache per stream on top of the driver's stream-ordered pool. Only running out of memory makes the allocator wait
// for the GPU.

namespace tandem::inline v0 {

namespace detail {

struct CudaBlock {
  std::byte* data;
  std::size_t bytes;  // rounded up to the class
  int gpu;
  core::MemoryUse use;
  cuda::Stream stream;                        // the block is reused in the order of this stream
  std::vector<cuda::Stream> other_streams{};  // other streams that use the block
  // Guards other_streams: several threads may use one tensor.
  cuda::OrderedMutex<cuda::LockPlace::memory> mutex{};
};

}  // namespace detail

namespace cuda {

namespace {

using detail::CudaBlock;

// Formats a size: "640 B", "1.5 KiB", "79.1 GiB".
std::string in_words(std::size_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

// Bookkeeping of a GPU's memory by purpose, and the message for running out of it.
struct Account {
  std::size_t in_use = 0;
  std::size_t peak = 0;
  std::size_t cached = 0;
  std::uint64_t allocations = 0;
  std::array<std::size_t, core::kMemoryUses> by_use{};
  std::map<std::size_t, std::size_t, std::greater<>> blocks;  // blocks in use: size in bytes, count

  void add(std::size_t bytes, core::MemoryUse use) {
    in_use += bytes;
    peak = std::max(peak, in_use);
    by_use[static_cast<std::size_t>(use)] += bytes;
    ++blocks[bytes];
  }

  void remove(std::size_t bytes, core::MemoryUse use) {
    in_use -= bytes;
    by_use[static_cast<std::size_t>(use)] -= bytes;
    if (const auto found = blocks.find(bytes); --found->second == 0) {
      blocks.erase(found);
    }
  }

  void move(std::size_t bytes, core::MemoryUse from, core::MemoryUse to) {
    by_use[static_cast<std::size_t>(from)] -= bytes;
    by_use[static_cast<std::size_t>(to)] += bytes;
  }

  void write(MemoryStats& stats) const {
    stats.in_use = in_use;
    stats.peak = peak;
    stats.cached = cached;
    stats.allocations = allocations;
    stats.by_use = by_use;
  }

  [[noreturn]] void fail(int gpu, std::size_t asked, std::size_t free, std::size_t total) const {
    constexpr int kLargest = 3;
    std::string largest;
    int written = 0;
    for (const auto& [bytes, count] : blocks) {
      largest += fmt::format("{}{} x {}", written == 0 ? "" : ", ", count, in_words(bytes));
      if (++written == kLargest) {
        break;
      }
    }
    tandem::fail<OutOfMemory>(
        "cuda:{} is out of memory: asked for {}, {} of {} are free. This program holds {}: parameters {}, gradients "
        "{}, optimizer {}, activations and all else {}; the largest are {}. Take a smaller batch; other programs on "
        "this GPU are listed by nvidia-smi [TDM-E114]",
        gpu, in_words(asked), in_words(free), in_words(total), in_words(in_use), in_words(by_use[1]),
        in_words(by_use[2]), in_words(by_use[3]), in_words(by_use[0]), largest.empty() ? "none" : largest);
  }
};

constexpr std::size_t kGranularity = 256;

// Multiples of 256 bytes, then four classes per doubling: rounding wastes at most a quarter.
std::size_t class_bytes(std::size_t bytes) {
  bytes = std::max(bytes, std::size_t{1});
  if (bytes <= 4 * kGranularity) {
    return (bytes + kGranularity - 1) / kGranularity * kGranularity;
  }
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

// Freed blocks of one stream, by class.
struct StreamCache {
  Stream stream;  // kept alive, because reuse follows the order of this stream
  std::unordered_map<std::size_t, std::vector<std::unique_ptr<CudaBlock>>> free;
};

class GpuAllocator {
 public:
  explicit GpuAllocator(const Gpu& gpu) : gpu_(gpu) {
    const GpuScope scope(gpu.index);
    std::size_t free = 0;
    require(cudaMemGetInfo(&free, &total_), "cudaMemGetInfo");
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, {gpu.index}};
    require(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
    std::uint64_t keep_all = UINT64_MAX;
    require(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep_all), "cudaMemPoolSetAttribute");
    // Otherwise the driver would silently make unrelated streams wait for each other.
    int off = 0;
    require(cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowInternalDependencies, &off), "cudaMemPoolSetAttribute");
  }

  /// Lets another GPU that this process uses reach the memory, if the two can. Otherwise copies between them would go
  /// through the host, although the GPUs are connected.
  void open_to(int other) {
    if (can_device_access_peer(other, gpu_.index)) {
      cudaMemAccessDesc access{};
      access.location = {cudaMemLocationTypeDevice, {other}};
      access.flags = cudaMemAccessFlagsProtReadWrite;
      require(cudaMemPoolSetAccess(pool_, &access, 1), "cudaMemPoolSetAccess");
    }
  }

  CudaBlock* allocate(std::size_t asked, const Stream& stream) {
    const std::size_t bytes = class_bytes(asked);
    const std::lock_guard lock(mutex_);
    std::unique_ptr<CudaBlock> block = from_cache(bytes, stream);
    if (!block) {
      block = from_driver(asked, bytes, stream);
    }
    block->use = core::thread_state().memory_use;
    account_.add(block->bytes, block->use);
    peak_.note(account_.in_use);
    return block.release();
  }

  void free(std::unique_ptr<CudaBlock> block) {
    const std::lock_guard lock(mutex_);
    account_.remove(block->bytes, block->use);
    // Reuse follows the order of the block's own stream, so that stream first waits for the others that used the block.
    for (const Stream& other : block->other_streams) {
      block->stream.wait_stream(other);
    }
    block->other_streams.clear();
    account_.cached += block->bytes;
    StreamCache& cache = cache_of(block->stream);
    cache.free[block->bytes].push_back(std::move(block));
  }

  void count_as(CudaBlock& block, core::MemoryUse use) {
    const std::lock_guard lock(mutex_);
    account_.move(block.bytes, block.use, use);
    block.use = use;
  }

  void empty_cache() {
    const std::lock_guard lock(mutex_);
    release_cached();
  }

  MemoryStats stats() {
    const GpuScope scope(gpu_.index);
    MemoryStats stats;
    require(cudaMemGetInfo(&stats.free, &stats.total), "cudaMemGetInfo");
    const std::lock_guard lock(mutex_);
    account_.write(stats);
    return stats;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    account_.peak = account_.in_use;
  }

 private:
  StreamCache& cache_of(const Stream& stream) {
    return caches_.try_emplace(stream.handle(), StreamCache{stream, {}}).first->second;
  }

  std::unique_ptr<CudaBlock> from_cache(std::size_t bytes, const Stream& stream) {
    auto& free = cache_of(stream).free;
    const auto found = free.find(bytes);
    if (found == free.end() || found->second.empty()) {
      return nullptr;
    }
    std::unique_ptr<CudaBlock> block = std::move(found->second.back());
    found->second.pop_back();
    account_.cached -= bytes;
    return block;
  }

  std::unique_ptr<CudaBlock> from_driver(std::size_t asked, std::size_t bytes, const Stream& stream) {
    if (bytes > total_) {  // for which the driver may have another word
      fail(asked);
    }
    std::unique_ptr<CudaBlock> block(new CudaBlock{nullptr, bytes, gpu_.index, {}, stream});
    if (!try_driver(*block)) {
      release_cached();
      if (!try_driver(*block)) {
        fail(asked);
      }
    }
    ++account_.allocations;
    return block;
  }

  [[noreturn]] void fail(std::size_t asked) const {
    const GpuScope scope(gpu_.index);
    std::size_t free = 0;
    std::size_t total = 0;
    require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    account_.fail(gpu_.index, asked, free, total);
  }

  bool try_driver(CudaBlock& block) {
    const GpuScope scope(gpu_.index);
    void* memory = nullptr;
    const cudaError_t status = cudaMallocFromPoolAsync(&memory, block.bytes, pool_, block.stream.handle());
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return false;
    }
    require(status, "cudaMallocFromPoolAsync");
    block.data = static_cast<std::byte*>(memory);
    return true;
  }

  // Empties the cache, even if a wait times out: the blocks already belong to the driver again.
  void release_cached() {
    const GpuScope scope(gpu_.index);
    const auto caches = std::exchange(caches_, {});
    account_.cached = 0;
    for (const auto& [handle, cache] : caches) {
      for (const auto& [bytes, blocks] : cache.free) {
        for (const std::unique_ptr<CudaBlock>& block : blocks) {
          require(cudaFreeAsync(block->data, handle), "cudaFreeAsync");
        }
      }
    }
    for (const auto& [handle, cache] : caches) {
      wait_for(gpu_.index, handle, "cuda::empty_cache");
    }
    require(cudaMemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo");
  }

  const Gpu& gpu_;
  cudaMemPool_t pool_ = nullptr;
  std::size_t total_ = 0;  // bytes of the GPU
  OrderedMutex<LockPlace::allocator> mutex_;
  Account account_;
  core::PeakWatch peak_{gpu_.index};  // of what the account has in use
  std::unordered_map<CUstream_st*, StreamCache> caches_;
};

constinit PerGpu<GpuAllocator, LockPlace::allocator_made> allocators;

GpuAllocator& allocator(int index) {
  const Gpu& owner = gpu(index);
  return allocators.get(index, [&] {
    set_release_cache([](int gpu) {
      if (GpuAllocator* const there = allocators.find(gpu); there != nullptr) {
        there->empty_cache();
      }
    });
    auto made = std::make_unique<GpuAllocator>(owner);
    for (int other = 0; other < device_count(); ++other) {  // no other thread makes one meanwhile
      if (GpuAllocator* const there = allocators.find(other); there != nullptr) {
        made->open_to(other);
        there->open_to(owner.index);
      }
    }
    return made;
  });
}

GpuAllocator& checked_allocator(const char* call, Device device) {
  check<DeviceError>(device.type == DeviceType::cuda, "{}: '{}' is not a GPU", call, to_string(device));
  require_available(device);
  return allocator(device.index);
}

}  // namespace

MemoryStats memory_stats(Device device) { return checked_allocator("cuda::memory_stats", device).stats(); }
void reset_peak_memory_stats(Device device) { checked_allocator("cuda::reset_peak_memory_stats", device).reset_peak(); }
void empty_cache(Device device) { checked_allocator("cuda::empty_cache", device).empty_cache(); }

}  // namespace cuda

namespace detail {

CudaBlock* cuda_allocate(std::size_t bytes, Device device) {
  return cuda::allocator(device.index).allocate(bytes, cuda::current_stream(device));
}

std::byte* cuda_data(const CudaBlock* block) noexcept { return block->data; }

void cuda_free(CudaBlock* block) noexcept {
  try {
    cuda::allocator(block->gpu).free(std::unique_ptr<CudaBlock>(block));
  } catch (const Error&) {
    // Either the process is ending, or the GPU is lost and every other call reports that. The memory is gone in both
    // cases.
  }
}

bool cuda_is_used(int gpu) noexcept { return cuda::allocators.find(gpu) != nullptr; }

void cuda_count_as(CudaBlock* block, core::MemoryUse use) { cuda::allocator(block->gpu).count_as(*block, use); }

void cuda_note_stream(CudaBlock* block) {
  cuda::Stream stream = cuda::current_stream(Device(DeviceType::cuda, block->gpu));
  if (stream == block->stream) {
    return;
  }
  const std::lock_guard lock(block->mutex);
  auto& others = block->other_streams;
  if (std::find(others.begin(), others.end(), stream) == others.end()) {
    others.push_back(std::move(stream));
  }
}

}  // namespace detail

}  // namespace tandem::inline v0
