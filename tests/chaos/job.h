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

/// Nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
std::int64_t monotonic_ns();

/// What a rank wrote (rank_program.cpp).
struct RankReport {
  std::optional<std::int64_t> started_ns;
  bool joined = false;
  bool done = false;
  std::string failed;                    // an error that is no CommError
  std::optional<std::int64_t> error_ns;  // when it threw
  std::string fault;
  int blamed = -1;
  std::string text;
};

/// `tandem run -n ranks chaos_rank`, in a folder of its own. All of it is gone when this is.
class Job {
 public:
  Job(int ranks, const std::vector<std::string>& launcher_options = {}, const std::string& rounds = "");
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t launcher() const noexcept { return launcher_; }
  /// The ranks that are there now, by what their environment says. A process that is not yet one is left out.
  std::map<int, pid_t> ranks() const;
  /// The launcher's status as waitpid gives it; nothing if it has not ended in time.
  std::optional<int> wait(std::chrono::milliseconds timeout);
  RankReport report(int rank) const;
  /// What the launcher and the ranks said on stderr.
  std::string narration() const;
  /// Everything that is known, for a message.
  std::string story() const;

 private:
  std::filesystem::path folder_;
  int size_;
  pid_t launcher_ = -1;
  std::optional<int> status_;
};

}  // namespace tandem::test
