#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <tandem/telemetry/run_folder.h>

// Conventions of every program: results go to stdout, everything else to stderr. Exit codes: 0 success, 1 failure, 2
// wrong command line, 130 and 143 after SIGINT and SIGTERM.

namespace cli {

/// Writes a line to stderr. A failed write is ignored.
void narrate(const std::string& line);

/// User-supplied text as errors show it: on one line, and cut off after `most` bytes.
std::string shown(std::string_view text, std::size_t most = 80);

/// One JSON object on a line of its own on stdout; NaN and infinities become null.
void print_result_json(const tandem::telemetry::Fields& result);

/// The processor's name as the system reports it, or "unknown".
std::string cpu_model();

/// Runs `program` as the whole of main(). An exception becomes "error: <text>" on stderr and exit code 1. A failed
/// write of the output does too: a full disk must not look like success. If the program was started without one of its
/// standard streams, no file that it opens takes that descriptor.
int run_main(int argc, char** argv, int (*program)(int argc, char** argv));

}  // namespace cli
