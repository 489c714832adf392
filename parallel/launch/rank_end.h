#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

// Internal: how ranks ended, in words.

namespace tandem::inline v0::parallel {

/// One rank's end.
struct RankEnd {
  int rank = 0;          // in the job
  std::int64_t pid = 0;  // of its process
  int status = 0;        // as waitpid() has it
  double after = 0;      // seconds from its start
  std::string asked;     // the last signal that the launcher sent to end it: "SIGTERM"; empty: none
};

/// This host's name for itself.
std::string own_host_name();
/// "rank 2 (pid 4711 on node7)".
std::string rank_name(int rank, std::int64_t pid, const std::string& host);
/// The number in a text that begins so; -1: it does not.
int rank_in(const std::string& text);
/// `text` without the number of the process in it, which differs between attempts.
std::string without_pid(const std::string& text);
/// "was killed by signal 9 (SIGKILL)", "ended with exit code 3".
std::string end_text(int status);
/// The same of a rank that the launcher may have ended: "ended by the launcher's SIGTERM".
std::string how_it_ended(const RankEnd& end);
/// What a shell makes of it: the exit code, or 128 and the signal's number.
int exit_code_of(int status);
/// "0, 2-5".
std::string number_list(const std::vector<int>& numbers);
/// On one line, without control characters, and not all of a long text.
std::string one_line(const std::string& text, std::size_t most);

/// The last words of a launcher, one screen at most: what the others did, the last lines of the one to blame on stderr,
/// and at the very end `cause`. `place`: where all of its stderr is; empty: nowhere.
std::string failure_report(const std::string& cause, double after, int culprit, const std::vector<RankEnd>& ends,
                           const std::deque<std::string>& last_lines, const std::string& place,
                           const std::string& remark);

}  // namespace tandem::inline v0::parallel
