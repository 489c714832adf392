#pragma once

#include <cstddef>

namespace tandem::fuzz {

/// Counts what this thread allocates while it lives. Needs AddressSanitizer's allocator; without it the count is 0.
/// One at a time.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  /// Whether this build can count.
  static bool counts();
  /// The most bytes that were allocated at once.
  std::size_t peak() const;
};

}  // namespace tandem::fuzz
