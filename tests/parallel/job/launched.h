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

/// A launcher that runs beside the test. The end of the scope kills it.
class Launched {
 public:
  /// `together` sends stdout and stderr to one file, as with 2>&1.
  explicit Launched(const std::vector<std::string>& arguments, bool together = false,
                    const std::vector<std::string>& variables = {});
  ~Launched();
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Waits for the launcher's end, at most `limit`, and returns its output.
  Outcome wait(std::chrono::seconds limit = 60s);
  std::string out() const { return read_text(folder_.file("out")); }
  std::string err() const { return read_text(folder_.file(together_ ? "out" : "err")); }

 private:
  bool together_;
  TempDir folder_;
  pid_t pid_ = -1;
};

/// Runs {"run", arguments...} to its end.
Outcome run_ranks(const std::vector<std::string>& arguments, const std::vector<std::string>& variables = {});
/// Runs {"run", "-n", ranks, "sh", "-c", script} to its end.
Outcome run_script(int ranks, const std::string& script, const std::vector<std::string>& flags = {});
/// A script line that waits until `file` has content.
std::string until_written(const std::string& file);
/// A script line that waits until `file` exists, the process whose id is in it has ended, and the launcher has noticed
/// the end. Until then the process is a zombie, which kill still finds.
std::string until_noticed_end(const std::string& file);

/// Polls until `there` is true or `limit` has passed.
bool eventually(const std::function<bool()>& there, std::chrono::milliseconds limit = 20s);
/// Waits until the file has content and returns the number in it.
pid_t pid_in(const std::string& path);
/// The state letter of /proc: 'R', 'S', 'T' for a stopped process, ...
char state_of(pid_t pid);
/// The processes, without zombies, whose command line contains `text`.
std::vector<pid_t> processes_with(const std::string& text);
double seconds_of(const std::function<void()>& body);
std::string host_name();

}  // namespace tandem::test
