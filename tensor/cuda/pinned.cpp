#include <tandem/tensor/cuda_allocator.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/fork.h>

namespace tandem::inline v0::detail {

namespace {

struct PinnedBlock {
  std::byte* data;
  std::size_t bytes;
  std::vector<cuda::Event> uses;  // GPU work on the block that may still be running

  bool at_rest() {
    std::erase_if(uses, [](const cuda::Event& use) { return use.query(); });
    return uses.empty();
  }
};

class PinnedCache {
 public:
  PinnedBlock* take(std::size_t asked) {
    const std::size_t bytes = std::bit_ceil(std::max(asked, std::size_t{4096}));
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(free_.begin(), free_.end(),
                                    [&](PinnedBlock* block) { return block->bytes == bytes && block->at_rest(); });
    if (found != free_.end()) {
      PinnedBlock* block = *found;
      free_.erase(found);
      return block;
    }
    void* memory = nullptr;
    const cudaError_t status = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail<OutOfMemory>(
          "pin_memory: the system has no {} bytes that stay in memory; pin less, or load fewer batches ahead "
          "[TDM-E114]",
          bytes);
    }
    cuda::require(status, "cudaHostAlloc");
    auto* data = static_cast<std::byte*>(memory);
    auto block = std::make_unique<PinnedBlock>(PinnedBlock{data, bytes, {}});
    return all_.emplace(data, std::move(block)).first->second.get();
  }

  void give_back(PinnedBlock* block) {
    const std::lock_guard lock(mutex_);
    free_.push_back(block);
  }

  PinnedBlock* find(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto* address = static_cast<const std::byte*>(data);
    auto after = all_.upper_bound(address);
    if (after == all_.begin()) {
      return nullptr;
    }
    PinnedBlock* block = (--after)->second.get();
    return address < block->data + block->bytes ? block : nullptr;
  }

  void note(PinnedBlock& block, const cuda::Stream& stream) {
    cuda::Event use = stream.record_event();
    const std::lock_guard lock(mutex_);
    block.uses.push_back(std::move(use));
  }

 private:
  // Fork-safe, because a child releases page-locked tensors too.
  cuda::OrderedMutex<cuda::LockPlace::memory, core::ForkSafeMutex> mutex_;
  std::map<const std::byte*, std::unique_ptr<PinnedBlock>> all_;
  std::vector<PinnedBlock*> free_;
};

PinnedCache& cache() {
  static auto* all = new PinnedCache;  // outlives every thread and every static tensor
  return *all;
}

}  // namespace

core::Ref<Storage> allocate_pinned(std::size_t bytes) {
  check<DeviceError>(cuda::is_available(), "pin_memory: {}", cuda::why_unavailable());
  PinnedBlock* block = cache().take(bytes);
  return Storage::adopt(block->data, bytes, Device(), [block](void*) { cache().give_back(block); });
}

bool is_pinned(const void* data) noexcept { return cache().find(data) != nullptr; }

void note_pinned_use(const void* data, const cuda::Stream& stream) {
  if (PinnedBlock* block = cache().find(data); block != nullptr) {
    cache().note(*block, stream);
  }
}

}  // namespace tandem::inline v0::detail
