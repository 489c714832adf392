#pragma once

#include <string>
#include <vector>

// Running a program as a user does, and what it leaves behind.

namespace tandem::test {

struct Outcome {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
};

/// Where a program's output goes: into the Outcome, or nowhere.
enum class Stream {
  captured,
  closed,       ///< as `>&-` leaves it
  broken_pipe,  ///< a pipe whose reader is gone
};

/// Runs `program` in `folder` to its end, or kills it (SIGALRM) after two minutes.
Outcome run_program(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder,
                    Stream out = Stream::captured, Stream err = Stream::captured);

/// The lines of a text, without their ends.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace tandem::test
