#include <tandem/telemetry/curves.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/telemetry/axis.h>
#include <tandem/telemetry/svg.h>
#include <tandem/telemetry/text.h>

namespace tandem::inline v0::telemetry {

namespace {

// After the last colour the colours repeat, dashed.
constexpr const char* kDashes[] = {"none", "7 4", "2 4"};

constexpr double kPanelWidth = 480;
constexpr double kPlotHeight = 250;
constexpr double kLegendRow = 19;
constexpr double kSwatch = 20;
constexpr double kBelowPlot = 52;  // room for tick labels and axis label
constexpr double kPlotLeft = 62;   // from the panel's left side; larger when tick labels are long
constexpr double kPlotRight = 14;

struct Box {
  double left, top, right, bottom;
};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool whole = true;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
    whole = whole && std::abs(value) < 1e15 && value == std::floor(value);
  }
};

bool drawable(const Panel& panel, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (!panel.log_y || y > 0);
}

struct LegendEntry {
  std::size_t curve;
  double left;
  int row;
};

std::vector<LegendEntry> legend_of(const Panel& panel) {
  constexpr double width = kPanelWidth - kPlotLeft - kPlotRight;
  std::vector<LegendEntry> entries;
  double left = 0;
  int row = 0;
  for (std::size_t i = 0; i < panel.curves.size(); ++i) {
    if (panel.curves[i].name.empty()) {
      continue;
    }
    const double needed = kSwatch + 6 + text_width(clean_text(panel.curves[i].name), kSmallText) + 18;
    if (left > 0 && left + needed > width) {
      left = 0;
      ++row;
    }
    entries.push_back({i, left, row});
    left += needed;
  }
  return entries;
}

std::string stroke_of(std::size_t curve) {
  return fmt::format("stroke=\"{}\" stroke-dasharray=\"{}\"", kColours[curve % std::size(kColours)],
                     kDashes[curve / std::size(kColours) % std::size(kDashes)]);
}

void draw_curve(Picture& picture, const Panel& panel, std::size_t index, const Axis& x_axis, const Axis& y_axis,
                const Box& plot) {
  const Curve& curve = panel.curves[index];
  const auto at_x = [&](std::size_t i) { return plot.left + x_axis.place(curve.x[i]) * (plot.right - plot.left); };
  const auto at_y = [&](std::size_t i) { return plot.bottom - y_axis.place(curve.y[i]) * (plot.bottom - plot.top); };
  std::string path;
  const std::size_t points = curve.x.size();
  for (std::size_t begin = 0; begin < points;) {
    std::size_t end = begin;
    while (end < points && drawable(panel, curve.x[end], curve.y[end])) {
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", end == begin ? "M" : "L", at_x(end), at_y(end));
      ++end;
    }
    if (end == begin + 1) {  // a single point makes no line
      picture.add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", at_x(begin), at_y(begin),
                  kColours[index % std::size(kColours)]);
    }
    begin = end + 1;
  }
  if (!path.empty()) {
    picture.add("<path d=\"{}\" fill=\"none\" stroke-width=\"2\" {}/>\n", path, stroke_of(index));
  }
}

void draw_axes(Picture& picture, const Panel& panel, const Axis& x_axis, const Axis& y_axis, const Box& plot) {
  const std::string_view grid = "class=\"grid\"";
  for (const Tick& tick : x_axis.ticks()) {
    const double x = plot.left + tick.place * (plot.right - plot.left);
    picture.line(x, plot.top, x, plot.bottom + 5, grid);
    picture.text(x, plot.bottom + 18, "class=\"small\" text-anchor=\"middle\"", tick.label);
  }
  picture.text((plot.left + plot.right) / 2, plot.bottom + 39, "class=\"label\" text-anchor=\"middle\"", panel.x_label);
  for (const Tick& tick : y_axis.ticks()) {
    const double y = plot.bottom - tick.place * (plot.bottom - plot.top);
    picture.line(plot.left, y, plot.right, y, grid);
    picture.text(plot.left - 7, y + 4, "class=\"small\" text-anchor=\"end\"", tick.label);
  }
  picture.line(plot.left, plot.bottom, plot.right, plot.bottom, "class=\"axis\"");
  picture.line(plot.left, plot.top, plot.left, plot.bottom, "class=\"axis\"");
}

void draw_panel(Picture& picture, const Panel& panel, double left, double top, int legend_rows) {
  Range x_range;
  Range y_range;
  for (const Curve& curve : panel.curves) {
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      if (drawable(panel, curve.x[i], curve.y[i])) {
        x_range.include(curve.x[i]);
        y_range.include(curve.y[i]);
      }
    }
  }
  const bool has_data = x_range.low <= x_range.high;
  const Axis x_axis(x_range.whole && has_data ? Axis::Kind::counter : Axis::Kind::position, has_data ? x_range.low : 0,
                    has_data ? x_range.high : 1);
  const Axis y_axis(panel.log_y && has_data ? Axis::Kind::log : Axis::Kind::linear, has_data ? y_range.low : 0,
                    has_data ? y_range.high : 1);

  double label_width = 0;
  for (const Tick& tick : y_axis.ticks()) {
    label_width = std::max(label_width, text_width(tick.label, kSmallText));
  }
  Box plot{};
  plot.left = left + std::max(kPlotLeft, 24 + label_width + 7);
  plot.right = left + kPanelWidth - kPlotRight;
  plot.top = top + kPanelTitleHeight + legend_rows * kLegendRow + 4;
  plot.bottom = plot.top + kPlotHeight;

  picture.text(left + kPlotLeft, top + 16, "class=\"panel\"", panel.title);
  for (const LegendEntry& entry : legend_of(panel)) {
    const double x = left + kPlotLeft + entry.left;
    const double y = top + kPanelTitleHeight + entry.row * kLegendRow + 9;
    picture.line(x, y, x + kSwatch, y, "stroke-width=\"2.5\" " + stroke_of(entry.curve));
    picture.text(x + kSwatch + 6, y + 4, "class=\"small\"", panel.curves[entry.curve].name);
  }
  draw_axes(picture, panel, x_axis, y_axis, plot);
  const double middle = (plot.top + plot.bottom) / 2;
  picture.text_upwards(left + 12, middle, "class=\"label\"", panel.y_label);
  if (!has_data) {
    picture.text((plot.left + plot.right) / 2, middle, "class=\"label\" text-anchor=\"middle\"", "no data");
  }
  for (std::size_t i = 0; i < panel.curves.size(); ++i) {
    draw_curve(picture, panel, i, x_axis, y_axis, plot);
  }
}

}  // namespace

std::string curves_svg(std::string_view title, const std::vector<Panel>& panels) {
  check<ConfigError>(!panels.empty(), "curves_svg: expected at least one panel, got none");
  int legend_rows = 0;  // maximum over all panels, so that their plots line up
  for (const Panel& panel : panels) {
    for (const Curve& curve : panel.curves) {
      check<ConfigError>(curve.x.size() == curve.y.size(), "curves_svg: curve '{}' of panel '{}' has {} x and {} y",
                         curve.name, panel.title, curve.x.size(), curve.y.size());
    }
    if (const auto legend = legend_of(panel); !legend.empty()) {
      legend_rows = std::max(legend_rows, legend.back().row + 1);
    }
  }
  const std::size_t in_row = std::min(panels.size(), kPanelsInRow);
  const std::size_t rows = (panels.size() + in_row - 1) / in_row;
  const double panel_height = kPanelTitleHeight + legend_rows * kLegendRow + 4 + kPlotHeight + kBelowPlot;
  const double column_step = kPanelWidth + kMargin;
  const double row_step = panel_height + kMargin;
  const double width = static_cast<double>(in_row) * column_step + kMargin;
  const double height = kTitleHeight + static_cast<double>(rows) * row_step + kMargin;

  Picture picture(width, height, title);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const std::size_t row = i / in_row;
    draw_panel(picture, panels[i], kMargin + static_cast<double>(i % in_row) * column_step,
               kMargin + kTitleHeight + static_cast<double>(row) * row_step, legend_rows);
  }
  return picture.take();
}

void write_curves(const std::string& path, std::string_view title, const std::vector<Panel>& panels) {
  core::replace_file(path, {curves_svg(title, panels)});
}

}  // namespace tandem::inline v0::telemetry
