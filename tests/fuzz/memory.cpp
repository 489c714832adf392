#include "fuzz/memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TANDEM_COUNTS_MEMORY 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define TANDEM_COUNTS_MEMORY 1
#endif

#ifdef TANDEM_COUNTS_MEMORY
// Declared as in <sanitizer/allocator_interface.h>, which GCC does not install.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                              void (*on_free)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void* memory);
}
#endif

namespace tandem::fuzz {

namespace {

// Signed, because memory allocated before may be freed while counting.
thread_local bool counting = false;
thread_local std::ptrdiff_t live = 0;
thread_local std::ptrdiff_t most = 0;

#ifdef TANDEM_COUNTS_MEMORY
void on_malloc(const volatile void*, std::size_t bytes) {
  if (counting) {
    live += static_cast<std::ptrdiff_t>(bytes);
    most = std::max(most, live);
  }
}

void on_free(const volatile void* memory) {
  if (counting && memory != nullptr) {
    live -= static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(memory));
  }
}

[[maybe_unused]] const int installed = [] {
  if (__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) == 0) {
    std::abort();
  }
  return 0;
}();
#endif

}  // namespace

MemoryWatch::MemoryWatch() {
  live = 0;
  most = 0;
  counting = true;
}

MemoryWatch::~MemoryWatch() { counting = false; }

bool MemoryWatch::counts() {
#ifdef TANDEM_COUNTS_MEMORY
  return true;
#else
  return false;
#endif
}

std::size_t MemoryWatch::peak() const { return static_cast<std::size_t>(most); }

}  // namespace tandem::fuzz
