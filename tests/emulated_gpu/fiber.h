#pragma once

#include <cstddef>

// A stack of its own on which a GPU thread runs until it has to wait. All fibers of a block belong to one OS thread.

namespace emulated_gpu::detail {

class Fiber {
 public:
  // `entry` must never return; it runs at the first resume().
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it suspends. Not from within a fiber.
  void resume();
  // Back to whoever resumed the fiber that this is called on.
  static void suspend();
  // The fiber whose stack the caller is on, nullptr outside of fibers.
  static Fiber* current();
  // Forgets what lies on the stack, without destructors: the next resume() begins again.
  void restart();

  // Whether `address` is below the stack of the fiber that runs on this OS thread.
  static bool overflowed(const void* address);

 private:
  char* mapping_;  // the guard, then the stack
  void* context_ = nullptr;
  void (*entry_)();
  void* fake_stack_ = nullptr;  // the address sanitizer's
  void* tsan_fiber_ = nullptr;  // the thread sanitizer's

  static void start();
};

}  // namespace emulated_gpu::detail
