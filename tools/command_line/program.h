#pragma once

#include <string>
#include <string_view>

#include <tandem/telemetry/fields.h>

// How every program of ours talks: results go to stdout, everything else to stderr.
// Exit codes: 0 done, 1 failed, 2 wrong command line.

namespace cli {

/// Writes a line to stderr. That it cannot be written is no reason to fail.
void narrate(const std::string& line);

/// What a user gave, as errors show it: on one line, and not all of a long text.
std::string shown(std::string_view text);

/// One JSON object on a line of its own on stdout; NaN and infinities become null.
void print_result_json(const tandem::telemetry::Fields& result);

/// Runs `program` as the whole of main(). What it throws becomes "error: <text>" on stderr and exit code 1, and so does
/// output that could not be written: a full disk must not look like success. Where the program was started without one
/// of its standard streams, no file that it opens takes that place.
int run_main(int argc, char** argv, int (*program)(int argc, char** argv));

}  // namespace cli
