#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tandem/telemetry/curves.h>
#include <tandem/telemetry/run_folder.h>

// Internal: what a run's folder says, for pages and screens about it.

namespace tandem::inline v0::telemetry {

/// A run's name and its lines.
struct RunData {
  std::string name;
  std::vector<Fields> metrics;

  /// Reads metrics.jsonl, if it is there. Throws IoError.
  explicit RunData(const std::string& folder);

  /// The field along which its curves are drawn: "step", "epoch", or "line", whose values are 1, 2, ...
  std::string axis() const;
  /// The curve of a metric; empty where the run has none.
  Curve curve(const std::string& metric, const std::string& along) const;
};

/// All metrics of these runs, apart from the axis, in the order in which they first appear.
std::vector<std::string> metrics_of(const std::vector<RunData>& runs, const std::string& axis);

/// Whether there is such a file.
bool is_file(const std::string& path);

/// The value as text, as JSON has it.
std::string text_of(const FieldValue& value);

}  // namespace tandem::inline v0::telemetry
