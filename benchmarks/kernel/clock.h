#pragma once

#include <cstdint>

#include <time.h>

namespace bench::kernel {

/// Seconds of processor time that this thread has used.
inline double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Seconds of `calls` calls of `body`.
template <class Body>
double seconds_of(std::int64_t calls, Body&& body) {
  const double begin = thread_seconds();
  for (std::int64_t i = 0; i < calls; ++i) {
    body();
    asm volatile("" : : : "memory");
  }
  return thread_seconds() - begin;
}

}  // namespace bench::kernel
