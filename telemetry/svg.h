#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

// Internal: writes SVG pictures. All lengths are in SVG user units: pixels at 100 %.

namespace tandem::inline v0::telemetry {

// The palette of Okabe and Ito for colour-blind readers, without its yellow, which is hard to see on white.
inline constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777"};

inline constexpr double kMargin = 22;
inline constexpr double kTitleHeight = 34;       // of the picture, including the room below it
inline constexpr double kPanelTitleHeight = 26;  // likewise
inline constexpr double kSmallText = 11.5;
inline constexpr std::size_t kPanelsInRow = 3;

/// Any text as the content of an element of SVG or HTML.
std::string xml_text(std::string_view text);

/// An estimate, because no font is available to measure. It is wider than most fonts, so that nothing overlaps.
double text_width(std::string_view clean, double size);

/// A picture of this size, with a title at its top.
class Picture {
 public:
  Picture(double width, double height, std::string_view title);

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }
  /// `style` has further attributes: classes are title, panel, label and small. The content may be any text.
  void text(double x, double y, std::string_view style, std::string_view content);
  /// The text upwards, its middle at this place.
  void text_upwards(double x, double y, std::string_view style, std::string_view content);
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  /// The whole picture.
  std::string take() { return std::move(svg_) + "</svg>\n"; }

 private:
  std::string svg_;
};

}  // namespace tandem::inline v0::telemetry
