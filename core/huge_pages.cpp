#include <tandem/core/huge_pages.h>

#include <cstdint>

#include <sys/mman.h>

namespace tandem::inline v0::core {

void use_huge_pages(void* block, std::size_t bytes) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t end = (address + bytes) / kHugePage * kHugePage;
  if (begin < end) {
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
}

}  // namespace tandem::inline v0::core
