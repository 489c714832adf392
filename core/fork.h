#pragma once

#include <mutex>

#include <tandem/core/export.h>

// Internal: what makes a forked child whole. It has the forking thread alone, and memory as it was: a lock that another
// thread held stays locked for ever, and other threads are still written down as being there.

namespace tandem::inline v0::core {

/// A mutex that nobody holds while the process is forked: a child can lock it, and finds what it guards complete. For
/// every one that threads share beyond a single call.
class TANDEM_API ForkSafeMutex : public std::mutex {
 public:
  ForkSafeMutex();
  ~ForkSafeMutex();

  void lock();
  void unlock();
};

/// From here on every forked child calls `action` before its fork() returns: where one forgets the threads that it does
/// not have.
TANDEM_API void in_forked_child(void (*action)());

}  // namespace tandem::inline v0::core
