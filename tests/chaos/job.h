#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tandem::test {

/// Sanitizers make everything slower by about this factor.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kSlowness = 5;
#else
inline constexpr int kSlowness = 1;
#endif

/// A setting of the battery.
int number_from_environment(const char* name, int otherwise);

/// Nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
std::int64_t monotonic_ns();

/// The report of a rank (rank_program.cpp).
struct RankReport {
  std::optional<std::int64_t> started_ns;
  bool joined = false;
  bool done = false;
  std::string failed;                    // an error that is not a CommError
  std::optional<std::int64_t> error_ns;  // time of the error
  std::string fault;
  int blamed = -1;
  std::string text;
};

/// Runs `tandem run -n ranks program folder more` with a folder of its own. The destructor removes the processes and
/// the folder.
class Job {
 public:
  Job(int ranks, const std::vector<std::string>& launcher_options = {}, const std::string& more = "",
      const std::string& program = CHAOS_RANK);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t launcher() const noexcept { return launcher_; }
  const std::filesystem::path& folder() const noexcept { return folder_; }
  /// The running ranks, by their environment. A process that is not a rank yet is left out.
  std::map<int, pid_t> ranks() const;
  /// The launcher's status from waitpid(); std::nullopt if the launcher has not ended in time.
  std::optional<int> wait(std::chrono::milliseconds timeout);
  RankReport report(int rank) const;
  /// The output of the launcher and the ranks on stderr.
  std::string narration() const;
  /// Everything known about the job, for a failure message.
  std::string story() const;

 private:
  std::filesystem::path folder_;
  int size_;
  pid_t launcher_ = -1;
  std::optional<int> status_;
};

}  // namespace tandem::test
