// Compares a training step with the time that its arithmetic takes: the engine and plain loops run in one process, on
// the same numbers, in alternating blocks.

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/isa.h>
#include <tandem/core/thread_pool.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "step/measure.h"
#include "step/nets.h"
#include "step/options.h"
#include "step/step.h"

namespace {

using namespace bench;

struct Options {
  std::string model = "784-512-512-10";
  std::string loss = "ce";
  std::int64_t batch = 128;
  std::string optimizer = "adam";
  double momentum = 0;
  double lr = 0;  // 0: the optimizer's default
  std::string precision = "highest";
  int threads = 1;
  std::string mode = "eager";
  std::int64_t blocks = 30;
  double block_ms = 20;
  std::int64_t check_steps = 50;
  std::string folder;
  bool json = false;
};

std::vector<std::string> mode_names() {
  std::vector<std::string> names;
  for (const Mode& mode : modes()) {
    names.emplace_back(mode.name);
  }
  return names;
}

std::vector<std::string> net_names() {
  std::vector<std::string> names;
  for (const Net& net : nets()) {
    names.push_back(net.name);
  }
  return names;
}

void add_options(CLI::App& app, Options& options) {
  add_model_option(app, options.model, net_names());
  cli::add_choice(app, "--loss", "ce (classes) or mse", options.loss, {"ce", "mse"});
  cli::add_whole<std::int64_t>(app, "--batch", "Rows in the batch", options.batch, 1, 1'000'000);
  cli::add_choice(app, "--optimizer", "sgd or adam", options.optimizer, {"sgd", "adam"});
  cli::add_number(app, "--momentum", "M", "Momentum of sgd", options.momentum, 0, 1);
  cli::add_number(app, "--lr", "RATE", "Learning rate; 0: 1e-3 for sgd, 1e-4 for adam", options.lr, 0,
                  std::numeric_limits<double>::infinity());
  cli::add_choice(app, "--precision",
                  "Precision of the engine's f32 products; medium has bf16 factors where the processor multiplies them",
                  options.precision, {"highest", "medium"});
  cli::add_whole(app, "--threads", "Compute threads", options.threads, 1, 256);
  cli::add_choice(app, "--mode", "How the engine takes the step", options.mode, mode_names());
  cli::add_whole<std::int64_t>(app, "--blocks", "Pairs of blocks to time", options.blocks, 2, 100'000);
  cli::add_number(app, "--block-ms", "MS", "Length of a block; one step is the least", options.block_ms, 0, 60'000);
  cli::add_whole<std::int64_t>(app, "--check-steps", "Steps after which the losses are compared", options.check_steps,
                               1, 1'000'000);
  cli::add_path(app, "--export", "Write data and weights there as NPY files", options.folder);
  app.add_flag("--json", options.json, "Print one JSON object instead of a table");
  app.footer(
      "Examples:\n"
      "  step_bench --model 10-1 --loss mse --batch 32 --optimizer sgd\n"
      "  step_bench --model 784-512-512-10 --batch 128 --threads 2 --json\n"
      "  step_bench --model 512-4096-100 --batch 256 --optimizer sgd --momentum 0.9\n"
      "  step_bench --model 784-512-512-10 --mode captured --precision medium\n"
      "  step_bench --model lenet --batch 64 --optimizer sgd --mode captured");
}

Spec spec_of(const Options& options) {
  const Rule rule = options.optimizer == "adam" ? Rule::adam : Rule::sgd;
  return {.net = find_net(options.model) != nullptr ? options.model : "",
          .sizes = parse_sizes(options.model),
          .loss = options.loss == "mse" ? Loss::mse : Loss::cross_entropy,
          .batch = options.batch,
          .rule = rule,
          .momentum = options.momentum,
          .lr = options.lr > 0       ? options.lr
                : rule == Rule::adam ? 1e-4
                                     : 1e-3,
          .precision = options.precision};
}

// Whether the engine rounds the factors of products.
bool is_in_bf16(const std::string& precision) { return precision == "medium" && tandem::core::has_bf16_products(); }

// Speed without equal numbers would be a bug. Adam divides by the gradient's magnitude: a gradient that is all rounding
// error gives a step that is, too.
void require_equal(const Options& options, double loss, const char* other, double other_loss) {
  const double tolerance = is_in_bf16(options.precision) ? 2e-2 : options.optimizer == "adam" ? 1e-4 : 1e-5;
  if (!(std::abs(loss - other_loss) <= tolerance * std::abs(other_loss))) {
    throw tandem::ValueError(fmt::format(
        "after {} steps the loss in mode {} is {:.9g} and that of {} {:.9g}: expected the same to {}. One of the two "
        "does not do what it is timed for",
        options.check_steps, options.mode, loss, other, other_loss, tolerance));
  }
}

void print_table(const Options& options, const Spec& spec, const Pairs& pairs, double loss) {
  const auto [low, high] = median_interval(pairs.ratios);
  fmt::print("{}, {}, batch {}, {}{}, lr {}, precision {}; {} thread{}, {}\n", options.model, options.loss,
             options.batch, options.optimizer,
             spec.momentum != 0 ? fmt::format(" with momentum {}", spec.momentum) : "", spec.lr, spec.precision,
             options.threads, options.threads == 1 ? "" : "s", tandem::core::to_string(tandem::core::isa()));
  fmt::print("{:<10}{:>12.2f} us per step\n", options.mode, median(pairs.step_us));
  fmt::print("{:<10}{:>12.2f} us per step\n", "floor", median(pairs.floor_us));
  fmt::print("{:<10}{:>12.3f} (95 %: {:.3f} to {:.3f})\n", "ratio", median(pairs.ratios), low, high);
  fmt::print("{:<10}{:>12.6f} after {} steps, both\n", "loss", loss, options.check_steps);
  fmt::print("{} pairs of blocks of {} steps, {} of them disturbed by other programs; {} left out\n",
             pairs.ratios.size(), pairs.steps_per_block, pairs.disturbed, pairs.left_out);
}

tandem::telemetry::Fields result_of(const Options& options, const Spec& spec, const Pairs& pairs, double loss,
                                    double floor_loss) {
  const auto [low, high] = median_interval(pairs.ratios);
  return {{"engine", "tandem"},
          {"mode", options.mode},
          {"model", options.model},
          {"loss", options.loss},
          {"batch", options.batch},
          {"optimizer", options.optimizer},
          {"momentum", spec.momentum},
          {"lr", spec.lr},
          {"precision", spec.precision},
          {"products", is_in_bf16(spec.precision) ? "bf16" : "f32"},
          {"threads", std::int64_t{options.threads}},
          {"us_per_step", median(pairs.step_us)},
          {"floor_us", median(pairs.floor_us)},
          {"ratio", median(pairs.ratios)},
          {"interval", std::vector<double>{low, high}},
          {"clock", options.threads == 1 ? "cpu" : "wall"},
          {"blocks", std::int64_t{std::ssize(pairs.ratios)}},
          {"disturbed", pairs.disturbed},
          {"left_out", pairs.left_out},
          {"steps_per_block", pairs.steps_per_block},
          {"check_steps", options.check_steps},
          {"loss_after_steps", loss},
          {"floor_loss_after_steps", floor_loss},
          {"isa", tandem::core::to_string(tandem::core::isa())},
          {"cpu", cli::cpu_model()}};
}

int step_bench(int argc, char** argv) {
  Options options;
  CLI::App app("Times a training step against the same step as plain loops.", "step_bench");
  add_options(app, options);
  Spec spec;
  app.parse_complete_callback([&] {
    spec = spec_of(options);
    if (!spec.net.empty() && spec.loss == Loss::mse) {
      cli::refuse("--loss", "ce for a net, which classifies", options.loss);
    }
  });
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  tandem::set_num_threads(options.threads);
  const Problem problem = make_problem(spec);
  if (!options.folder.empty()) {
    export_problem(problem, options.folder);
    cli::narrate("data and weights are in " + options.folder);
  }
  std::unique_ptr<Step> step;
  for (const Mode& mode : modes()) {
    if (options.mode == mode.name) {
      step = mode.make(problem);
    }
  }
  // The floor of a net has no loss to compare with; the eager step has.
  const bool is_net = !spec.net.empty();
  const std::unique_ptr<Step> floor = is_net ? make_net_floor(problem) : make_floor(problem);
  const std::unique_ptr<Step> other = is_net ? make_eager(problem) : nullptr;
  cli::narrate(fmt::format("comparing the losses of {} steps", options.check_steps));
  step->run(options.check_steps);
  Step& compared = is_net ? *other : *floor;
  compared.run(options.check_steps);
  const double loss = step->loss();
  const double floor_loss = compared.loss();
  require_equal(options, loss, is_net ? "eager steps" : "the floor", floor_loss);
  cli::narrate(fmt::format("timing {} pairs of blocks", options.blocks));
  const Pairs pairs = time_pairs(*step, *floor, options.blocks, options.block_ms * 1e-3);
  if (options.json) {
    cli::print_result_json(result_of(options, spec, pairs, loss, floor_loss));
  } else {
    print_table(options, spec, pairs, loss);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return cli::run_main(argc, argv, step_bench); }
