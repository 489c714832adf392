#pragma once

#include <cstdint>

// Internal: threads that carry data while others compute.

namespace tandem::inline v0::parallel {

/// While it lives, this thread, and those that it makes, run soon after they wake, and for a short time, although cores
/// are busy: Linux lets a thread compute for milliseconds before one that came later, unless that asks for shorter
/// slices (EEVDF, Linux 6.12). Where the system knows no such thing, nothing happens.
class ShortSlice {
 public:
  ShortSlice() noexcept;
  ~ShortSlice();
  ShortSlice(const ShortSlice&) = delete;
  ShortSlice& operator=(const ShortSlice&) = delete;

 private:
  std::uint64_t before_ = 0;  // ns
};

}  // namespace tandem::inline v0::parallel
