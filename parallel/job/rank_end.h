#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <tandem/parallel/rendezvous/text.h>

// Internal: describes in words how ranks ended.

namespace tandem::inline v0::parallel {

struct AttemptResult;

/// One rank's end.
struct RankEnd {
  int rank = 0;          // in the job
  std::int64_t pid = 0;  // of its process
  int status = 0;        // from waitpid()
  double after = 0;      // seconds from its start
  std::string asked;     // the last signal that the launcher sent to end it: "SIGTERM"; empty: none
};

/// The number of the rank at the start of `text` ("rank 2 (pid ..."); -1 if the text begins otherwise.
int rank_in(const std::string& text);
/// `text` without the process id, which differs between attempts.
std::string without_pid(const std::string& text);
/// Like end_text(), for a rank that the launcher may have ended: "ended by the launcher's SIGTERM".
std::string how_it_ended(const RankEnd& end);
/// A shell's exit code for this status: the exit code, or 128 plus the signal's number.
int exit_code_of(int status);
/// Returns what the last lines of a program's stderr say of its end: the last error with its indented lines. If
/// no line says that it is an error, the last line stands for it. The result is empty if there are no lines.
std::string words_at_the_end(const std::deque<std::string>& lines);
/// The numbers as ranges: "0, 2-5".
std::string number_list(const std::vector<int>& numbers);
/// `text` as one line without control characters, cut after `most` bytes.
std::string one_line(const std::string& text, std::size_t most);

/// The launcher's final report, one screen at most: how the other ranks ended, the last lines of the culprit's stderr,
/// `remark` if there is one, and the cause as the very last line.
std::string failure_report(const AttemptResult& result, const std::string& remark);

}  // namespace tandem::inline v0::parallel
