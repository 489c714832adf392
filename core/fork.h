#pragma once

#include <mutex>

#include <tandem/core/export.h>

// Internal: makes a forked child consistent. The child has only the forking thread and a copy of the memory: a lock
// that another thread held stays locked forever, and shared lists still contain threads that do not exist in the child.

namespace tandem::inline v0::core {

/// A mutex that no thread holds while the process forks, so a child can lock it and finds the guarded data complete.
/// Use it for every mutex that threads share beyond a single call.
class TANDEM_API ForkSafeMutex : public std::mutex {
 public:
  ForkSafeMutex();
  ~ForkSafeMutex();

  void lock();
  void unlock();
};

/// Registers `action`: every child forked after this call runs it before fork() returns in the child. Actions forget
/// the threads that the child does not have.
TANDEM_API void in_forked_child(void (*action)());

}  // namespace tandem::inline v0::core
