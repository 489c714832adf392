#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>

// Internal: pictures of bars.

namespace tandem::inline v0::telemetry {

/// One bar, from left to right: its name before it, its label behind it.
struct Bar {
  std::string name = {};
  double value = 0;        // its length; a value that is not finite or not above zero has no bar
  std::string label = {};  // the value with its unit: "118 us"
  bool strong = false;     // in the stronger one of two colours
};

/// Bars that share a scale, which begins at 0.
struct BarPanel {
  std::string title = {};      // above the bars
  std::vector<Bar> bars = {};  // from top to bottom
};

/// An SVG picture of the panels, three in a row, self-contained like curves_svg(). Throws ConfigError for an empty list
/// of panels.
TANDEM_API std::string bars_svg(std::string_view title, const std::vector<BarPanel>& panels);

/// Writes bars_svg() to `path`, completely or not at all. Throws IoError in addition.
TANDEM_API void write_bars(const std::string& path, std::string_view title, const std::vector<BarPanel>& panels);

}  // namespace tandem::inline v0::telemetry
