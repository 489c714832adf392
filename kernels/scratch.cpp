#include <tandem/kernels/scratch.h>

#include <algorithm>
#include <cstdlib>

#include <tandem/core/check.h>

namespace tandem::inline v0::kernels {

namespace {
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFirstBlock = std::size_t{64} << 10;
}  // namespace

void ScratchArena::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

void* ScratchArena::allocate(std::size_t bytes) {
  check<OutOfMemory>(bytes <= kCeiling, "kernel workspace: asked for {} bytes, the ceiling is {}", bytes, kCeiling);
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].bytes) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const std::size_t size = std::max({bytes, kFirstBlock, blocks_.empty() ? 0 : 2 * blocks_.back().bytes});
    check<OutOfMemory>(total_ + bytes <= kCeiling, "kernel workspace: {} bytes more would pass the ceiling of {}",
                       bytes, kCeiling);
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
    check<OutOfMemory>(memory != nullptr, "kernel workspace: the system has no {} bytes", size);
    blocks_.push_back({std::unique_ptr<std::byte, Free>(memory), size});
    total_ += size;
  }
  void* result = blocks_[block_].memory.get() + used_;
  used_ += bytes;
  return result;
}

}  // namespace tandem::inline v0::kernels
