#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "command_line/command_line.h"
#include "command_line/program.h"

// The command line of the samples. tools/command_line has the conventions.

namespace example {

/// Options of every sample. A sample sets its own defaults before add_common_options().
struct CommonOptions {
  std::string data = {};                          ///< file or folder; empty: the sample's own choice
  std::int64_t epochs = 10;                       ///< >= 1
  std::int64_t batch_size = 64;                   ///< >= 1
  double lr = 1e-3;                               ///< learning rate: finite, > 0
  std::string optimizer = "adam";                 ///< adam, adamw or sgd
  std::vector<std::int64_t> hidden = {256, 128};  ///< sizes of the hidden layers, each >= 1; at least one
  std::string device = "cpu";                     ///< a device that exists here; the first of `devices`, if given
  std::string parallel = "none";                  ///< none; dp: replicas on `devices`; ddp: ranks
  std::vector<std::string> devices = {};          ///< must exist; empty: all GPUs with dp, chosen by `device` with ddp
  int ranks = 0;                                  ///< threads of this process with ddp; 0: set by the launcher
  int threads = 0;                                ///< 0: all cores; at most 256
  std::uint64_t seed = 0;                         ///< at most 2^63 - 1, which config.json can hold
  std::string out = {};                           ///< run folder; empty: runs/<program>-<time>
  std::string resume = {};                        ///< run folder of an earlier run that goes on; empty: none
  std::int64_t checkpoint_every = 500;            ///< steps between checkpoints; 0: at the end and at signals only
  std::vector<std::string> arguments = {};        ///< what a resumed run takes over
  std::string precision = "f32";                  ///< f32; bf16, f16: autocast in forward passes and losses
  std::string shard = "none";                     ///< none; optimizer, gradients, parameters: what ranks share out
  bool captured = false;                          ///< record steps and replay them
  bool report = false;                            ///< say where the time of the last epoch's steps went
  bool json = false;                              ///< print one JSON object as the last line of stdout
  bool quiet = false;                             ///< no progress on stderr
};

/// Adds the flags of CommonOptions with their defaults. `data` is the description of --data in --help. `options` must
/// outlive parse(). Without --parallel, ddp is chosen if --ranks is given or a launcher started several ranks.
void add_common_options(CLI::App& app, CommonOptions& options, const std::string& data);

/// Parses the command line like cli::parse(). With --resume, the arguments of that run come first.
std::optional<int> parse(CLI::App& app, CommonOptions& options, int argc, const char* const* argv);

/// Options of a sample that trains one model on the CPU and writes a run folder. An earlier run in that folder goes on.
struct PlainOptions {
  std::string data = {};         ///< folder; empty: the bundled data
  std::string out = {};          ///< run folder; empty: runs/<program>-<time>
  std::int64_t epochs = 10;      ///< >= 1
  std::int64_t batch_size = 64;  ///< >= 1
  double lr = 1e-3;              ///< learning rate, from 0 to 1
  std::int64_t seed = 0;         ///< >= 0
  int threads = 0;               ///< 0: all cores; at most 256
  bool json = false;             ///< print one JSON object as the last line of stdout
  bool quiet = false;            ///< no progress on stderr
};

/// Adds the flags of PlainOptions but --out and --json, see add_plain_options(). No `data`: no flag --data.
void add_learning_options(CLI::App& app, PlainOptions& options, const std::string& data, const std::string& lr);
/// Adds the flags of PlainOptions with their defaults. `data` and `lr` are the descriptions of --data and --lr in
/// --help; `app` has the program's name. `options` must outlive parse().
void add_plain_options(CLI::App& app, PlainOptions& options, const std::string& data, const std::string& lr);

/// Parses the command line like cli::parse() and then sets threads and seed.
std::optional<int> parse(CLI::App& app, PlainOptions& options, int argc, const char* const* argv);

// Makes the helpers of all programs available to the samples.
using cli::add_choice;
using cli::add_number;
using cli::add_path;
using cli::add_text;
using cli::add_value;
using cli::add_whole;
using cli::narrate;
using cli::print_result_json;
using cli::read_number;
using cli::read_whole;
using cli::refuse;
using cli::run_main;

}  // namespace example
