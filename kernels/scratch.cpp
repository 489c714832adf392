#include <tandem/kernels/scratch.h>

#include <algorithm>
#include <cstdlib>

#include <tandem/core/check.h>
#include <tandem/core/system_limits.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace tandem::inline v0::kernels {

namespace {
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFirstBlock = std::size_t{64} << 10;
// Gap after each allocation, so that AddressSanitizer sees a write past its end instead of letting it reach the next
// one.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kRedZone = 64;
#else
constexpr std::size_t kRedZone = 0;
#endif

void forbid([[maybe_unused]] std::byte* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(memory, bytes);
#endif
}
void permit([[maybe_unused]] std::byte* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(memory, bytes);
#endif
}
}  // namespace

#if defined(__SANITIZE_ADDRESS__)
void ScratchArena::close_rest() noexcept {
  for (std::size_t block = block_; block < blocks_.size(); ++block) {
    const std::size_t used = block == block_ ? used_ : 0;
    forbid(blocks_[block].memory.get() + used, blocks_[block].bytes - used);
  }
}
#endif

void ScratchArena::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

void* ScratchArena::allocate(std::size_t bytes) {
  check<OutOfMemory>(bytes <= kCeiling, "kernel workspace: asked for {} bytes, the ceiling is {}", bytes, kCeiling);
  const std::size_t wanted_bytes = bytes;
  bytes = std::min(kCeiling, (bytes + kAlignment - 1) / kAlignment * kAlignment + kRedZone);
  std::size_t block = block_;
  std::size_t used = used_;
  while (block < blocks_.size() && used + bytes > blocks_[block].bytes) {
    ++block;
    used = 0;
  }
  if (block == blocks_.size()) {
    if (total_ + bytes > kCeiling) {  // unused blocks were too small: they make room
      while (blocks_.size() > block_ + (used_ > 0 ? 1 : 0)) {
        total_ -= blocks_.back().bytes;
        blocks_.pop_back();
      }
      block = blocks_.size();
    }
    check<OutOfMemory>(total_ + bytes <= kCeiling, "kernel workspace: {} bytes more would pass the ceiling of {}",
                       bytes, kCeiling);
    const std::size_t wanted = std::max({bytes, kFirstBlock, blocks_.empty() ? 0 : 2 * blocks_.back().bytes});
    const std::size_t size = std::min(wanted, kCeiling - total_);
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
    if (memory == nullptr) {
      fail<OutOfMemory>("kernel workspace: the system has no {} bytes; {} are free [TDM-E114]", size,
                        core::free_memory());
    }
    blocks_.push_back({std::unique_ptr<std::byte, Free>(memory), size});
    forbid(memory, size);
    total_ += size;
  }
  block_ = block;
  used_ = used;
  std::byte* result = blocks_[block_].memory.get() + used_;
  permit(result, wanted_bytes);
  used_ += bytes;
  return result;
}

}  // namespace tandem::inline v0::kernels
