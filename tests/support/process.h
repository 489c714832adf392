#pragma once

#include <string>
#include <vector>

// Runs a program the way a user does, and collects its output and exit status.

namespace tandem::test {

struct Outcome {
  int exit_code = -1;  ///< -1 if a signal ended the program
  int signal = 0;
  std::string out;
  std::string err;
};

/// The destination of a program's output.
enum class Stream {
  captured,
  closed,       ///< closed, as with `>&-`
  broken_pipe,  ///< a pipe without a reader
};

/// Runs `program` in `folder` to its end, or kills it (SIGALRM) after two minutes.
Outcome run_program(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder,
                    Stream out = Stream::captured, Stream err = Stream::captured);

/// The lines of a text, without line ends.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace tandem::test
