// Measures the benefit of DistributedDataParallel: a training step on many ranks, compared with one rank and with the
// least time that computing and exchanging need.

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/file.h>
#include <tandem/tandem.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "scaling/ddp/report.h"
#include "step/clock.h"
#include "step/measure.h"
#include "step/options.h"

namespace {

using namespace bench;
using namespace bench::ddp;
using tandem::parallel::ProcessGroup;

struct Options {
  std::string model = "784-512-512-10";
  std::string loss = "ce";
  std::int64_t batch = 128;
  std::string optimizer = "adam";
  int ranks = 2;
  int threads = 1;
  double bucket_mb = 0;
  std::int64_t rounds = 15;
  double block_ms = 50;
  std::string json;
};

void add_options(CLI::App& app, Options& options) {
  add_model_option(app, options.model);
  cli::add_choice(app, "--loss", "ce (classes) or mse", options.loss, {"ce", "mse"});
  cli::add_whole<std::int64_t>(app, "--batch", "Rows of each rank", options.batch, 1, 1'000'000);
  cli::add_choice(app, "--optimizer", "sgd or adam", options.optimizer, {"sgd", "adam"});
  cli::add_whole(app, "--ranks", "Threads of this process; not where tandem run has started it", options.ranks, 1, 64);
  cli::add_whole(app, "--threads", "Compute threads of each rank", options.threads, 1, 64);
  cli::add_number(app, "--bucket-mb", "MIB", "Of gradients that are reduced together; 0: DDP's choice",
                  options.bucket_mb, 0, 1e6);
  cli::add_whole<std::int64_t>(app, "--rounds", "How often each way is timed", options.rounds, 2, 100'000);
  cli::add_number(app, "--block-ms", "MS", "Length of a block; one step is the least", options.block_ms, 0, 60'000);
  cli::add_path(app, "--json", "Rank 0 writes all numbers there", options.json);
  app.footer(
      "Examples:\n"
      "  ddp_bench                                       two threads\n"
      "  tandem run -n 2 ddp_bench --json ddp.json       two processes\n"
      "  ddp_bench --model 128-256-128-10 --batch 8 --optimizer sgd");
}

Spec spec_of(const Options& options) {
  // The learning rate is tiny: a usual rate would move the weights away from their start, and some ways take more steps
  // than others.
  return {.sizes = parse_sizes(options.model),
          .loss = options.loss == "mse" ? Loss::mse : Loss::cross_entropy,
          .batch = options.batch,
          .rule = options.optimizer == "adam" ? Rule::adam : Rule::sgd,
          .lr = 1e-9};
}

// Measures on all ranks; the slowest rank counts.
class Rounds {
 public:
  Rounds(RankTraining& training, ProcessGroup& group, int threads)
      : training_(training), group_(group), threads_(threads) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }

  void choose_steps(double block_seconds) {
    for (std::size_t way = 0; way < kWays; ++way) {
      steps_[way] = 1;
      block(way);
      for (double seconds = 0; seconds < 0.3 * block_seconds;) {
        seconds = block(way)[0];
        const double more = seconds > 0 ? block_seconds / seconds : 2.0;
        steps_[way] = std::max<std::int64_t>(
            1, static_cast<std::int64_t>(static_cast<double>(steps_[way]) * std::min(more, 8.0)));
      }
    }
  }

  void run(Report& report) {
    std::ranges::shuffle(order_, random_);  // gives the same order on all ranks
    for (const std::size_t way : order_) {
      const std::vector<double> times = block(way);
      report.us[way].push_back(1e6 * times[0] / static_cast<double>(steps_[way]));
      report.waited[way].push_back(times[1] / times[0]);
    }
  }

 private:
  // Returns the seconds of a block, after a warm-up step, and the seconds that threads waited for a core. Maxima over
  // the ranks.
  std::vector<double> block(std::size_t index) {
    const Way way = static_cast<Way>(index);
    const bool alone = way == Way::one_rank || way == Way::one_part;
    // Ranks that are threads share a pool. A rank that computes alone would otherwise have all of it.
    if (group_.rank() == 0 || group_.backend() != "local") {
      tandem::set_num_threads(alone || group_.backend() != "local" ? threads_ : threads_ * group_.size());
    }
    group_.barrier();
    training_.run(way, 1);
    group_.barrier();
    const double waited = waited_seconds();
    const double start = now(false);
    training_.run(way, steps_[index]);
    const double seconds = now(false) - start;
    return largest({seconds, waited_seconds() - waited}, group_);
  }

  RankTraining& training_;
  ProcessGroup& group_;
  int threads_;
  std::array<std::int64_t, kWays> steps_{};
  std::array<std::size_t, kWays> order_{};
  std::minstd_rand random_{20};
};

void measure(const Options& options, ProcessGroup& group) {
  const auto narrate = [&](const std::string& line) {
    if (group.rank() == 0) {
      cli::narrate(line);
    }
  };
  tandem::parallel::DistributedOptions ddp_options{.process_group = &group};
  if (options.bucket_mb > 0) {
    ddp_options.bucket_cap_mb = options.bucket_mb;
  }
  const Spec spec = spec_of(options);
  RankTraining training(spec, group, ddp_options);
  Report report{.model = options.model,
                .spec = spec,
                .ranks = group.size(),
                .backend = std::string(group.backend()),
                .threads = options.threads,
                .us = {},
                .waited = {},
                .schedule = {}};
  report.difference = largest({training.difference()}, group)[0];
  // Speed without equal numbers would be a bug, so check the gradients first.
  if (!(report.difference <= 1e-5)) {
    throw tandem::ValueError(
        fmt::format("gradients are {:.3g} away from one device's, expected at most 1e-5: the two do "
                    "not compute the same, so their times say nothing",
                    report.difference));
  }
  Rounds rounds(training, group, options.threads);
  rounds.choose_steps(options.block_ms * 1e-3);
  for (std::int64_t round = 0; round < options.rounds; ++round) {
    narrate(fmt::format("round {} of {}", round + 1, options.rounds));
    rounds.run(report);
  }
  narrate("measuring the exchange");
  report.schedule = measure_schedule(training, group, 51);
  if (group.rank() == 0) {
    fmt::print("{}", report.text());
    if (!options.json.empty()) {
      tandem::core::replace_file(options.json, {report.json()});
    }
  }
}

int ddp_bench(int argc, char** argv) {
  Options options;
  CLI::App app("Times a training step on many ranks.", "ddp_bench");
  add_options(app, options);
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  if (std::getenv("RANK") != nullptr) {
    const tandem::parallel::ProcessGroupGuard guard;
    measure(options, guard.group());
  } else {
    ::setenv("TANDEM_CPU_DEVICES", "64", 0);  // the limit of --ranks
    tandem::parallel::spawn(options.ranks, [&](ProcessGroup& group) { measure(options, group); });
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return cli::run_main(argc, argv, ddp_bench); }
