#pragma once

#include <cstdint>
#include <mutex>

#include <tandem/core/export.h>

// Internal: the mutexes of the CUDA side, and the one order in which a thread may lock them. Two threads that lock two
// mutexes in different orders can wait for each other for ever, which no test finds unless they meet. Each mutex
// therefore has a place in the order, and debug builds (and the emulated GPU's) check every lock: a thread that locks a
// mutex while it holds one of the same or a later place ends the program with both names.

namespace tandem::inline v0::cuda {

/// In the order of locking: a thread that holds a mutex may lock those of later places.
enum class LockPlace : std::uint8_t {
  tuning,             // products, or convolutions, are measured one at a time
  capture,            // a stream is captured, or all streams are queried
  nccl_backend,       // calls in flight
  nccl_communicator,  // held while inside NCCL
  library_made,       // a cuBLASLt planner or cuDNN session is being made
  library,            // a planner's plans, a cuDNN handle
  plan_store,         // plans of all GPUs
  allocator_made,     // an allocator is being made
  allocator,          // a GPU's blocks, and its cache
  gpu_made,           // a GPU's state is being made
  streams_made,       // the list of a GPU's streams is being made
  streams,            // that list
  memory,             // page-locked memory, a block's streams, names and notes: nothing is locked inside
};

/// Checks that this thread may lock a mutex of that place, and notes that it holds it. Does nothing in release builds.
TANDEM_API void note_lock(LockPlace place) noexcept;
TANDEM_API void note_unlock(LockPlace place) noexcept;

/// A mutex with a place in the order. Mutex is any standard mutex.
template <LockPlace kPlace, class Mutex = std::mutex>
class OrderedMutex {
 public:
  void lock() {
    note_lock(kPlace);
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
    note_unlock(kPlace);
  }
  /// A lock that may fail cannot be waited for, but what is locked inside must have a later place all the same.
  bool try_lock() { return noted(mutex_.try_lock()); }
  template <class Duration>
  bool try_lock_for(const Duration& time) {
    return noted(mutex_.try_lock_for(time));
  }

 private:
  static bool noted(bool locked) noexcept {
    if (locked) {
      note_lock(kPlace);
    }
    return locked;
  }
  Mutex mutex_;
};

}  // namespace tandem::inline v0::cuda
