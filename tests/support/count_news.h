#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

// Counts the allocations of the program and the library, except direct calls of malloc. This header replaces operator
// new: include it in exactly one source of a test program.

namespace tandem::test {

inline std::size_t ignored_bytes = 0;  // allocations of at most this size are not counted
inline std::atomic<std::uint64_t> news{0};

inline void* counted_or_null(std::size_t bytes) noexcept {
  news.fetch_add(bytes > ignored_bytes || ignored_bytes == 0 ? 1 : 0, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}

inline void* counted(std::size_t bytes) {
  void* memory = counted_or_null(bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace tandem::test

void* operator new(std::size_t bytes) { return tandem::test::counted(bytes); }
void* operator new[](std::size_t bytes) { return tandem::test::counted(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return tandem::test::counted_or_null(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return tandem::test::counted_or_null(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
