// Writes a table and a JSON file from the output of gpu_bench and its peers, with the targets beside the results.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/error.h>
#include <tandem/core/file.h>

#include "command_line/program.h"
#include "gpu/bench.h"
#include "step/measure.h"

namespace bench::gpu {

namespace {

using nlohmann::ordered_json;

/// One way to run a case, with the numbers of each round.
struct Column {
  std::string name;  // "tandem captured", "pytorch compile"
  bool ours = false;
  std::vector<double> us, low, high, host_us, floor_us;
  std::vector<int> rounds;  // of each element of `us`
  double loss = std::nan("");
  std::string failed;  // the peer's error message
};

struct Row {
  std::string workload, name;
  bool f32 = false;  // products in full f32
  std::vector<Column> columns;
};

// The target of each workload: a speed-up over the best peer, or a share of the floor.
const std::map<std::string, std::string> kTargets{
    {"W1", "2 x the whole step as one PyTorch graph, 15 x eager"},
    {"W2", "1.7 x the whole step as one PyTorch graph, 12 x eager"},
    {"W3", "batch 8192: 86 % of the floor, 1.08 x compile; batch 1024: 1.2 x compile"},
    {"W4", "95 % of the floor (67M); 10,000 tensors: 2 x fused"},
    {"W5", "50304 bf16: 90 % of the floor, 1.8 x compile, 8 x eager"},
    {"W7", "95 % of the floor"},
    {"W8", "channels-last not slower than rows, and than PyTorch's best"},
    {"host", "1.5 us a training step (see host of W1)"},
};

template <class T>
T& entry(std::vector<T>& list, const std::string& name) {
  const auto found = std::ranges::find(list, name, &T::name);
  if (found != list.end()) {
    return *found;
  }
  list.emplace_back().name = name;
  return list.back();
}

void add(std::vector<Row>& rows, const ordered_json& line) {
  const std::string workload = line.at("workload");
  const std::string name = line.at("case");
  auto row = std::ranges::find_if(rows, [&](const Row& r) { return r.workload == workload && r.name == name; });
  if (row == rows.end()) {
    rows.push_back({.workload = workload,
                    .name = name,
                    .f32 = line.value("dtype", "") == "f32" && !line.value("tf32", false),
                    .columns = {}});
    row = rows.end() - 1;
  }
  const std::string engine = line.at("engine");
  Column& column = entry(row->columns, engine + " " + line.at("variant").get<std::string>());
  column.ours = engine == "tandem";
  if (line.contains("failed")) {
    column.failed = line.at("failed");
    return;
  }
  column.us.push_back(line.at("us"));
  column.rounds.push_back(line.value("round", 0));
  column.low.push_back(line.at("quartiles").at(0));
  column.high.push_back(line.at("quartiles").at(1));
  column.host_us.push_back(line.at("host_us"));
  if (line.contains("floor_us")) {
    column.floor_us.push_back(line.at("floor_us"));
  }
  if (line.contains("loss_after_steps")) {
    column.loss = line.at("loss_after_steps").is_null() ? std::nan("") : line.at("loss_after_steps").get<double>();
  }
}

std::vector<ordered_json> read(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw tandem::IoError(fmt::format("{}: cannot be read", path));
  }
  std::vector<ordered_json> lines;
  for (std::string text; std::getline(file, text);) {
    lines.push_back(ordered_json::parse(text, nullptr, false));
    if (!lines.back().is_object()) {
      throw tandem::ValueError(
          fmt::format("{}, line {}: expected a JSON object, got '{}'", path, lines.size(), cli::shown(text)));
    }
  }
  return lines;
}

// Our shortest time in a round, or infinity.
double our_time(const Row& row, int round) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const Column& column : row.columns) {
    for (std::size_t i = 0; column.ours && i < column.us.size(); ++i) {
      shortest = column.rounds[i] == round ? std::min(shortest, column.us[i]) : shortest;
    }
  }
  return shortest;
}

// The median over the rounds of the time as a multiple of our fastest way in the same round: "0.98".
std::string ratio(const Row& row, const Column& column) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < column.us.size(); ++i) {
    if (const double ours = our_time(row, column.rounds[i]); !std::isinf(ours)) {
      ratios.push_back(column.us[i] / ours);
    }
  }
  return ratios.empty() ? "" : fmt::format("{:.2f}", median(ratios));
}

// The loss with a note if it differs from the loss of our first way.
std::string loss_text(const Row& row, const Column& column, int& different) {
  const auto ours = std::ranges::find_if(row.columns, [](const Column& c) { return c.ours && !std::isnan(c.loss); });
  if (ours == row.columns.end() || std::isnan(column.loss)) {
    return ours != row.columns.end() && column.failed.empty() ? (++different, "not a number") : "";
  }
  const double tolerance = row.f32 ? 1e-4 : 2e-2;
  const bool same = std::abs(column.loss - ours->loss) <= tolerance * std::abs(ours->loss);
  different += same ? 0 : 1;
  return fmt::format("{:.6g}{}", column.loss, same ? "" : " DIFFERS");
}

std::string table_of(const Row& row, int& different) {
  std::string text;
  for (const Column& column : row.columns) {
    if (column.us.empty()) {
      text += fmt::format("| {} | {} | {} | | | | | {} |\n", row.workload, row.name, column.name, column.failed);
      continue;
    }
    const double us = median(column.us);
    text += fmt::format("| {} | {} | {} | {:.2f} ({:.2f} to {:.2f}) | {} | {} | {:.2f} | {} |\n", row.workload,
                        row.name, column.name, us, std::ranges::min(column.low), std::ranges::max(column.high),
                        column.floor_us.empty() ? "" : fmt::format("{:.1f} %", 100 * median(column.floor_us) / us),
                        ratio(row, column), median(column.host_us), loss_text(row, column, different));
  }
  return text;
}

}  // namespace

int write_report(const std::string& path, const std::string& stem) {
  const std::vector<ordered_json> lines = read(path);
  std::vector<Row> rows;
  std::string gpu;
  std::string versions;
  for (const ordered_json& line : lines) {
    add(rows, line);
    gpu = line.value("gpu", gpu);
    versions = line.value("version", versions);
  }
  int different = 0;
  std::string text = fmt::format(
      "{}{}\n\nMicroseconds per call by the GPU's events: median, and lowest to highest quartile of the rounds. Floor: "
      "what the bytes and products take at the rates of a copy and of a product of 8192 x 8192 in the same process. "
      "Beside ours: how many times as long as our fastest way in the same round. Host: until the call returns.\n\n"
      "| | case | | us | floor | beside ours | host us | loss |\n|---|---|---|---:|---:|---:|---:|---|\n",
      gpu, versions.empty() ? "" : ", PyTorch " + versions);
  for (const Row& row : rows) {
    text += table_of(row, different);
  }
  text += "\n| | target |\n|---|---|\n";
  for (const auto& [workload, target] : kTargets) {
    text += fmt::format("| {} | {} |\n", workload, target);
  }
  tandem::core::replace_file(stem + ".md", {text});
  tandem::core::replace_file(stem + ".json", {ordered_json(lines).dump(1), "\n"});
  cli::narrate(text);
  if (different > 0) {
    cli::narrate(fmt::format("{} losses are not ours: those peers, or we, don't compute what is timed", different));
  }
  return different;
}

}  // namespace bench::gpu
