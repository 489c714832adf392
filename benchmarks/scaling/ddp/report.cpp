#include "scaling/ddp/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/isa.h>

#include "command_line/program.h"
#include "step/measure.h"

namespace bench::ddp {

using nlohmann::ordered_json;

namespace {

constexpr std::array<Way, kWays> kAll{Way::one_rank,
                                      Way::one_part,
                                      Way::no_exchange,
                                      Way::ddp,
                                      Way::no_overlap,
                                      Way::shard,
                                      Way::shard_gradients,
                                      Way::shard_parameters,
                                      Way::captured_no_exchange,
                                      Way::captured_ddp,
                                      Way::captured_shard};

double median_waited(const std::array<std::vector<double>, kWays>& waited) {
  std::vector<double> all;
  for (const auto& of_way : waited) {
    all.insert(all.end(), of_way.begin(), of_way.end());
  }
  return median(all);
}

}  // namespace

std::int64_t Report::rows(Way way) const { return way == Way::one_part ? spec.batch : ranks * spec.batch; }

std::vector<double> Report::rates(Way way) const {
  std::vector<double> ratios;
  const double more = static_cast<double>(rows(way)) / static_cast<double>(rows(Way::one_rank));
  for (std::size_t round = 0; round < of(way).size(); ++round) {
    ratios.push_back(more * of(Way::one_rank)[round] / of(way)[round]);
  }
  return ratios;
}

std::vector<double> Report::differences(Way way, Way other) const {
  std::vector<double> values;
  for (std::size_t round = 0; round < of(way).size(); ++round) {
    values.push_back(of(way)[round] - of(other)[round]);
  }
  return values;
}

std::string Report::text() const {
  std::string text =
      fmt::format("{}, {}, {}; {} ranks over {}, batch {} of each, {} thread{} per rank, {}\n\n", model,
                  spec.loss == Loss::mse ? "mse" : "ce", spec.rule == Rule::adam ? "adam" : "sgd", ranks, backend,
                  spec.batch, threads, threads == 1 ? "" : "s", tandem::core::to_string(tandem::core::isa()));
  text +=
      fmt::format("{:<22}{:>8}{:>12}{:>12}{:>12}{:>18}\n", "way", "rows", "us/step", "rows/s", "x one rank", "95 %");
  for (const Way way : kAll) {
    const double step = median(of(way));
    const auto [low, high] = median_interval(rates(way));
    text += fmt::format("{:<22}{:>8}{:>12.1f}{:>12.0f}{:>12.3f}{:>18}\n", name_of(way), rows(way), step,
                        1e6 * static_cast<double>(rows(way)) / step, median(rates(way)),
                        fmt::format("{:.3f}-{:.3f}", low, high));
  }
  const double bound = 1e6 * schedule.seconds();
  const double compute = 1e6 * (schedule.course.forward + schedule.course.backward + schedule.course.optimizer);
  std::vector<double> kib;
  for (const std::int64_t bytes : schedule.bucket_bytes) {
    kib.push_back(static_cast<double>(bytes) / 1024);
  }
  text += fmt::format(
      "\nbound: {:.1f} us: forward {:.1f}, backward {:.1f} beside an exchange of {:.1f}, optimizer {:.1f}; ddp takes "
      "{:.3f} "
      "of it, without overlap {:.3f}\n",
      bound, 1e6 * schedule.course.forward, 1e6 * schedule.course.backward, 1e6 * schedule.exchange(),
      1e6 * schedule.course.optimizer, median(of(Way::ddp)) / bound, median(of(Way::no_overlap)) / bound);
  text +=
      fmt::format("exchange: {} bucket{} of {:.0f} KiB, each {:.1f} us and {:.3f} GB/s; {:.2f} of the compute time\n",
                  kib.size(), kib.size() == 1 ? "" : "s", fmt::join(kib, ", "), 1e6 * schedule.link.alpha,
                  schedule.link.beta > 0 ? 1e-9 / schedule.link.beta : 0.0, 1e6 * schedule.exchange() / compute);
  text += fmt::format(
      "ddp adds {:.1f} us to a step without exchange; without overlap it would be {:.1f}; in captured steps "
      "{:.1f}\ngradients differ from one "
      "device's by {:.1e}; {} rounds, in which threads waited for a core {:.1f} % of the time\n",
      median(differences(Way::ddp, Way::no_exchange)), median(differences(Way::no_overlap, Way::no_exchange)),
      median(differences(Way::captured_ddp, Way::captured_no_exchange)), difference, of(Way::ddp).size(),
      100 * median_waited(waited));
  return text;
}

std::string Report::json() const {
  ordered_json ways = ordered_json::array();
  for (const Way way : kAll) {
    ways.push_back({{"way", name_of(way)},
                    {"rows", rows(way)},
                    {"us_per_step", median(of(way))},
                    {"rate_to_one_rank", median(rates(way))},
                    {"rounds_us", of(way)},
                    {"rounds_waited", waited[static_cast<std::size_t>(way)]}});
  }
  const ordered_json whole{{"engine", "tandem"},
                           {"model", model},
                           {"loss", spec.loss == Loss::mse ? "mse" : "ce"},
                           {"optimizer", spec.rule == Rule::adam ? "adam" : "sgd"},
                           {"batch", spec.batch},
                           {"ranks", ranks},
                           {"backend", backend},
                           {"threads", threads},
                           {"isa", tandem::core::to_string(tandem::core::isa())},
                           {"cpu", cli::cpu_model()},
                           {"difference", difference},
                           {"bucket_bytes", schedule.bucket_bytes},
                           {"alpha_us", 1e6 * schedule.link.alpha},
                           {"bytes_per_second", schedule.link.beta > 0 ? 1 / schedule.link.beta : 0.0},
                           {"forward_us", 1e6 * schedule.course.forward},
                           {"backward_us", 1e6 * schedule.course.backward},
                           {"optimizer_us", 1e6 * schedule.course.optimizer},
                           {"exchange_us", 1e6 * schedule.exchange()},
                           {"bound_us", 1e6 * schedule.seconds()},
                           {"ways", ways}};
  return whole.dump(2) + "\n";
}

}  // namespace bench::ddp
