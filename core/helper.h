#pragma once

#include <functional>

#include <tandem/core/export.h>

namespace tandem::inline v0::core {

/// A thread that runs one long task beside the caller and may block (the further devices of a backward pass). Unlike
/// chunks, tasks are guaranteed a thread each. Threads are kept for the next Helper. The caller's ThreadState is
/// carried over. join() rethrows what the task threw; the destructor joins and swallows. A forked child makes Helpers
/// of its own; of one that it finds at work join() throws Error.
class TANDEM_API Helper {
 public:
  explicit Helper(std::function<void()> task);
  ~Helper();
  Helper(Helper&&) noexcept;
  Helper& operator=(Helper&&) = delete;

  /// Waits for the task; rethrows what it threw.
  void join();

 private:
  struct Slot;
  Slot* slot_ = nullptr;
};

}  // namespace tandem::inline v0::core
