#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "support/process.h"
#include "support/temp_dir.h"

// `tandem run` as a user starts it.

namespace tandem::test {

using namespace std::chrono_literals;

/// One that runs beside the test. It is killed at the end of the scope.
class Launched {
 public:
  /// `together`: stdout and stderr are one file, as behind 2>&1.
  explicit Launched(const std::vector<std::string>& arguments, bool together = false,
                    const std::vector<std::string>& variables = {});
  ~Launched();
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Waits for its end, at most `limit`; what it had written.
  Outcome wait(std::chrono::seconds limit = 60s);
  std::string out() const { return read_text(folder_.file("out")); }
  std::string err() const { return read_text(folder_.file(together_ ? "out" : "err")); }

 private:
  bool together_;
  TempDir folder_;
  pid_t pid_ = -1;
};

/// {"run", arguments...} to its end.
Outcome run_ranks(const std::vector<std::string>& arguments, const std::vector<std::string>& variables = {});
/// {"run", "-n", ranks, "sh", "-c", script}.
Outcome run_script(int ranks, const std::string& script, const std::vector<std::string>& flags = {});
/// For such a script: waits until there is something in `file`.
std::string until_written(const std::string& file);
/// For such a script: waits until the process whose number is in `file`, once it is there, has ended, and the launcher
/// has taken note of it: until then it is a zombie, which kill finds.
std::string until_noticed_end(const std::string& file);

/// Looks until `there` or `limit` has passed.
bool eventually(const std::function<bool()>& there, std::chrono::milliseconds limit = 20s);
/// The number in a file, once it is there and not empty.
pid_t pid_in(const std::string& path);
/// As in /proc: 'R', 'S', 'T' when it is stopped, ...
char state_of(pid_t pid);
/// Processes, not zombies, with `text` in their command line.
std::vector<pid_t> processes_with(const std::string& text);
double seconds_of(const std::function<void()>& body);
std::string host_name();

}  // namespace tandem::test
