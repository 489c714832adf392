#include "scaling/report.h"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/isa.h>
#include <tandem/telemetry/curves.h>

#include "command_line/program.h"
#include "step/measure.h"

namespace bench::scaling {

using nlohmann::ordered_json;

namespace {

// The parts that occur in these ways' steps. There is no waiting for input, no collective, replay or pipeline.
std::vector<std::size_t> shown_parts() {
  std::vector<std::size_t> parts;
  for (std::size_t part = 0; part < kParts; ++part) {
    const auto phase = static_cast<tandem::Phase>(part);
    if (phase != tandem::Phase::input && phase != tandem::Phase::collective && phase != tandem::Phase::replay &&
        phase != tandem::Phase::pipeline) {
      parts.push_back(part);
    }
  }
  return parts;
}

std::size_t index_of(std::vector<Way>& ways, const Way& way) {
  const auto found = std::ranges::find(ways, way);
  if (found != ways.end()) {
    return static_cast<std::size_t>(found - ways.begin());
  }
  ways.push_back(way);
  return ways.size() - 1;
}

void add_rows(Plan& plan, const Settings& settings, bool strong, int devices) {
  const std::int64_t batch = strong ? settings.spec.batch : settings.spec.batch * devices;
  const std::int64_t part = strong ? (batch + devices - 1) / devices : settings.spec.batch;
  const int one = settings.threads_per_device;
  const auto way = [&](Parallel parallel, int count, int threads, std::int64_t rows) {
    return index_of(plan.ways, {.parallel = parallel, .devices = count, .threads = threads, .batch = rows});
  };
  Row row{.strong = strong, .devices = devices, .name = "", .threads = {}, .part = {}};
  row.base = way(Parallel::plain, 1, one, settings.spec.batch);
  row.part = way(Parallel::plain, 1, one, part);
  if (settings.type == tandem::DeviceType::cpu) {
    row.threads = way(Parallel::plain, 1, one * devices, batch);
  }
  const auto add = [&](const char* name, std::size_t index) {
    row.name = name;
    row.way = index;
    plan.rows.push_back(row);
  };
  if (devices == 1) {
    add("plain", row.base);
  } else {
    if (row.part != row.base) {
      add("one part", *row.part);
    }
    if (row.threads && settings.plain) {
      add("plain threads", *row.threads);
    }
  }
  if (settings.data_parallel) {
    for (const Parallel parallel : {Parallel::dp, Parallel::dp_loss}) {
      add(name_of(parallel), way(parallel, devices, one * devices, batch));
    }
  }
}

Ratio ratio_of(const std::vector<double>& values) { return {median(values), median_interval(values)}; }

std::string thousands(double value) {
  return value < 1000 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

}  // namespace

Plan plan_of(const Settings& settings) {
  std::vector<int> counts;
  for (int devices = 1; devices < settings.devices; devices *= 2) {
    counts.push_back(devices);
  }
  counts.push_back(settings.devices);
  Plan plan;
  for (const bool strong : {true, false}) {
    if (strong ? settings.strong : settings.weak) {
      for (const int devices : counts) {
        add_rows(plan, settings, strong, devices);
      }
    }
  }
  return plan;
}

Ratio Report::rate(std::size_t way, std::size_t other) const {
  const Timed& a = timed(way);
  const Timed& b = timed(other);
  std::vector<double> ratios;
  for (std::size_t round = 0; round < a.us.size(); ++round) {
    ratios.push_back(static_cast<double>(a.way.batch) / a.us[round] * b.us[round] / static_cast<double>(b.way.batch));
  }
  return ratio_of(ratios);
}

Ratio Report::efficiency(const Row& row) const {
  Ratio ratio = rate(row.way, row.base);
  const double devices = row.way == row.part ? 1 : row.devices;
  return {ratio.value / devices, {ratio.interval.first / devices, ratio.interval.second / devices}};
}

std::string Report::table() const {
  const Settings& s = settings;
  std::string text = fmt::format("{}, {}, {}; {}, {} thread{} per device, {}\n", s.model,
                                 s.spec.loss == Loss::mse ? "mse" : "ce", s.spec.rule == Rule::adam ? "adam" : "sgd",
                                 s.type == tandem::DeviceType::cuda ? "cuda" : "cpu", s.threads_per_device,
                                 s.threads_per_device == 1 ? "" : "s", tandem::core::to_string(tandem::core::isa()));
  for (const bool strong : {true, false}) {
    std::string rates =
        fmt::format("\n{}: batch {} {}\n{:<9}{:<15}{:>8}{:>12}{:>12}{:>12}{:>12}\n", strong ? "strong" : "weak",
                    s.spec.batch, strong ? "for all devices together" : "for each device", "devices", "way", "batch",
                    "us/step", "images/s", "efficiency", "of threads");
    std::string phases = fmt::format("{:<9}{:<15}", "", "us in");
    for (const std::size_t part : shown_parts()) {
      phases += fmt::format("{:>10}", name_of_part(part));
    }
    phases += "\n";
    bool any = false;
    for (const Row& row : plan.rows) {
      if (row.strong == strong) {
        any = true;
        rates += rate_line(row);
        phases += phase_line(row);
      }
    }
    text += any ? rates + phases : "";
  }
  return text;
}

std::string Report::rate_line(const Row& row) const {
  const Timed& t = timed(row.way);
  const double us = median(t.us);
  const bool held = row.threads && row.name != "one part" && row.devices > 1;
  return fmt::format("{:<9}{:<15}{:>8}{:>12}{:>12.0f}{:>12.3f}{:>12}\n", row.devices, row.name, t.way.batch,
                     thousands(us), 1e6 * static_cast<double>(t.way.batch) / us, efficiency(row).value,
                     held ? fmt::format("{:.3f}", rate(row.way, *row.threads).value) : "");
}

std::string Report::phase_line(const Row& row) const {
  std::string text = fmt::format("{:<9}{:<15}", row.devices, row.name);
  for (const std::size_t part : shown_parts()) {
    const double us = timed(row.way).part_us[part];
    text += fmt::format("{:>10}", us == 0 ? "-" : thousands(us));
  }
  return text + "\n";
}

std::string Report::json() const {
  const Settings& s = settings;
  ordered_json rows = ordered_json::array();
  for (const Row& row : plan.rows) {
    const Timed& t = timed(row.way);
    const Ratio reached = efficiency(row);
    ordered_json parts = ordered_json::object();
    for (const std::size_t part : shown_parts()) {
      parts[name_of_part(part)] = t.part_us[part];
    }
    ordered_json line{{"mode", row.strong ? "strong" : "weak"},
                      {"way", row.name},
                      {"devices", row.devices},
                      {"threads", t.way.threads},
                      {"batch", t.way.batch},
                      {"us_per_step", median(t.us)},
                      {"images_per_second", 1e6 * static_cast<double>(t.way.batch) / median(t.us)},
                      {"efficiency", reached.value},
                      {"efficiency_interval", {reached.interval.first, reached.interval.second}}};
    if (row.threads) {
      const Ratio share = rate(row.way, *row.threads);
      line["of_threads"] = share.value;
      line["of_threads_interval"] = {share.interval.first, share.interval.second};
    }
    line["phases_us"] = parts;
    line["steps_per_block"] = t.steps_per_block;
    line["rounds_us"] = t.us;
    rows.push_back(line);
  }
  const ordered_json whole{{"engine", "tandem"},
                           {"model", s.model},
                           {"loss", s.spec.loss == Loss::mse ? "mse" : "ce"},
                           {"batch", s.spec.batch},
                           {"optimizer", s.spec.rule == Rule::adam ? "adam" : "sgd"},
                           {"momentum", s.spec.momentum},
                           {"lr", s.spec.lr},
                           {"device", s.type == tandem::DeviceType::cuda ? "cuda" : "cpu"},
                           {"threads_per_device", s.threads_per_device},
                           {"clock", "wall"},
                           {"rounds", s.rounds},
                           {"disturbed", measured.disturbed},
                           {"left_out", measured.left_out},
                           {"worst_difference", worst_difference},
                           {"isa", tandem::core::to_string(tandem::core::isa())},
                           {"cpu", cli::cpu_model()},
                           {"rows", rows},
                           {"reason", reason()}};
  return whole.dump(2) + "\n";
}

void Report::draw(const std::string& path) const {
  std::vector<tandem::telemetry::Panel> panels;
  for (const bool strong : {true, false}) {
    std::vector<tandem::telemetry::Curve> efficiencies;
    std::vector<tandem::telemetry::Curve> rates;
    const auto add_point = [](auto& curves, const std::string& name, double x, double y) {
      auto curve = std::ranges::find(curves, name, &tandem::telemetry::Curve::name);
      if (curve == curves.end()) {
        curve = curves.insert(curve, {.name = name});
      }
      curve->x.push_back(x);
      curve->y.push_back(y);
    };
    for (const Row& row : plan.rows) {
      if (row.strong != strong) {
        continue;
      }
      // Curves begin at one device with the plain way; DataParallel has a result of its own there.
      const std::string name = row.name == "plain" ? "plain threads" : row.name;
      if (row.name == "one part" || (row.name == "plain" && !(row.threads && settings.plain))) {
        continue;
      }
      const double us = median(timed(row.way).us);
      add_point(efficiencies, name, row.devices, efficiency(row).value);
      add_point(rates, name, row.devices, 1e6 * static_cast<double>(timed(row.way).way.batch) / us);
    }
    if (!rates.empty()) {
      const std::string title = fmt::format("{}: batch {} {}", strong ? "strong" : "weak", settings.spec.batch,
                                            strong ? "together" : "per device");
      panels.push_back({.title = title, .x_label = "devices", .y_label = "images/s", .curves = rates});
      panels.push_back({.title = title, .x_label = "devices", .y_label = "efficiency", .curves = efficiencies});
    }
  }
  tandem::telemetry::write_curves(path, fmt::format("{} on 1 to {} devices", settings.model, settings.devices), panels);
}

}  // namespace bench::scaling
