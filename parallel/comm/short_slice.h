#pragma once

#include <cstdint>

// Internal: scheduling of threads that carry data while other threads compute.

namespace tandem::inline v0::parallel {

/// While this object lives, this thread and the threads it starts run soon after they wake, even on busy cores, and for
/// a short time each. By default Linux lets a running thread compute for milliseconds before a thread that wakes later,
/// unless the latter asks for shorter slices (EEVDF, Linux 6.12). Has no effect on systems without this feature.
class ShortSlice {
 public:
  ShortSlice() noexcept;
  ~ShortSlice();
  ShortSlice(const ShortSlice&) = delete;
  ShortSlice& operator=(const ShortSlice&) = delete;

 private:
  std::uint64_t before_ = 0;  // previous slice in ns
};

}  // namespace tandem::inline v0::parallel
