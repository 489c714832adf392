#pragma once

#include <filesystem>
#include <fstream>
#include <system_error>

#include <time.h>

// How step_bench and its peers measure: the same clock, the same sign of disturbance. Needs nothing of tandem.

namespace bench {

/// Seconds. With one thread the processor time is the time of the step, and other programs add nothing to it.
inline double now(bool one_thread) {
  timespec time{};
  ::clock_gettime(one_thread ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// How long this process's threads have waited for a core so far: a block in which that grew was disturbed. 0 where the
/// system does not say.
inline double waited_seconds() {
  double sum = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(task.path() / "schedstat");
    double ran = 0;
    double waited = 0;
    if (file >> ran >> waited) {
      sum += waited * 1e-9;
    }
  }
  return sum;
}

}  // namespace bench
