#include <tandem/tensor/cpu_allocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <utility>

#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/fork.h>
#include <tandem/core/huge_pages.h>
#include <tandem/core/peak_place.h>
#include <tandem/core/span.h>
#include <tandem/core/span_totals.h>
#include <tandem/core/system_limits.h>

namespace tandem::inline v0 {

namespace detail {

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCached = false;  // a cache would hide a use after free from the sanitizer
#else
constexpr bool kCached = true;
#endif

constexpr std::size_t kAlignment = 64;
constexpr int kLinearClasses = 16;                                  // 64, 128, ... 1024 bytes
constexpr int kClasses = kLinearClasses + 4 * (46 - 10);            // then four per doubling, up to 2^46
constexpr std::size_t kThreadBlock = std::size_t{1} << 18;          // larger blocks are shared by all threads
constexpr std::size_t kThreadBytesPerClass = std::size_t{1} << 20;  // bytes that a thread keeps per class

constexpr std::size_t kKeptIdle = kCached ? std::size_t{1} << 28 : 0;  // large blocks kept regardless of use

constexpr std::size_t kLargest = std::size_t{1} << 46;

int class_of(std::size_t bytes) {
  if (bytes <= kLinearClasses * kAlignment) {
    return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / kAlignment);
  }
  const int log2 = static_cast<int>(std::bit_width(bytes - 1)) - 1;  // 2^log2 < bytes <= 2^(log2 + 1)
  const int quarter = static_cast<int>((bytes - 1) >> (log2 - 2)) & 3;
  return kLinearClasses + 4 * (log2 - 10) + quarter;
}

std::size_t class_bytes(int size_class) {
  if (size_class < kLinearClasses) {
    return (static_cast<std::size_t>(size_class) + 1) * kAlignment;
  }
  const int index = size_class - kLinearClasses;
  return static_cast<std::size_t>(5 + index % 4) << (10 + index / 4 - 2);
}

// A freed block stores the link to the next one.
struct FreeBlock {
  FreeBlock* next;
};

std::atomic<std::size_t> system_bytes{0};
std::atomic<std::uint64_t> system_allocations{0};

void give_back(FreeBlock* list, int size_class) noexcept {
  while (list != nullptr) {
    FreeBlock* next = list->next;
    std::free(list);
    system_bytes.fetch_sub(class_bytes(size_class), std::memory_order_relaxed);
    list = next;
  }
}

// The blocks shared by all threads. The idle large blocks never exceed the largest amount that was in use at once: a
// program whose sizes change (other batches, other sequence lengths) must not accumulate blocks that it will not
// request again.
struct SharedCache {
  core::ForkSafeMutex mutex;
  std::array<FreeBlock*, kClasses> lists{};
  std::size_t used = 0;          // bytes of large blocks in use
  std::size_t most = kKeptIdle;  // largest value of `used` so far
  std::size_t idle = 0;          // bytes of large blocks in the lists
  core::PeakWatch peak{-1};      // of `used`

  /// Takes a block of this class from the cache, or returns null; either way a block counts as used.
  void* take(int size_class) noexcept {
    const std::lock_guard lock(mutex);
    FreeBlock*& head = lists[static_cast<std::size_t>(size_class)];
    FreeBlock* block = head;
    if (block != nullptr) {
      head = block->next;
    }
    if (const std::size_t size = class_bytes(size_class); size > kThreadBlock) {
      used += size;
      most = kCached ? std::max(most, used) : 0;
      peak.note(used);
      idle -= block != nullptr ? size : 0;
    }
    return block;
  }
  /// Returns a large block. A null `block` only undoes the count of take(), because no memory was available.
  void put_large(FreeBlock* block, int size_class) noexcept {
    const std::lock_guard lock(mutex);
    const std::size_t size = class_bytes(size_class);
    used -= size;
    if (block == nullptr) {
      return;
    }
    // Blocks of other classes are released first, because this size was just in demand.
    for (int other = kClasses - 1; idle + size > most && other >= 0 && class_bytes(other) > kThreadBlock; --other) {
      while (other != size_class && lists[static_cast<std::size_t>(other)] != nullptr && idle + size > most) {
        FreeBlock* old =
            std::exchange(lists[static_cast<std::size_t>(other)], lists[static_cast<std::size_t>(other)]->next);
        old->next = nullptr;
        idle -= class_bytes(other);
        give_back(old, other);
      }
    }
    if (idle + size > most) {
      block->next = nullptr;
      give_back(block, size_class);
      return;
    }
    idle += size;
    block->next = lists[static_cast<std::size_t>(size_class)];
    lists[static_cast<std::size_t>(size_class)] = block;
  }
  void put(FreeBlock* first, FreeBlock* last, int size_class) noexcept {
    const std::lock_guard lock(mutex);
    FreeBlock*& head = lists[static_cast<std::size_t>(size_class)];
    last->next = head;
    head = first;
  }
  void clear() noexcept {
    const std::lock_guard lock(mutex);
    for (int c = 0; c < kClasses; ++c) {
      give_back(std::exchange(lists[static_cast<std::size_t>(c)], nullptr), c);
    }
    idle = 0;
    most = kCached ? std::max(kKeptIdle, used) : 0;
  }
};

SharedCache& shared_cache() {
  static auto* cache = new SharedCache;  // outlives every thread and every static tensor
  return *cache;
}

struct ThreadCache {
  struct List {
    FreeBlock* head = nullptr;
    std::uint32_t count = 0;
  };
  std::array<List, kClasses> lists{};

  ~ThreadCache();
};

// Plain flags outlive the cache object during thread exit.
constinit thread_local ThreadCache* thread_cache = nullptr;
constinit thread_local bool thread_cache_gone = false;

ThreadCache::~ThreadCache() {
  thread_cache = nullptr;
  thread_cache_gone = true;
  for (int c = 0; c < kClasses; ++c) {
    if (FreeBlock* first = lists[static_cast<std::size_t>(c)].head; first != nullptr) {
      FreeBlock* last = first;
      while (last->next != nullptr) {
        last = last->next;
      }
      shared_cache().put(first, last, c);
    }
  }
}

[[gnu::noinline]] ThreadCache* make_thread_cache() {
  if (thread_cache_gone) {
    return nullptr;
  }
  static thread_local ThreadCache cache;
  return thread_cache = &cache;
}

ThreadCache* local_cache() { return thread_cache != nullptr ? thread_cache : make_thread_cache(); }

[[gnu::noinline]] void* allocate_slow(std::size_t bytes, int size_class) {
  if (void* block = shared_cache().take(size_class); block != nullptr) {
    return block;
  }
  const std::size_t size = class_bytes(size_class);
  const bool is_huge = size >= core::kHugeBlock && size % core::kHugePage == 0;
  const std::size_t alignment = is_huge ? core::kHugePage : kAlignment;
  const SpanScope traced({.name = "allocation", .bytes = static_cast<std::int64_t>(size)});
  void* memory = std::aligned_alloc(alignment, size);
  if (memory == nullptr) {
    empty_cpu_cache();
    memory = std::aligned_alloc(alignment, size);
  }
  if (memory == nullptr && size > kThreadBlock) {
    shared_cache().put_large(nullptr, size_class);
  }
  if (memory == nullptr) {  // only then: free_memory() reads files, and may throw
    fail<OutOfMemory>(
        "out of host memory: asked for {} bytes; {} bytes are free, this program's tensors hold {}. Use a "
        "smaller batch or model, or free tensors first [TDM-E114]",
        bytes, core::free_memory(), system_bytes.load());
  }
  if (is_huge) {
    core::use_huge_pages(memory, size);
  }
  constexpr std::size_t kMostPopulated = std::size_t{256} << 20;  // more may be meant to be filled bit by bit
  if (populating_listeners.load(std::memory_order_relaxed) > 0 && bytes <= kMostPopulated) {
    core::populate(memory, bytes);
  }
  system_bytes.fetch_add(size, std::memory_order_relaxed);
  system_allocations.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

}  // namespace

void* cpu_allocate(std::size_t bytes) {
  check<OutOfMemory>(bytes <= kLargest, "out of host memory: asked for {} bytes, more than any machine has [TDM-E114]",
                     bytes);
  const int size_class = class_of(bytes);
  if (kCached && bytes <= kThreadBlock) {
    if (ThreadCache* cache = local_cache(); cache != nullptr) {
      auto& list = cache->lists[static_cast<std::size_t>(size_class)];
      if (FreeBlock* block = list.head; block != nullptr) {
        list.head = block->next;
        --list.count;
        return block;
      }
    }
  }
  return allocate_slow(bytes, size_class);
}

void cpu_free(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) {
    return;
  }
  const int size_class = class_of(bytes);
  auto* block = static_cast<FreeBlock*>(memory);
  if (class_bytes(size_class) > kThreadBlock) {
    shared_cache().put_large(block, size_class);
    return;
  }
  if (!kCached) {
    block->next = nullptr;
    give_back(block, size_class);
    return;
  }
  if (bytes <= kThreadBlock) {
    if (ThreadCache* cache = local_cache(); cache != nullptr) {
      auto& list = cache->lists[static_cast<std::size_t>(size_class)];
      if (list.count * class_bytes(size_class) < kThreadBytesPerClass) {
        block->next = list.head;
        list.head = block;
        ++list.count;
        return;
      }
    }
  }
  shared_cache().put(block, block, size_class);
}

}  // namespace detail

MemoryStats cpu_memory_stats() noexcept {
  return {detail::system_bytes.load(std::memory_order_relaxed),
          detail::system_allocations.load(std::memory_order_relaxed)};
}

void empty_cpu_cache() noexcept {
  if (detail::thread_cache != nullptr) {
    for (int c = 0; c < detail::kClasses; ++c) {
      auto& list = detail::thread_cache->lists[static_cast<std::size_t>(c)];
      detail::give_back(std::exchange(list.head, nullptr), c);
      list.count = 0;
    }
  }
  detail::shared_cache().clear();
}

}  // namespace tandem::inline v0
