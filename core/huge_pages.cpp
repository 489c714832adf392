#include <tandem/core/huge_pages.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace tandem::inline v0::core {

namespace {

std::size_t page_size() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

// Gives the system `advice` on the pages that lie wholly in a block.
void advise_on_whole_pages(void* block, std::size_t bytes, std::size_t page, int advice) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::uintptr_t begin = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + bytes) / page * page;
  if (begin < end) {
    ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
  }
}

}  // namespace

void use_huge_pages(void* block, std::size_t bytes) noexcept {
  advise_on_whole_pages(block, bytes, kHugePage, MADV_HUGEPAGE);
}

void drop_pages(void* block, std::size_t bytes) noexcept {
  advise_on_whole_pages(block, bytes, page_size(), MADV_DONTNEED);
}

void populate(void* block, std::size_t bytes) noexcept {
#if defined(MADV_POPULATE_WRITE)
  advise_on_whole_pages(block, bytes, page_size(), MADV_POPULATE_WRITE);
#else
  constexpr int kPopulateWrite = 23;  // Linux 5.14; C libraries know the name later
  advise_on_whole_pages(block, bytes, page_size(), kPopulateWrite);
#endif
}

std::size_t resident_bytes(const void* block, std::size_t bytes) {
  const std::size_t page = page_size();
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::uintptr_t begin = address / page * page;
  const std::uintptr_t end = (address + bytes + page - 1) / page * page;
  std::vector<unsigned char> pages((end - begin) / page);
  if (pages.empty() || ::mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) != 0) {
    return bytes;
  }
  return page * static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char in) { return (in & 1) != 0; }));
}

}  // namespace tandem::inline v0::core
