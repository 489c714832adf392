#include <tandem/telemetry/run_data.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include <tandem/telemetry/metric_fields.h>

namespace tandem::inline v0::telemetry {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLine = "line";

std::string name_of_folder(const std::string& folder) {
  const fs::path path = fs::path(folder).lexically_normal();
  const std::string name = path.has_filename() ? path.filename() : path.parent_path().filename();
  return name.empty() ? folder : name;
}

// The number of a line's field of that name.
std::optional<double> number_of(const Fields& line, const std::string& name) {
  const auto field = std::ranges::find(line, name, &Field::name);
  return field != line.end() ? number_in(field->value) : std::nullopt;
}

}  // namespace

RunData::RunData(const std::string& folder) : name(name_of_folder(folder)) {
  const std::string path = folder + "/metrics.jsonl";
  if (is_file(path)) {
    metrics = read_json_lines(path);
  }
}

std::string RunData::axis() const {
  for (const Fields& line : metrics) {
    if (const std::string axis = axis_of(line); !axis.empty()) {
      return axis;
    }
  }
  return kLine;
}

Curve RunData::curve(const std::string& metric, const std::string& along) const {
  Curve curve{.name = name};
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const Fields& line = metrics[i];
    const std::optional<double> x = along == kLine ? static_cast<double>(i + 1) : number_of(line, along);
    const std::optional<double> y = number_of(line, metric);
    if (x && y) {
      curve.x.push_back(*x);
      curve.y.push_back(*y);
    }
  }
  return curve;
}

std::vector<std::string> metrics_of(const std::vector<RunData>& runs, const std::string& axis) {
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
  return metrics;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string text_of(const FieldValue& value) {
  const std::string object = to_json({{"value", value}});
  const std::string text = object.substr(object.find(':') + 1);
  return text.substr(0, text.size() - 1);
}

}  // namespace tandem::inline v0::telemetry
