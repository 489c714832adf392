#pragma once

#include <cstddef>
#include <latch>

namespace tandem::test {

/// Counts a latch down at the end of its scope. The scope may also end by an exception, so no waiter waits in vain.
class CountDown {
 public:
  explicit CountDown(std::latch& latch, std::ptrdiff_t by = 1) : latch_(latch), by_(by) {}
  ~CountDown() { latch_.count_down(by_); }
  CountDown(const CountDown&) = delete;
  CountDown& operator=(const CountDown&) = delete;

 private:
  std::latch& latch_;
  std::ptrdiff_t by_;
};

}  // namespace tandem::test
