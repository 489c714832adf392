#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tandem/telemetry/fields.h>

// The command line of the samples. Results go to stdout, everything else to stderr.
// Exit codes: 0 done, 1 failed, 2 wrong command line.

namespace example {

/// What every sample takes. A sample sets its own defaults before add_common_options().
struct CommonOptions {
  std::string data = {};                          ///< file or folder; empty: the sample's own choice
  std::int64_t epochs = 10;                       ///< >= 1
  std::int64_t batch_size = 64;                   ///< >= 1
  double lr = 1e-3;                               ///< learning rate: finite, > 0
  std::string optimizer = "adam";                 ///< adam, adamw or sgd
  std::vector<std::int64_t> hidden = {256, 128};  ///< sizes of the hidden layers, each >= 1; at least one
  std::string device = "cpu";                     ///< a device that exists here
  int threads = 0;                                ///< 0: all cores; at most 256
  std::uint64_t seed = 0;                         ///< at most 2^63 - 1, which config.json can hold
  std::string out = {};                           ///< run folder; empty: runs/<program>-<time>
  bool captured = false;                          ///< steps are recorded and replayed
  bool json = false;                              ///< the last line of stdout is one JSON object
  bool quiet = false;                             ///< no progress on stderr
};

/// Adds the flags of CommonOptions with their defaults. `data` says in --help what --data is. `options` must outlive
/// parse().
void add_common_options(CLI::App& app, CommonOptions& options, const std::string& data);

// Flags of a sample's own, with the same manners: the default in --help, and a wrong value is refused with what was
// expected. `target` holds the default and must outlive parse().
/// A finite number from `low` to `high`; infinity for `high` sets no limit.
void add_number(CLI::App& app, const char* flag, const char* type, const char* description, double& target, double low,
                double high);
/// One of `choices`.
void add_choice(CLI::App& app, const char* flag, const char* description, std::string& target,
                std::vector<std::string> choices);
/// Text that is not empty.
void add_text(CLI::App& app, const char* flag, const char* type, const char* description, std::string& target);

/// Parses, having added --help and --version. Returns the exit code when the program is to end: 0 after help
/// or version on stdout, 2 after one line on stderr that says what is wrong. When a flag comes twice, the last counts.
/// `app` needs a name; its footer is where the Examples section goes.
std::optional<int> parse(CLI::App& app, int argc, const char* const* argv);

/// Writes a line to stderr. That it cannot be written is no reason to fail.
void narrate(const std::string& line);

/// One JSON object on a line of its own on stdout; NaN and infinities become null.
void print_result_json(const tandem::telemetry::Fields& result);

/// Runs `program` as the whole of main(). What it throws becomes "error: <text>" on stderr and exit code 1, and so does
/// output that could not be written: a full disk must not look like success. Where the program was started without one
/// of its standard streams, no file that it opens takes that place.
int run_main(int argc, char** argv, int (*program)(int argc, char** argv));

}  // namespace example
