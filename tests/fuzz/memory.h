#pragma once

#include <cstddef>

namespace tandem::fuzz {

/// Counts this thread's allocations during its lifetime. Needs AddressSanitizer's allocator; without it the count is 0.
/// Only one may exist at a time.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  /// Whether this build can count.
  static bool counts();
  /// The largest number of bytes that were allocated at once.
  std::size_t peak() const;
};

}  // namespace tandem::fuzz
