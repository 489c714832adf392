#include <tandem/telemetry/report.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/telemetry/curves.h>
#include <tandem/telemetry/run_data.h>
#include <tandem/telemetry/svg.h>
#include <tandem/telemetry/timeline.h>

namespace tandem::inline v0::telemetry {

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

std::string curves_of(const std::vector<RunData>& runs) {
  const std::string axis = runs.front().axis();
  std::vector<Panel> panels;
  for (const std::string& metric : metrics_of(runs, axis)) {
    Panel panel{.title = metric, .x_label = axis};
    for (const RunData& run : runs) {
      panel.curves.push_back(run.curve(metric, axis));
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

// The fields of a file of the run's folder, or nothing if there is no such file.
std::string fields_of(const std::string& path, const char* title) {
  if (!is_file(path)) {
    return "";
  }
  std::string rows;
  for (const Field& field : read_json(path)) {
    rows += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", xml_text(field.name), xml_text(text_of(field.value)));
  }
  return fmt::format("<h2>{}</h2>\n<table>\n{}</table>\n", title, rows);
}

}  // namespace

std::string html_report(const std::string& folder, const std::vector<std::string>& others) {
  std::vector<RunData> runs{RunData(folder)};
  for (const std::string& other : others) {
    runs.emplace_back(other);
  }
  const std::string trace = folder + "/trace.json";
  check<IoError>(!runs.front().metrics.empty() || is_file(trace),
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
  body += is_file(trace) ? timeline_of(trace) : "";
  body += fields_of(folder + "/config.json", "Options") + fields_of(folder + "/environment.json", "Made with");
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      xml_text(runs.front().name), kStyle, body);
}

}  // namespace tandem::inline v0::telemetry
