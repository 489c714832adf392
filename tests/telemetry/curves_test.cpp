#include <tandem/telemetry/curves.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "support/temp_dir.h"
#include "telemetry/svg_text.h"

namespace tandem {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::ThrowsMessage;

using telemetry::Curve;
using telemetry::curves_svg;
using telemetry::Panel;
using telemetry::write_curves;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::string plot(std::vector<double> x, std::vector<double> y, bool log_y = false) {
  return curves_svg("", {{.curves = {{"c", std::move(x), std::move(y)}}, .log_y = log_y}});
}

std::vector<std::string> x_labels(const std::string& svg) {
  return all(svg, R"(class="small" text-anchor="middle">)", "<");
}
std::vector<std::string> y_labels(const std::string& svg) {
  return all(svg, R"(class="small" text-anchor="end">)", "<");
}
std::vector<std::string> paths(const std::string& svg) { return all(svg, R"(<path d=")", "\""); }
std::size_t dots(const std::string& svg) { return all(svg, "<circle", ">").size(); }

// All coordinates, sorted by attribute.
std::vector<std::string> coordinates(const std::string& svg) {
  std::vector<std::string> numbers;
  for (const char* attribute : {"x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "d"}) {
    for (std::string value : all(svg, " " + std::string(attribute) + "=\"", "\"")) {
      std::ranges::replace_if(value, [](char c) { return c == 'M' || c == 'L'; }, ' ');
      std::istringstream words(value);
      numbers.insert(numbers.end(), std::istream_iterator<std::string>(words), {});
    }
  }
  return numbers;
}

TEST(Curves, LossAndAccuracyStandSideBySide) {
  const std::string svg = curves_svg("mlp", {{.title = "Loss",
                                              .x_label = "epoch",
                                              .y_label = "nats",
                                              .curves = {{"train", {1, 2}, {2, 1}}, {"test", {1, 2}, {3, 2}}}},
                                             {.title = "Accuracy", .curves = {{"train", {1, 2}, {90, 95}}}}});
  EXPECT_TRUE(is_well_formed(svg));
  for (const char* text : {">mlp<", ">Loss<", ">epoch<", ">nats<", ">train<", ">test<", ">Accuracy<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_EQ(paths(svg).size(), 3u);
  const auto of_title = [&](const std::string& title) {
    const std::string line = svg.substr(svg.rfind('\n', svg.find(">" + title + "<")));
    return std::pair(std::stod(all(line, " x=\"", "\"")[0]), std::stod(all(line, " y=\"", "\"")[0]));
  };
  EXPECT_LT(of_title("Loss").first + 300, of_title("Accuracy").first);
  EXPECT_EQ(of_title("Loss").second, of_title("Accuracy").second);
}

TEST(Curves, PictureStandsAlone) {
  const std::string svg = plot({1, 2}, {1, 2});
  EXPECT_THAT(all(svg, "://", "\""), ElementsAre("www.w3.org/2000/svg"));
  for (const char* foreign : {"<script", "href", "url(", "<image", "@import"}) {
    EXPECT_THAT(svg, Not(HasSubstr(foreign)));
  }
}

TEST(Curves, TextIsEscaped) {
  const std::string evil = "a<b>&\"'\x01\xff</text><script>";
  const std::string svg =
      curves_svg(evil, {{.title = evil, .x_label = evil, .y_label = evil, .curves = {{evil, {1, 2}, {1, 2}}}}});
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_THAT(svg, HasSubstr("a&lt;b&gt;&amp;\"' \xEF\xBF\xBD&lt;/text&gt;&lt;script&gt;"));
}

TEST(Curves, ValuesThatAreNotFiniteBreakTheLine) {
  const std::string svg = plot({0, 1, 2, 3, 4, kInf, 6, 7}, {1, 2, kNan, 3, 4, 5, kInf, -kInf});
  EXPECT_THAT(paths(svg), ElementsAre(::testing::MatchesRegex("M[0-9. ]+L[0-9. ]+M[0-9. ]+L[0-9. ]+")));
  EXPECT_THAT(svg, Not(HasSubstr("<circle")));
}

TEST(Curves, PointWithoutNeighboursIsADot) {
  EXPECT_EQ(dots(plot({1}, {0.5})), 1u);
  EXPECT_EQ(dots(plot({1, 2, 3}, {5, kNan, 5})), 2u);
}

TEST(Curves, NothingToDrawIsSaid) {
  for (const std::string& svg : {plot({}, {}), plot({1, 2}, {kNan, kInf}), plot({1, 2}, {0, -1}, true),
                                 curves_svg("", {{.title = "no curves"}})}) {
    EXPECT_TRUE(is_well_formed(svg));
    EXPECT_THAT(svg, HasSubstr(">no data<"));
    EXPECT_THAT(paths(svg), IsEmpty());
  }
  EXPECT_THAT(plot({1, 2}, {1, 2}), Not(HasSubstr("no data")));
}

TEST(Curves, TicksAreRound) {
  const std::string svg = plot({1, 10, 30}, {0.013, 0.4, 0.93});
  EXPECT_THAT(x_labels(svg), ElementsAre("5", "10", "15", "20", "25", "30"));
  EXPECT_THAT(y_labels(svg), ElementsAre("0.0", "0.2", "0.4", "0.6", "0.8"));
  EXPECT_THAT(y_labels(plot({0, 1}, {-200000, 300000})),
              ElementsAre("-200000", "-100000", "0", "100000", "200000", "300000"));
}

TEST(Curves, WholeNumbersAreCountedInWholeNumbers) {
  EXPECT_THAT(x_labels(plot({1, 2}, {1, 2})), ElementsAre("1", "2"));
  EXPECT_THAT(x_labels(plot({7}, {1})), ElementsAre("6", "7", "8"));
  EXPECT_THAT(x_labels(plot({1, 1.5, 2}, {1, 2, 3})), Contains("1.2"));
}

TEST(Curves, ConstantLineLiesInTheMiddle) {
  EXPECT_THAT(y_labels(plot({1, 2}, {3, 3})), Contains("3.0"));
  EXPECT_THAT(y_labels(plot({1, 2}, {0, 0})), IsSupersetOf({"-1.0", "0.0", "1.0"}));
  EXPECT_THAT(paths(plot({1, 2}, {3, 3}))[0], ::testing::MatchesRegex("M[0-9.]+ ([0-9.]+)L[0-9.]+ [0-9.]+"));
}

TEST(Curves, NoRoomIsLeftBelowZeroWhenNothingIsThere) {
  const auto starts_on_axis = [](const std::string& svg) {
    const std::size_t end = svg.find("\" class=\"axis\"");  // the x axis comes first
    const std::size_t begin = svg.rfind('"', end - 1) + 1;
    return paths(svg)[0].find(" " + svg.substr(begin, end - begin) + "L") != std::string::npos;
  };
  EXPECT_TRUE(starts_on_axis(plot({1, 2}, {0, 1})));
  EXPECT_FALSE(starts_on_axis(plot({1, 2}, {-1, 1})));
}

TEST(Curves, HugeAndTinyValuesGetExponents) {
  EXPECT_THAT(y_labels(plot({1, 2}, {-1.7e308, 1.7e308})), ElementsAre("-1e308", "0", "1e308"));
  EXPECT_THAT(y_labels(plot({1, 2}, {5e-324, 2e-323})), Contains("1.5e-323"));
  EXPECT_THAT(y_labels(plot({1, 2}, {1e-7, 3e-7})), IsSupersetOf({"1e-7", "1.5e-7", "3e-7"}));
  EXPECT_THAT(y_labels(plot({1, 2}, {0, 3e6})), ElementsAre("0", "5e5", "1e6", "1.5e6", "2e6", "2.5e6", "3e6"));
}

TEST(Curves, LogAxisHasPowersOfTen) {
  EXPECT_THAT(y_labels(plot({1, 2}, {0.05, 3}, true)), ElementsAre("0.05", "0.1", "0.2", "0.5", "1", "2"));
  EXPECT_THAT(y_labels(plot({1, 2}, {1e-6, 10}, true)),
              ElementsAre("1e-6", "1e-5", "0.0001", "0.001", "0.01", "0.1", "1", "10"));
  EXPECT_THAT(y_labels(plot({1, 2}, {1e-300, 1e300}, true)), Contains("1"));
  EXPECT_THAT(y_labels(plot({1, 2}, {0.31, 0.55}, true)), IsSupersetOf({"0.35", "0.40", "0.50"}));
}

TEST(Curves, LogAxisLeavesOutWhatIsNotAboveZero) {
  EXPECT_EQ(paths(plot({1, 2, 3, 4, 5}, {1, 2, 0, 3, 4}, true)), paths(plot({1, 2, 3, 4, 5}, {1, 2, -5, 3, 4}, true)));
  EXPECT_EQ(all(paths(plot({1, 2, 3, 4, 5}, {1, 2, 0, 3, 4}, true))[0], "M", "L").size(), 2u);
}

TEST(Curves, ManyCurvesDifferInColourOrDashes) {
  Panel panel;
  for (int i = 0; i < 20; ++i) {
    panel.curves.push_back({std::to_string(i), {0, 1}, {0, static_cast<double>(i)}});
  }
  const auto styles = all(curves_svg("", {panel}), "fill=\"none\" stroke-width=\"2\" ", "/");
  EXPECT_EQ(styles.size(), 20u);
  EXPECT_EQ(std::set<std::string>(styles.begin(), styles.end()).size(), 20u);
}

TEST(Curves, AnyDoublesMakeAPictureWithinItsFrame) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    Curve curve{.name = "c"};
    const bool wild = round % 2 == 0;
    std::normal_distribution<double> centre(0, std::pow(10.0, static_cast<double>(random() % 600) - 300));
    for (std::uint64_t points = random() % 20; points > 0; --points) {
      const auto value = std::bit_cast<double>(random());
      curve.x.push_back(wild ? centre(random) : static_cast<double>(curve.x.size()));
      curve.y.push_back(wild ? value : centre(random));
    }
    const std::string svg = curves_svg("", {{.curves = {curve}, .log_y = round % 3 == 0}});
    ASSERT_TRUE(is_well_formed(svg)) << round;
    const double width = std::stod(all(svg, " width=\"", "\"")[0]);
    for (const std::string& number : coordinates(svg)) {
      ASSERT_EQ(number.find_first_not_of("0123456789."), std::string::npos) << round << ": " << number;
      ASSERT_LE(std::stod(number), width) << round;
    }
    ASSERT_LE(x_labels(svg).size(), 12u) << round;
    ASSERT_LE(y_labels(svg).size(), 12u) << round;
  }
}

TEST(Curves, WrongArgumentsAreRefused) {
  EXPECT_THROW(curves_svg("", {}), ConfigError);
  EXPECT_THAT([] { curves_svg("", {{.title = "Loss", .curves = {{"train", {1, 2, 3}, {1, 2}}}}}); },
              ThrowsMessage<ConfigError>("curves_svg: curve 'train' of panel 'Loss' has 3 x and 2 y"));
}

TEST(Curves, AreWrittenToAFile) {
  const test::TempDir dir;
  const std::vector<Panel> panels{{.title = "Loss", .curves = {{"train", {1, 2}, {2, 1}}}}};
  write_curves(dir.file("curves.svg"), "mlp", panels);
  EXPECT_EQ(test::read_text(dir.file("curves.svg")), curves_svg("mlp", panels));
  EXPECT_THAT([&] { write_curves(dir.file("none/curves.svg"), "mlp", panels); },
              ThrowsMessage<IoError>(
                  HasSubstr("cannot write '" + dir.file("none/curves.svg") + "': No such file or directory")));
}

}  // namespace
}  // namespace tandem
