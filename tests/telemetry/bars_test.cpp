#include <tandem/telemetry/bars.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "telemetry/svg_text.h"

namespace tandem {
namespace {

using telemetry::bars_svg;
using ::testing::HasSubstr;

std::vector<double> numbers(const std::string& svg, const std::string& before) {
  std::vector<double> found;
  for (const std::string& text : all(svg, before, "\"")) {
    found.push_back(std::stod(text));
  }
  return found;
}

TEST(Bars, AreAsLongAsTheirValuesAndCarryNamesAndLabels) {
  const std::string svg =
      bars_svg("times", {{.title = "small",
                          .bars = {{.name = "ours", .value = 1, .label = "1 us", .strong = true},
                                   {.name = "<theirs>", .value = 4, .label = "4 us"},
                                   {.name = "none", .value = std::numeric_limits<double>::quiet_NaN(), .label = "-"},
                                   {.name = "below", .value = -1, .label = "-1 us"}}}});
  EXPECT_TRUE(is_well_formed(svg));
  for (const char* text : {">times<", ">small<", ">ours<", ">&lt;theirs&gt;<", ">1 us<", ">4 us<", ">-1 us<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  const std::vector<double> widths = numbers(svg.substr(svg.find(">small<")), " width=\"");
  ASSERT_EQ(widths.size(), 4U);
  EXPECT_NEAR(widths[1], 4 * widths[0], 0.3) << "bars begin at 0";
  EXPECT_EQ(widths[2], 0);
  EXPECT_EQ(widths[3], 0);
  const std::vector<std::string> colours = all(svg.substr(svg.find(">small<")), "fill=\"", "\"");
  EXPECT_NE(colours[0], colours[1]);
  EXPECT_EQ(colours[1], colours[2]);
}

TEST(Bars, PanelsStandThreeInARowInsideThePicture) {
  const telemetry::BarPanel one{.title = "p", .bars = {{.name = "a long name of a bar", .value = 2, .label = "2"}}};
  const std::string svg = bars_svg("", {one, one, one, one});
  const std::vector<double> left = numbers(svg, "<rect x=\"");
  const std::vector<double> top = numbers(svg, "\" y=\"");
  ASSERT_EQ(left.size(), 4U);
  EXPECT_LT(left[0], left[1]);
  EXPECT_LT(left[1], left[2]);
  EXPECT_EQ(left[0], left[3]);
  const double width = numbers(svg, " width=\"").at(0);
  for (const std::string& line : all(svg, "<rect x", "/>")) {
    EXPECT_LT(std::stod(line.substr(2)) + numbers(line, "width=\"").at(0), width) << line;
  }
  EXPECT_LT(*std::max_element(top.begin(), top.end()), numbers(svg, " height=\"").at(0));
}

TEST(Bars, NoPanelIsRefusedAndNoBarsAreAnEmptyPanel) {
  EXPECT_THROW(bars_svg("t", {}), ConfigError);
  EXPECT_TRUE(is_well_formed(bars_svg("t", {{.title = "empty"}})));
}

}  // namespace
}  // namespace tandem
