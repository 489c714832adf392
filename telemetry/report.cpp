#include <tandem/telemetry/report.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/telemetry/curves.h>
#include <tandem/telemetry/metric_fields.h>
#include <tandem/telemetry/run_folder.h>
#include <tandem/telemetry/svg.h>
#include <tandem/telemetry/timeline.h>

namespace tandem::inline v0::telemetry {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #222222; --back: #ffffff; --line: #dddddd; --soft: #f4f4f4 }
@media (prefers-color-scheme: dark) { :root { --ink: #dddddd; --back: #1c1c1c; --line: #444444; --soft: #272727 } }
body { font: 15px/1.5 Helvetica, Arial, sans-serif; color: var(--ink); background: var(--back); max-width: 1200px;
  margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
svg { max-width: 100%; height: auto }
pre { background: var(--soft); padding: 1em; white-space: pre-wrap }
table { border-collapse: collapse } td, th { border-bottom: 1px solid var(--line); padding: 0.2em 0.9em 0.2em 0;
  text-align: left } td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
)";

struct RunData {
  std::string name;
  std::vector<Fields> metrics;
};

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

RunData read_run(const std::string& folder) {
  const fs::path path = fs::path(folder).lexically_normal();
  const std::string name = path.has_filename() ? path.filename() : path.parent_path().filename();
  const std::string metrics = folder + "/metrics.jsonl";
  return {name.empty() ? folder : name, is_there(metrics) ? read_json_lines(metrics) : std::vector<Fields>()};
}

std::string text_of(const FieldValue& value) {
  const std::string object = to_json({{"value", value}});
  const std::string text = object.substr(object.find(':') + 1);
  return text.substr(0, text.size() - 1);
}

constexpr const char* kLine = "line";  // the axis of lines that have none

// The axis of a run's lines.
std::string axis_of_run(const RunData& run) {
  for (const Fields& line : run.metrics) {
    if (const std::string axis = axis_of(line); !axis.empty()) {
      return axis;
    }
  }
  return kLine;
}

// The number of a line's field of that name.
std::optional<double> number_of(const Fields& line, const std::string& name) {
  const auto field = std::ranges::find(line, name, &Field::name);
  return field != line.end() ? number_in(field->value) : std::nullopt;
}

// The curve of a metric in a run; empty where the run has none.
Curve curve_of(const RunData& run, const std::string& metric, const std::string& axis) {
  Curve curve{.name = run.name};
  for (std::size_t i = 0; i < run.metrics.size(); ++i) {
    const Fields& line = run.metrics[i];
    const std::optional<double> x = axis == kLine ? static_cast<double>(i + 1) : number_of(line, axis);
    const std::optional<double> y = number_of(line, metric);
    if (x && y) {
      curve.x.push_back(*x);
      curve.y.push_back(*y);
    }
  }
  return curve;
}

std::string curves_of(const std::vector<RunData>& runs) {
  const std::string axis = axis_of_run(runs.front());
  std::vector<std::string> metrics;
  for (const RunData& run : runs) {
    for (const Fields& line : run.metrics) {
      for (const Field& field : line) {
        if (field.name != axis && number_in(field.value) && std::ranges::find(metrics, field.name) == metrics.end()) {
          metrics.push_back(field.name);
        }
      }
    }
  }
  std::vector<Panel> panels;
  for (const std::string& metric : metrics) {
    Panel panel{.title = metric, .x_label = axis};
    for (const RunData& run : runs) {
      panel.curves.push_back(curve_of(run, metric, axis));
      panel.curves.back().name = runs.size() > 1 ? run.name : "";
    }
    panels.push_back(std::move(panel));
  }
  return panels.empty() ? "" : curves_svg("Curves", panels);
}

std::string table_of(const Timeline& timeline) {
  std::string table = "<table>\n<tr><th>us of a step</th>";
  for (std::size_t i = 0; i < kUses; ++i) {
    table += fmt::format("<th class=\"number\">{}</th>", name_of(static_cast<Use>(i)));
  }
  table += "<th class=\"number\">exchange hidden</th></tr>\n";
  for (const TimelineRank& rank : timeline.ranks()) {
    const StepUse use = timeline.use_of(rank);
    table += fmt::format("<tr><td>{}</td>", xml_text(rank.name));
    for (const double us : use.training) {
      table += fmt::format("<td class=\"number\">{:.0f}</td>", us);
    }
    table += fmt::format("<td class=\"number\">{:.0f}</td></tr>\n", use.hidden_exchange);
  }
  return table + "</table>\n";
}

std::string timeline_of(const std::string& path) {
  const Timeline timeline(path);
  const std::optional<TimeRange> step = timeline.typical_step();
  if (!step) {
    return "";
  }
  return fmt::format(
      "<h2>Where the time of a step goes</h2>\n{}<p>Means over {} steps, of the thread that trains; <i>exchange "
      "hidden</i> is what other threads exchange while it does something else. Below, the step of median length: spans "
      "within each other, up to four deep; point at one for its name and time.</p>\n{}",
      table_of(timeline), timeline.steps().size(), timeline.svg(*step));
}

std::string config_of(const std::string& path) {
  std::string rows;
  for (const Field& field : read_json(path)) {
    rows += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", xml_text(field.name), xml_text(text_of(field.value)));
  }
  return "<h2>Options</h2>\n<table>\n" + rows + "</table>\n";
}

}  // namespace

std::string html_report(const std::string& folder, const std::vector<std::string>& others) {
  std::vector<RunData> runs{read_run(folder)};
  std::ranges::transform(others, std::back_inserter(runs), read_run);
  const std::string trace = folder + "/trace.json";
  check<IoError>(!runs.front().metrics.empty() || is_there(trace),
                 "'{}': expected the folder of a run, with metrics.jsonl or trace.json", folder);
  std::string body = fmt::format("<h1>{}</h1>\n", xml_text(runs.front().name));
  if (const auto diagnosis = core::read_small_file(folder + "/diagnosis.txt"); diagnosis) {
    std::string lines;
    for (std::size_t at = 0; at < diagnosis->size();) {
      const std::size_t end = std::min(diagnosis->find('\n', at), diagnosis->size());
      lines += xml_text(std::string_view(*diagnosis).substr(at, end - at)) + "\n";
      at = end + 1;
    }
    body += "<h2>Diagnosis</h2>\n<pre>" + lines + "</pre>\n";
  }
  body += curves_of(runs);
  body += is_there(trace) ? timeline_of(trace) : "";
  body += is_there(folder + "/config.json") ? config_of(folder + "/config.json") : "";
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      xml_text(runs.front().name), kStyle, body);
}

}  // namespace tandem::inline v0::telemetry
