#pragma once

#include <cstddef>

// A separate stack on which a GPU thread runs until it has to wait. All fibers of a block belong to one OS thread.

namespace emulated_gpu::detail {

class Fiber {
 public:
  // `entry` must never return. It starts at the first resume().
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it suspends. Must not be called within a fiber.
  void resume();
  // Returns to the caller of resume() for the current fiber.
  static void suspend();
  // The fiber whose stack the caller runs on, or nullptr outside of fibers.
  static Fiber* current();
  // Drops the stack's content without running destructors. The next resume() starts again.
  void restart();

  // Whether `address` is below the stack of the fiber that this OS thread runs.
  static bool overflowed(const void* address);

 private:
  char* mapping_;  // the guard, followed by the stack
  void* context_ = nullptr;
  void (*entry_)();
  void* fake_stack_ = nullptr;  // for the address sanitizer
  void* tsan_fiber_ = nullptr;  // for the thread sanitizer

  static void start();
};

}  // namespace emulated_gpu::detail
