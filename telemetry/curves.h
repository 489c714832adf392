#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// One line in a plot. `x` and `y` have the same length; a point that is not finite (on a logarithmic axis: or not
/// above zero) is left out and breaks the line there.
struct Curve {
  std::string name = {};       // in the legend
  std::vector<double> x = {};  // epochs, steps, ...
  std::vector<double> y = {};  // one for each x
};

/// One plot: its curves share the axes. Labels carry the unit: "accuracy, %".
struct Panel {
  std::string title = {};          // above the plot
  std::string x_label = {};        // below its axis
  std::string y_label = {};        // beside its axis
  std::vector<Curve> curves = {};  // drawn in this order
  bool log_y = false;              // logarithmic y axis
};

/// An SVG picture of the panels, up to three in a row, in colours that colour-blind people can tell apart. It stands
/// alone: no scripts, no links, only generic fonts. Every point is drawn, so thin out beyond some 100,000.
/// Throws ConfigError when there is no panel, or a curve's x and y differ in length.
TANDEM_API std::string curves_svg(std::string_view title, const std::vector<Panel>& panels);

/// Writes curves_svg() to `path`, whole or not at all. Throws IoError too.
TANDEM_API void write_curves(const std::string& path, std::string_view title, const std::vector<Panel>& panels);

}  // namespace tandem::inline v0::telemetry
