// Makes a table, a JSON file and a picture from the output of step_bench and its peers: one JSON object per line.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/error.h>
#include <tandem/core/file.h>
#include <tandem/telemetry/bars.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "step/measure.h"

namespace {

using bench::median;
using nlohmann::ordered_json;

/// Results of one program on one case, over all rounds.
struct Column {
  std::string name;  // "eager", "PyTorch tuned"
  std::vector<double> us;
  std::vector<double> ratios;     // to the floor of the same round
  std::vector<double> low, high;  // limits of step_bench's own intervals

  bool own() const { return !low.empty(); }
};

/// A case with a given number of threads.
struct Row {
  std::string name;
  std::int64_t threads = 1;
  std::vector<double> floor_us;
  std::vector<Column> columns;
  double loss = 0;
  bool adam = false;
};

struct Results {
  std::string machine;
  std::vector<Row> rows;
};

std::string case_name(const ordered_json& line) {
  const double momentum = line.at("momentum");
  return fmt::format("{} {}, batch {}, {}{}", line.at("model").get<std::string>(), line.at("loss").get<std::string>(),
                     line.at("batch").get<std::int64_t>(), line.at("optimizer").get<std::string>(),
                     momentum != 0 ? fmt::format(" {}", momentum) : "");
}

// Whether the program says that it rounded the factors of products.
bool is_in_bf16(const ordered_json& line) { return line.value("products", "f32") == "bf16"; }

std::string column_name(const ordered_json& line) {
  const std::string engine = line.at("engine");
  const std::string way = engine == "tandem" ? line.at("mode").get<std::string>()
                                             : fmt::format("{} {}", engine, line.at("setting").get<std::string>());
  return is_in_bf16(line) ? way + ", bf16" : way;
}

Row& row_of(Results& results, const ordered_json& line) {
  const std::string name = case_name(line);
  const std::int64_t threads = line.at("threads");
  for (Row& row : results.rows) {
    if (row.name == name && row.threads == threads) {
      return row;
    }
  }
  results.rows.push_back({.name = name,
                          .threads = threads,
                          .floor_us = {},
                          .columns = {},
                          .loss = line.at("loss_after_steps"),
                          .adam = line.at("optimizer") == "adam"});
  return results.rows.back();
}

Column& column_of(Row& row, const std::string& name) {
  const auto found = std::ranges::find(row.columns, name, &Column::name);
  if (found != row.columns.end()) {
    return *found;
  }
  row.columns.push_back({.name = name, .us = {}, .ratios = {}, .low = {}, .high = {}});
  return row.columns.back();
}

void add(Results& results, const ordered_json& line) {
  Row& row = row_of(results, line);
  const std::string name = column_name(line);
  const double loss = line.at("loss_after_steps");
  // dlib's Adam adds its epsilon before it corrects the bias.
  const double tolerance = is_in_bf16(line) ? 2e-2 : !row.adam ? 1e-5 : line.at("engine") == "dlib" ? 1e-3 : 1e-4;
  if (!(std::abs(loss - row.loss) <= tolerance * std::abs(row.loss))) {
    throw tandem::ValueError(
        fmt::format("{}: the loss of {} is {:.9g}, that of the first program {:.9g}: expected the "
                    "same to {}, so the two don't compute the same",
                    row.name, name, loss, row.loss, tolerance));
  }
  Column& column = column_of(row, name);
  column.us.push_back(line.at("us_per_step"));
  if (line.at("engine") == "tandem") {
    results.machine = fmt::format("{}, {}", line.at("cpu").get<std::string>(), line.at("isa").get<std::string>());
    row.floor_us.push_back(line.at("floor_us"));
    column.ratios.push_back(line.at("ratio"));
    column.low.push_back(line.at("interval").at(0));
    column.high.push_back(line.at("interval").at(1));
  } else if (!row.floor_us.empty()) {
    column.ratios.push_back(column.us.back() / row.floor_us.back());
  }
}

Results read(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw tandem::IoError(fmt::format("{}: cannot be read", path));
  }
  Results results;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      add(results, ordered_json::parse(line));
    } catch (const ordered_json::exception& e) {
      throw tandem::IoError(
          fmt::format("{}, line {}: expected an object as step_bench --json prints it, got '{:.60}': "
                      "{}",
                      path, number, line, e.what()));
    }
  }
  if (results.rows.empty()) {
    throw tandem::IoError(fmt::format("{}: no results in it", path));
  }
  return results;
}

std::string short_us(double us) {
  return us < 100 ? fmt::format("{:.2f}", us) : us < 1000 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

std::vector<std::string> column_names(const Results& results) {
  std::vector<std::string> names;
  for (const Row& row : results.rows) {
    for (const Column& column : row.columns) {
      if (std::ranges::find(names, column.name) == names.end()) {
        names.push_back(column.name);
      }
    }
  }
  return names;
}

// A table cell: microseconds and the multiple of the floor, with its range over the rounds.
std::string cell(const Row& row, const std::string& name) {
  const auto column = std::ranges::find(row.columns, name, &Column::name);
  if (column == row.columns.end()) {
    return "-";
  }
  std::string text = short_us(median(column->us));
  if (!column->ratios.empty()) {
    const double low = column->own() ? median(column->low) : *std::ranges::min_element(column->ratios);
    const double high = column->own() ? median(column->high) : *std::ranges::max_element(column->ratios);
    text += fmt::format(" = **{:.2f}** ({:.2f} to {:.2f})", median(column->ratios), low, high);
  }
  return text;
}

std::string table(const Results& results) {
  const std::vector<std::string> names = column_names(results);
  std::string text = fmt::format("{}. Microseconds per step = times the floor (range).\n\n| case | threads | floor |",
                                 results.machine);
  std::string rule = "\n| --- | --- | --- |";
  for (const std::string& name : names) {
    text += fmt::format(" {} |", name);
    rule += " --- |";
  }
  text += rule + "\n";
  for (const Row& row : results.rows) {
    text += fmt::format("| {} | {} | {} |", row.name, row.threads,
                        row.floor_us.empty() ? "-" : short_us(median(row.floor_us)));
    for (const std::string& name : names) {
      text += fmt::format(" {} |", cell(row, name));
    }
    text += "\n";
  }
  return text;
}

std::string json(const Results& results) {
  ordered_json rows = ordered_json::array();
  for (const Row& row : results.rows) {
    ordered_json columns = ordered_json::object();
    for (const Column& column : row.columns) {
      columns[column.name] = {{"us_per_step", column.us}, {"ratio", column.ratios}};
    }
    rows.push_back({{"case", row.name}, {"threads", row.threads}, {"floor_us", row.floor_us}, {"columns", columns}});
  }
  return ordered_json{{"machine", results.machine}, {"rows", rows}}.dump(2) + "\n";
}

// Returns a panel for each case and number of threads, in which bars are microseconds per step.
std::vector<tandem::telemetry::BarPanel> panels(const Results& results) {
  std::vector<tandem::telemetry::BarPanel> all;
  for (const Row& row : results.rows) {
    auto& panel = all.emplace_back();
    panel.title = fmt::format("{}; {} thread{}", row.name, row.threads, row.threads == 1 ? "" : "s");
    if (!row.floor_us.empty()) {
      const double floor = median(row.floor_us);
      panel.bars.push_back({.name = "floor", .value = floor, .label = short_us(floor) + " us", .strong = true});
    }
    for (const Column& column : row.columns) {
      const double us = median(column.us);
      std::string label = short_us(us) + " us";
      if (!column.ratios.empty()) {
        label += fmt::format(" = {:.2f}", median(column.ratios));
      }
      panel.bars.push_back({.name = column.name, .value = us, .label = label, .strong = column.own()});
    }
  }
  return all;
}

int bench_report(int argc, char** argv) {
  std::string lines = "build/bench/cpu.jsonl";
  std::string out = "build/bench";
  CLI::App app("Makes a table, a JSON file and a picture of the results of step_bench and its peers.", "bench_report");
  cli::add_path(app, "--lines", "The results: a JSON object to a line", lines);
  cli::add_path(app, "--out", "Folder for cpu.md, cpu.json and cpu.svg", out);
  app.footer(
      "Examples:\n"
      "  step_bench --json >>lines.jsonl\n"
      "  bench_report --lines lines.jsonl --out report");
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  const Results results = read(lines);
  const std::string markdown = table(results);
  std::filesystem::create_directories(out);
  tandem::core::replace_file(out + "/cpu.md", {markdown});
  tandem::core::replace_file(out + "/cpu.json", {json(results)});
  tandem::telemetry::write_bars(
      out + "/cpu.svg", "A training step, in microseconds and times the floor: " + results.machine, panels(results));
  fmt::print("{}", markdown);
  cli::narrate(fmt::format("in {}: cpu.md, cpu.json, cpu.svg", out));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return cli::run_main(argc, argv, bench_report); }
