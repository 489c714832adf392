#pragma once

#include <filesystem>
#include <fstream>
#include <system_error>

#include <time.h>

// Timing shared by step_bench and its peers: one clock and one measure of disturbance. Independent of tandem.

namespace bench {

/// Seconds. With one thread, processor time equals the time of the step and excludes other programs.
inline double now(bool one_thread) {
  timespec time{};
  ::clock_gettime(one_thread ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Total time that this process's threads have waited for a core. A block during which it grew was disturbed. 0 if the
/// system does not report it.
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
