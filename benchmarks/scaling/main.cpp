// Measures the benefit of several devices: the same training step on one device and on more, in turn, and the time of
// its parts.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/cores.h>
#include <tandem/core/cuda.h>
#include <tandem/core/error.h>
#include <tandem/core/file.h>
#include <tandem/core/thread_pool.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "scaling/report.h"
#include "step/options.h"

namespace {

using namespace bench;
using namespace bench::scaling;

struct Options {
  std::string model = "784-512-512-10";
  std::string loss = "ce";
  std::int64_t batch = 256;
  std::string optimizer = "adam";
  std::string device = "cpu";
  int devices = 0;  // 0: all
  int threads_per_device = 1;
  std::string mode = "both";
  std::string parallel = "all";
  std::int64_t rounds = 10;
  double block_ms = 50;
  std::string json;
  std::string picture;
};

void add_options(CLI::App& app, Options& options) {
  add_model_option(app, options.model);
  cli::add_choice(app, "--loss", "ce (classes) or mse", options.loss, {"ce", "mse"});
  cli::add_whole<std::int64_t>(app, "--batch", "Rows: of all devices (strong), of each (weak)", options.batch, 1,
                               1'000'000);
  cli::add_choice(app, "--optimizer", "sgd or adam", options.optimizer, {"sgd", "adam"});
  cli::add_choice(app, "--device", "cpu (logical devices) or cuda", options.device, {"cpu", "cuda"});
  cli::add_whole(app, "--devices", "1, 2, 4, ... up to that many; 0: cores or GPUs", options.devices, 0, 64);
  cli::add_whole(app, "--threads", "Compute threads of each device", options.threads_per_device, 1, 256);
  cli::add_choice(app, "--mode", "strong, weak or both", options.mode, {"strong", "weak", "both"});
  cli::add_choice(app, "--parallel", "plain (threads alone), dp or all", options.parallel, {"plain", "dp", "all"});
  cli::add_whole<std::int64_t>(app, "--rounds", "How often each is timed", options.rounds, 2, 100'000);
  cli::add_number(app, "--block-ms", "MS", "Length of a block; one step is the least", options.block_ms, 0, 60'000);
  cli::add_path(app, "--json", "Write all numbers there", options.json);
  cli::add_path(app, "--picture", "Draw the curves there, as SVG", options.picture);
  app.footer(
      "Examples:\n"
      "  scaling_bench\n"
      "  scaling_bench --model 128-256-128-10 --batch 16 --optimizer sgd\n"
      "  scaling_bench --devices 4 --mode weak --json scaling.json\n"
      "  scaling_bench --device cuda --batch 8192 --picture scaling.svg");
}

int device_count(const Options& options, tandem::DeviceType type) {
  const int there = type == tandem::DeviceType::cuda ? tandem::cuda::device_count() : tandem::core::available_cores();
  if (type == tandem::DeviceType::cuda) {
    if (there == 0) {
      cli::refuse("--device", "cpu, since there is no GPU here", options.device);
    }
    if (options.devices > there) {
      cli::refuse("--devices", fmt::format("at most {}, the number of GPUs here", there),
                  std::to_string(options.devices));
    }
  }
  return options.devices > 0 ? options.devices : std::min(there, 64);
}

Settings settings_of(const Options& options) {
  const auto type = options.device == "cuda" ? tandem::DeviceType::cuda : tandem::DeviceType::cpu;
  // Evaluated outside the braces below: if an initialiser in braces throws, code by GCC 12 frees the members before it
  // twice.
  const int devices = device_count(options, type);
  // The learning rate is tiny: a usual rate would move the weights away from their start, and some ways take more steps
  // than others.
  Settings settings{.model = options.model,
                    .spec = {.sizes = parse_sizes(options.model),
                             .loss = options.loss == "mse" ? Loss::mse : Loss::cross_entropy,
                             .batch = options.batch,
                             .rule = options.optimizer == "adam" ? Rule::adam : Rule::sgd,
                             .lr = 1e-9},
                    .devices = devices,
                    .threads_per_device = options.threads_per_device,
                    .strong = options.mode != "weak",
                    .weak = options.mode != "strong",
                    .plain = options.parallel != "dp",
                    .data_parallel = options.parallel != "plain",
                    .type = type,
                    .rounds = options.rounds};
  if (settings.strong && options.batch < settings.devices) {
    cli::refuse("--batch", fmt::format("at least a row for each of the {} devices", settings.devices),
                std::to_string(options.batch));
  }
  if (settings.devices * settings.threads_per_device > 256) {
    cli::refuse(
        "--threads",
        fmt::format("at most {}, as {} devices may have 256 together", 256 / settings.devices, settings.devices),
        std::to_string(options.threads_per_device));
  }
  return settings;
}

// Speed without equal numbers would be a bug, so compare gradients and losses first.
double worst_difference(const Settings& settings, const std::vector<Way>& ways) {
  double worst = 0;
  for (const Way& way : ways) {
    if (way.parallel == Parallel::plain) {
      continue;
    }
    tandem::set_num_threads(way.threads);
    const auto step = make_step(settings.spec, way, settings.type);
    const auto plain = make_step(settings.spec, {.threads = way.threads, .batch = way.batch}, settings.type);
    const double found = difference(*step, *plain);
    // One device must compute exactly the same; several add f32 numbers in another order.
    const double tolerance = way.devices == 1 ? 0 : 1e-5;
    if (!(found <= tolerance)) {
      throw tandem::ValueError(fmt::format(
          "{} on {} devices, batch {}: gradients or loss are {:.3g} away from one device's, expected at most {}: the "
          "two do not compute the same, so their times say nothing",
          name_of(way.parallel), way.devices, way.batch, found, tolerance));
    }
    worst = std::max(worst, found);
  }
  return worst;
}

int scaling_bench(int argc, char** argv) {
  Options options;
  Report report;
  const Settings& settings = report.settings;
  CLI::App app("Times a training step on one device and on more.", "scaling_bench");
  add_options(app, options);
  app.parse_complete_callback([&] { report.settings = settings_of(options); });
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  ::setenv("TANDEM_CPU_DEVICES", "64", 0);  // the limit of --devices
  report.plan = plan_of(settings);
  cli::narrate("comparing gradients");
  report.worst_difference = worst_difference(settings, report.plan.ways);
  cli::narrate(fmt::format(
      "timing {} ways in {} rounds, {:.0f} s at least", report.plan.ways.size(), options.rounds,
      1.25e-3 * options.block_ms * static_cast<double>(report.plan.ways.size()) * static_cast<double>(options.rounds)));
  report.measured = measure(
      settings.spec, report.plan.ways, settings.type, options.rounds, options.block_ms * 1e-3, [&](std::int64_t round) {
        cli::narrate(round < options.rounds ? fmt::format("round {} of {}", round + 1, options.rounds)
                                            : fmt::format("round {}, as others were disturbed", round + 1));
      });
  fmt::print("{}", report.table());
  fmt::print(
      "\ngradients differ from one device's by {:.1e} at most; {} rounds, {} of them disturbed by other programs; {} "
      "left out\n",
      report.worst_difference, settings.rounds, report.measured.disturbed, report.measured.left_out);
  fmt::print("{}\n", report.reason());
  if (!options.json.empty()) {
    tandem::core::replace_file(options.json, {report.json()});
  }
  if (!options.picture.empty()) {
    report.draw(options.picture);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return cli::run_main(argc, argv, scaling_bench); }
