#include "arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

#include <fmt/format.h>

#include "report.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emulated_gpu::detail {

namespace {

constexpr std::size_t kAlign = 256;
constexpr std::size_t kRedZone = 256;
constexpr std::size_t kPage = 64 << 10;  // a multiple of every machine's page size
constexpr unsigned char kNew = 0xFB;
constexpr unsigned char kFreed = 0xFD;

std::size_t round_up(std::size_t size, std::size_t multiple) { return (size + multiple - 1) / multiple * multiple; }

void poison([[maybe_unused]] const char* begin, [[maybe_unused]] std::size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(begin, size);
#endif
}

void unpoison([[maybe_unused]] const char* begin, [[maybe_unused]] std::size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(begin, size);
#endif
}

thread_local OpenRanges opened_here{};

}  // namespace

const OpenRanges& open_ranges() { return opened_here; }

void set_open_ranges(const OpenRanges& ranges) {
  for (std::size_t key = 0; key < ranges.size(); ++key) {
    if ((ranges[key] > 0) != (opened_here[key] > 0)) {
      pkey_set(static_cast<int>(key), ranges[key] > 0 ? 0 : PKEY_DISABLE_ACCESS);
    }
  }
  opened_here = ranges;
}

Arena::Arena(int device, std::size_t size)
    : device_(device), size_(round_up(size, kPage)), key_(pkey_alloc(0, PKEY_DISABLE_ACCESS)) {
  void* memory = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  base_ = static_cast<char*>(memory);
}

void* Arena::allocate(std::size_t size, void* pool) {
  if (size > size_) {
    return nullptr;
  }
  const std::size_t reserved = round_up(std::max<std::size_t>(size, 1), kAlign) + kRedZone;
  char* place = base_;
  for (const auto& [begin, allocation] : allocations_) {
    if (static_cast<std::size_t>(begin - place) >= reserved) {
      break;
    }
    place = begin + allocation.reserved;
  }
  const auto end = static_cast<std::size_t>(place - base_) + reserved;
  if (end > size_) {
    return nullptr;
  }
  use(std::max(end, used_));
  allocations_[place] = Allocation{size, reserved, pool};
  reserved_ += reserved;
  allocated_ += size;
  open();
  unpoison(place, reserved);
  std::memset(place + size, kFreed, reserved - size);
  poison(place + size, reserved - size);
  close();
  return place;
}

void Arena::spoil(void* address) {
  const Allocation& allocation = allocations_.at(static_cast<char*>(address));
  open();
  std::memset(address, kNew, allocation.size);
  close();
}

void Arena::release(void* address) {
  const auto found = allocations_.find(static_cast<char*>(address));
  char* begin = found->first;
  const Allocation& allocation = found->second;
  open();
  unpoison(begin, allocation.reserved);
  check_red_zone(begin, allocation);
  std::memset(begin, kFreed, allocation.reserved);
  poison(begin, allocation.reserved);
  close();
  reserved_ -= allocation.reserved;
  allocated_ -= allocation.size;
  allocations_.erase(found);
  std::size_t end = 0;
  if (!allocations_.empty()) {
    const auto& [last, its] = *allocations_.rbegin();
    end = static_cast<std::size_t>(last - base_) + its.reserved;
  }
  use(end);
}

// Without the address sanitizer, a write past the end is detected when the memory is freed.
void Arena::check_red_zone(const char* begin, const Allocation& allocation) const {
  for (std::size_t i = allocation.size; i < allocation.reserved; ++i) {
    if (static_cast<unsigned char>(begin[i]) != kFreed) {
      report_and_abort(fmt::format("somebody wrote {} bytes past the end of {} bytes of memory of GPU {}",
                                   i - allocation.size, allocation.size, device_));
    }
  }
}

void Arena::use(std::size_t end) {
  const std::size_t used = std::min(round_up(end, kPage), size_);
  if (used > used_) {
    poison(base_ + used_, used - used_);
    if (opened_ > 0 || key_ >= 0) {
      protect(base_ + used_, used - used_, PROT_READ | PROT_WRITE);
    }
  } else if (used < used_) {
    protect(base_ + used, used_ - used, PROT_NONE);
    madvise(base_ + used, used_ - used, MADV_DONTNEED);
  }
  used_ = used;
}

void Arena::protect(char* begin, std::size_t size, int access) const {
  if (key_ >= 0) {
    pkey_mprotect(begin, size, access, key_);
  } else {
    mprotect(begin, size, access);
  }
}

void Arena::open() {
  if (key_ >= 0) {
    if (opened_here[static_cast<std::size_t>(key_)]++ == 0) {
      pkey_set(key_, 0);
    }
  } else if (opened_++ == 0 && used_ > 0) {
    protect(base_, used_, PROT_READ | PROT_WRITE);
  }
}

void Arena::close() {
  if (key_ >= 0) {
    if (--opened_here[static_cast<std::size_t>(key_)] == 0) {
      pkey_set(key_, PKEY_DISABLE_ACCESS);
    }
  } else if (--opened_ == 0 && used_ > 0) {
    protect(base_, used_, PROT_NONE);
  }
}

bool Arena::contains(const void* address) const {
  const auto* byte = static_cast<const char*>(address);
  return byte >= base_ && byte < base_ + size_;
}

Allocation* Arena::find(const void* address, std::size_t size) {
  const auto* byte = static_cast<const char*>(address);
  const auto next = allocations_.upper_bound(const_cast<char*>(byte));
  if (next == allocations_.begin()) {
    return nullptr;
  }
  auto& [begin, allocation] = *std::prev(next);
  const auto offset = static_cast<std::size_t>(byte - begin);
  const bool inside = offset < std::max<std::size_t>(allocation.size, 1) && size <= allocation.size - offset;
  return inside ? &allocation : nullptr;
}

void* Arena::begin_of(const void* address) const {
  return std::prev(allocations_.upper_bound(static_cast<char*>(const_cast<void*>(address))))->first;
}

std::string Arena::describe(const void* address) const {
  const auto* byte = static_cast<const char*>(address);
  const auto next = allocations_.upper_bound(const_cast<char*>(byte));
  std::string text = fmt::format("memory of GPU {}, ", device_);
  if (next == allocations_.begin()) {
    return text + "which is not allocated";
  }
  const auto& [begin, allocation] = *std::prev(next);
  const auto offset = static_cast<std::size_t>(byte - begin);
  if (offset < allocation.size) {
    return text + fmt::format("byte {} of an allocation of {}", offset, allocation.size);
  }
  return text + fmt::format("{} bytes past the end of an allocation of {}", offset - allocation.size, allocation.size);
}

}  // namespace emulated_gpu::detail
