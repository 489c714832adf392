#include <atomic>
#include <cstddef>
#include <cstdint>

#include "oracle.h"

// The functions that code compiled with -fsanitize=thread calls before each access to memory, and in place of atomic
// functions. The sanitizer's own library is not linked. Host code in .cu files calls them, too.

namespace emulated_gpu::detail {

namespace {

void touched(const void* address, std::size_t size, Access access, const void* site) {
  if (block_races != nullptr) {
    block_races->access(address, size, access, site);
  }
}

// An access to a volatile variable counts as atomic and relaxed, as on a GPU.
void touched_volatile(const void* address, std::size_t size, Access access, const void* site) {
  if (block_races != nullptr) {
    block_races->strong_access(address, size, access == Access::kStrongRead, access == Access::kStrongWrite, site);
  }
}

// Calls `change` with the cell. The emulated GPU's atomic functions are relaxed; host code may need more.
template <class T, class Change>
auto atomically(volatile T* address, bool loads, bool stores, const void* site, const Change& change) {
  T* const cell = const_cast<T*>(address);
  if (block_races != nullptr) {
    block_races->strong_access(cell, sizeof(T), loads, stores, site);
  }
  return change(std::atomic_ref<T>(*cell));
}

}  // namespace

}  // namespace emulated_gpu::detail

using emulated_gpu::detail::Access;
using emulated_gpu::detail::atomically;
using emulated_gpu::detail::touched;
using emulated_gpu::detail::touched_volatile;

#define SITE __builtin_return_address(0)

#define HOOKS_OF_SIZE(size)                                                                                        \
  void __tsan_read##size(void* address) { touched(address, size, Access::kRead, SITE); }                           \
  void __tsan_write##size(void* address) { touched(address, size, Access::kWrite, SITE); }                         \
  void __tsan_unaligned_read##size(void* address) { touched(address, size, Access::kRead, SITE); }                 \
  void __tsan_unaligned_write##size(void* address) { touched(address, size, Access::kWrite, SITE); }               \
  void __tsan_volatile_read##size(void* address) { touched_volatile(address, size, Access::kStrongRead, SITE); }   \
  void __tsan_volatile_write##size(void* address) { touched_volatile(address, size, Access::kStrongWrite, SITE); } \
  void __tsan_unaligned_volatile_read##size(void* address) {                                                       \
    touched_volatile(address, size, Access::kStrongRead, SITE);                                                    \
  }                                                                                                                \
  void __tsan_unaligned_volatile_write##size(void* address) {                                                      \
    touched_volatile(address, size, Access::kStrongWrite, SITE);                                                   \
  }

#define ATOMIC_CHANGE(bits, name, function)                                                                          \
  std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* address, std::uint##bits##_t value, \
                                                   int) {                                                            \
    return atomically(address, true, true, SITE, [value](auto cell) { return cell.function(value); });               \
  }

#define ATOMICS_OF_BITS(bits)                                                                                      \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* address, int) {               \
    return atomically(const_cast<volatile std::uint##bits##_t*>(address), true, false, SITE,                       \
                      [](auto cell) { return cell.load(); });                                                      \
  }                                                                                                                \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* address, std::uint##bits##_t value, int) {        \
    atomically(address, false, true, SITE, [value](auto cell) { cell.store(value); });                             \
  }                                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_strong(                                                              \
      volatile std::uint##bits##_t* address, std::uint##bits##_t* expected, std::uint##bits##_t value, int, int) { \
    return atomically(address, true, true, SITE,                                                                   \
                      [=](auto cell) { return cell.compare_exchange_strong(*expected, value); });                  \
  }                                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_weak(                                                                \
      volatile std::uint##bits##_t* address, std::uint##bits##_t* expected, std::uint##bits##_t value, int, int) { \
    return atomically(address, true, true, SITE,                                                                   \
                      [=](auto cell) { return cell.compare_exchange_strong(*expected, value); });                  \
  }                                                                                                                \
  ATOMIC_CHANGE(bits, exchange, exchange)                                                                          \
  ATOMIC_CHANGE(bits, fetch_add, fetch_add)                                                                        \
  ATOMIC_CHANGE(bits, fetch_sub, fetch_sub)                                                                        \
  ATOMIC_CHANGE(bits, fetch_and, fetch_and)                                                                        \
  ATOMIC_CHANGE(bits, fetch_or, fetch_or)                                                                          \
  ATOMIC_CHANGE(bits, fetch_xor, fetch_xor)

extern "C" {

HOOKS_OF_SIZE(1)
HOOKS_OF_SIZE(2)
HOOKS_OF_SIZE(4)
HOOKS_OF_SIZE(8)
HOOKS_OF_SIZE(16)
ATOMICS_OF_BITS(8)
ATOMICS_OF_BITS(16)
ATOMICS_OF_BITS(32)
ATOMICS_OF_BITS(64)

void __tsan_read_range(void* address, std::size_t size) { touched(address, size, Access::kRead, SITE); }
void __tsan_write_range(void* address, std::size_t size) { touched(address, size, Access::kWrite, SITE); }
void __tsan_vptr_update(void*, void*) {}
void __tsan_atomic_thread_fence(int) { std::atomic_thread_fence(std::memory_order_seq_cst); }
void __tsan_atomic_signal_fence(int) { std::atomic_signal_fence(std::memory_order_seq_cst); }
void __tsan_init() {}

}  // extern "C"
