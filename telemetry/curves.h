#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// One line in a plot. `x` and `y` have the same length. A point that is not finite (on a logarithmic axis: or not
/// above zero) is left out and interrupts the line.
struct Curve {
  std::string name = {};       // in the legend
  std::vector<double> x = {};  // epochs, steps, ...
  std::vector<double> y = {};  // one value for each x
};

/// One plot whose curves share the axes. Labels carry the unit: "accuracy, %".
struct Panel {
  std::string title = {};          // above the plot
  std::string x_label = {};        // below the x axis
  std::string y_label = {};        // beside the y axis
  std::vector<Curve> curves = {};  // drawn in this order
  bool log_y = false;              // logarithmic y axis
};

/// An SVG picture of the panels, up to three in a row, in colours that colour-blind people can tell apart. The picture
/// is self-contained: no scripts, no links, only generic fonts. Every point is drawn, so reduce data beyond some
/// 100,000 points. Throws ConfigError for an empty list of panels, and when a curve's x and y differ in length.
TANDEM_API std::string curves_svg(std::string_view title, const std::vector<Panel>& panels);

/// Writes curves_svg() to `path`, completely or not at all. Throws IoError in addition.
TANDEM_API void write_curves(const std::string& path, std::string_view title, const std::vector<Panel>& panels);

}  // namespace tandem::inline v0::telemetry
