#include <tandem/telemetry/bars.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/telemetry/svg.h>
#include <tandem/telemetry/text.h>

namespace tandem::inline v0::telemetry {

namespace {

constexpr double kBarStep = 20;
constexpr double kBarHeight = 14;
constexpr double kLongestBar = 230;
constexpr double kGap = 6;  // between a bar and its texts
constexpr const char* kStrong = kColours[0];
constexpr const char* kWeak = "#9aa5ae";

double length_of(const Bar& bar) { return std::isfinite(bar.value) && bar.value > 0 ? bar.value : 0; }

// The widths of a panel's parts.
struct Columns {
  double names = 0;
  double labels = 0;
};

Columns columns_of(const std::vector<BarPanel>& panels) {
  Columns columns;
  for (const BarPanel& panel : panels) {
    for (const Bar& bar : panel.bars) {
      columns.names = std::max(columns.names, text_width(clean_text(bar.name), kSmallText));
      columns.labels = std::max(columns.labels, text_width(clean_text(bar.label), kSmallText));
    }
  }
  return columns;
}

void draw_panel(Picture& picture, const BarPanel& panel, double left, double top, double names) {
  double longest = 0;
  for (const Bar& bar : panel.bars) {
    longest = std::max(longest, length_of(bar));
  }
  picture.text(left, top + 16, "class=\"panel\"", panel.title);
  const double zero = left + names + kGap;
  double y = top + kPanelTitleHeight;
  for (const Bar& bar : panel.bars) {
    const double length = longest > 0 ? length_of(bar) / longest * kLongestBar : 0;
    picture.text(zero - kGap, y + kBarHeight - 3, "class=\"small\" text-anchor=\"end\"", bar.name);
    picture.add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", zero, y, length,
                kBarHeight, bar.strong ? kStrong : kWeak);
    picture.text(zero + length + kGap, y + kBarHeight - 3, "class=\"small\"", bar.label);
    y += kBarStep;
  }
}

}  // namespace

std::string bars_svg(std::string_view title, const std::vector<BarPanel>& panels) {
  check<ConfigError>(!panels.empty(), "bars_svg: expected at least one panel, got none");
  const Columns columns = columns_of(panels);
  const std::size_t in_row = std::min(panels.size(), kPanelsInRow);
  const double column_step = columns.names + kGap + kLongestBar + kGap + columns.labels + kMargin;
  // A row is as high as its longest list.
  std::vector<double> tops{kMargin + kTitleHeight};
  for (std::size_t first = 0; first < panels.size(); first += in_row) {
    std::size_t most = 0;
    for (std::size_t i = first; i < std::min(first + in_row, panels.size()); ++i) {
      most = std::max(most, panels[i].bars.size());
    }
    tops.push_back(tops.back() + kPanelTitleHeight + static_cast<double>(most) * kBarStep + kMargin);
  }
  Picture picture(kMargin + static_cast<double>(in_row) * column_step, tops.back(), title);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    draw_panel(picture, panels[i], kMargin + static_cast<double>(i % in_row) * column_step, tops[i / in_row],
               columns.names);
  }
  return picture.take();
}

void write_bars(const std::string& path, std::string_view title, const std::vector<BarPanel>& panels) {
  core::replace_file(path, {bars_svg(title, panels)});
}

}  // namespace tandem::inline v0::telemetry
