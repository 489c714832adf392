#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include <tandem/core/cuda/ordered_mutex.h>

// Internal: one object per GPU.

namespace tandem::inline v0::cuda {

/// The largest number of GPUs that a process can use.
inline constexpr int kMostGpus = 64;

/// A T for each GPU, made at first use and kept until the process ends, because threads and static tensors may need it
/// until then. For static storage. kPlace is that of the mutex under which a T is made.
template <class T, LockPlace kPlace>
class PerGpu {
 public:
  /// The object of a GPU, or null before get() has made it.
  T* find(int gpu) const noexcept { return all_[static_cast<std::size_t>(gpu)].load(std::memory_order_acquire); }

  /// The object of a GPU. The first call makes it: make() returns a std::unique_ptr<T>. An exception from make()
  /// propagates, and the next call tries again.
  template <class Make>
  T& get(int gpu, Make&& make) {
    if (T* there = find(gpu); there != nullptr) [[likely]] {
      return *there;
    }
    const std::lock_guard lock(mutex_);
    if (T* there = find(gpu); there != nullptr) {
      return *there;
    }
    T* const made = make().release();
    all_[static_cast<std::size_t>(gpu)].store(made, std::memory_order_release);
    return *made;
  }

 private:
  OrderedMutex<kPlace> mutex_;
  std::array<std::atomic<T*>, kMostGpus> all_{};
};

}  // namespace tandem::inline v0::cuda
