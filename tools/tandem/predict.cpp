#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/telemetry/prediction.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "tandem/commands.h"

namespace tool {

namespace {

using namespace tandem;
using telemetry::Prediction;
using telemetry::PredictionOptions;
using telemetry::StepProfile;

constexpr int kMostRanks = 1 << 20;
constexpr double kMib = 1 << 20;

std::vector<int> read_ranks(const std::string& text) {
  std::vector<int> ranks;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    int number = 0;
    if (!cli::read_whole(std::string_view(text).substr(at, end - at), number) || number < 1 || number > kMostRanks) {
      cli::refuse("-n", "numbers of ranks such as 2,4,8", text);
    }
    ranks.push_back(number);
    at = end + 1;
  }
  return ranks;
}

telemetry::Network read_network(const std::string& text) {
  try {
    return telemetry::Network::named(text);
  } catch (const ConfigError&) {
    cli::refuse("--network", "nvlink or a rate such as 1gbit, 100gbit, 100mbit", text);
  }
}

void print_table(const std::vector<Prediction>& all) {
  fmt::print("{:>6}  {:<24} {:>10} {:>9} {:>11} {:>9} {:>12}\n", "ranks", "way", "ms a step", "speed-up", "efficiency",
             "exposed", "MiB a rank");
  int ranks = 0;
  for (const Prediction& one : all) {
    const auto fastest = std::ranges::max_element(all, [&](const Prediction& a, const Prediction& b) {
      return (a.ranks == one.ranks ? a.speedup : 0) < (b.ranks == one.ranks ? b.speedup : 0);
    });
    fmt::print("{:>6}  {:<24} {:>10.3f} {:>9.2f} {:>10.0f}% {:>8.0f}% {:>12.1f}{}\n",
               one.ranks == ranks ? "" : fmt::format("{}", one.ranks), one.name(), one.step_us / 1000, one.speedup,
               100 * one.speedup / one.ranks, 100 * one.exposed_us / one.step_us, one.memory_bytes / kMib,
               &one == &*fastest ? "  <- fastest" : "");
    ranks = one.ranks;
  }
}

// What the model says of the run itself, by the network that the run has seen.
void print_check(const StepProfile& profile) {
  const double rounds = std::ceil(std::log2(profile.ranks));
  const double calls = std::max(profile.buckets, 1.0);
  const double on_wire = profile.exchange_us - 2 * calls * profile.latency_us;
  if (profile.ranks < 2 || profile.shares_memory || profile.buckets == 0 || on_wire <= 0) {
    return;
  }
  const double bytes = 2 * (profile.ranks - 1) / profile.ranks * profile.bytes();
  const PredictionOptions seen{.network = {.name = "its own",
                                           .latency_us = profile.latency_us / std::max(rounds, 1.0),
                                           .bytes_per_us = bytes / on_wire}};
  const telemetry::Way way = profile.shards_parameters ? telemetry::Way::shard_parameters
                             : profile.shards_updates  ? telemetry::Way::shard_optimizer
                                                       : telemetry::Way::ddp;
  const std::vector<Prediction> all = telemetry::predict_step(profile, static_cast<int>(profile.ranks), seen);
  const Prediction own = *std::ranges::find(all, way, &Prediction::way);
  cli::narrate(
      fmt::format("the run itself, over the network that it saw ({:.0f} Mbit/s): {:.3f} ms predicted, {:.3f} "
                  "measured ({:+.0f} %)",
                  8 * seen.network.bytes_per_us, own.step_us / 1000, profile.step_us / 1000,
                  100 * (own.step_us / profile.step_us - 1)));
}

void print_json(const std::vector<Prediction>& all) {
  std::vector<std::string> ways;
  std::vector<double> ranks, step_us, speedups, exposed, memory;
  for (const Prediction& one : all) {
    ways.push_back(one.name());
    ranks.push_back(one.ranks);
    step_us.push_back(one.step_us);
    speedups.push_back(one.speedup);
    exposed.push_back(one.exposed_us);
    memory.push_back(one.memory_bytes);
  }
  cli::print_result_json({{"ways", ways},
                          {"ranks", ranks},
                          {"step_us", step_us},
                          {"speedups", speedups},
                          {"exposed_us", exposed},
                          {"memory_bytes", memory}});
}

}  // namespace

int predict(int argc, const char* const* argv) {
  std::string folder;
  std::vector<int> ranks = {2, 4, 8};
  std::string network = "1gbit";
  double latency = 0;
  double activation = 0;
  int microbatches = 8;
  bool json = false;
  CLI::App app("Says how fast a run would be with more ranks, from what its steps were measured to do.",
               "tandem predict");
  app.add_option("folder", folder, "The folder of a run with --report")->type_name("RUN")->required();
  cli::add_value(app, "-n", "N,N,...", "Numbers of ranks", "2,4,8",
                 [&](const std::string& text) { ranks = read_ranks(text); });
  cli::add_text(app, "--network", "NAME", "Between ranks: nvlink, or a rate such as 1gbit, 100gbit, 100mbit", network);
  cli::add_number(app, "--latency", "US", "Of a message, in microseconds; 0: 60, and 10 from 50gbit on", latency, 0,
                  1e6);
  cli::add_number(app, "--activation-mb", "MIB",
                  "What a pipeline's stage hands over for a batch; 0: no pipelines in the table", activation, 0, 1e6);
  cli::add_whole(app, "--microbatches", "Of pipelines", microbatches, 1, 1 << 20);
  app.add_flag("--json", json, "Print one JSON object");
  app.footer(
      "Examples:\n"
      "  mlp --report --out runs/one && tandem predict runs/one\n"
      "  tandem predict runs/one -n 2,4,8,64,512 --network 100gbit\n"
      "  tandem predict runs/one -n 8 --network nvlink --activation-mb 0.5");
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  PredictionOptions options{
      .network = read_network(network), .microbatches = microbatches, .activation_bytes = activation * kMib};
  if (latency > 0) {
    options.network.latency_us = latency;
  }
  const std::string path = folder + "/steps.json";
  StepProfile profile;
  try {
    profile = StepProfile::from_fields(telemetry::read_json(path));
  } catch (IoError& error) {
    error.add_context(fmt::format("in {}, which a run with --report writes", path));
    throw;
  }
  std::vector<Prediction> all;
  for (const int count : ranks) {
    std::ranges::move(telemetry::predict_step(profile, count, options), std::back_inserter(all));
  }
  if (json) {
    print_json(all);
    return 0;
  }
  print_table(all);
  print_check(profile);
  return 0;
}

}  // namespace tool
