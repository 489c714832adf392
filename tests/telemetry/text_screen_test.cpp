#include <tandem/telemetry/text_screen.h>

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/telemetry/run_folder.h>

#include "support/message.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace tandem::telemetry {
namespace {

using test::lines_of;
using test::message_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class TextScreen : public ::testing::Test {
 protected:
  TextScreen() {
    RunFolder run({.path = folder_});
    run.write_config({{"program", std::string("mlp")}, {"ranks", std::int64_t{2}}, {"devices", std::string()}});
    for (std::int64_t epoch = 1; epoch <= 20; ++epoch) {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      run.append_metrics({{"epoch", epoch},
                          {"loss", epoch == 7 ? nan : 1.0 / static_cast<double>(epoch)},
                          {"accuracy", 0.05 * static_cast<double>(epoch)}});
    }
  }

  test::TempDir dir_;
  std::string folder_ = dir_.file("run");
};

TEST_F(TextScreen, ShowsNumbersCurvesOptionsAndAdvice) {
  RunFolder({.path = folder_, .reuse = true})
      .write_file("diagnosis.txt", "29 steps\nThe largest part that one could save: 40 % of a step\n");
  const std::string screen = text_screen(folder_, {.columns = 90, .rows = 40});
  EXPECT_THAT(screen, AllOf(StartsWith("run   last line "), HasSubstr("\nepoch 20   loss 0.05   accuracy 1\n"),
                            HasSubstr("\nprogram mlp   ranks 2\n"), HasSubstr("loss  0.05 .. 1 "),
                            HasSubstr("accuracy  0.05 .. 1\n"), HasSubstr("\xe2\xa0"),
                            HasSubstr("\nThe largest part that one could save: 40 % of a step\n")));
}

TEST_F(TextScreen, FitsTheTerminal) {
  for (const int columns : {1, 20, 39, 40, 81, 82, 200}) {
    for (const int rows : {1, 3, 10, 12, 24}) {
      const std::vector<std::string> lines =
          lines_of(text_screen(folder_, {.columns = columns, .rows = rows, .has_unicode = false}));
      EXPECT_LE(lines.size(), static_cast<std::size_t>(rows));
      for (const std::string& line : lines) {
        EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
      }
    }
  }
}

TEST_F(TextScreen, WithoutUnicodeIsPlainText) {
  const std::string screen = text_screen(folder_, {.has_unicode = false});
  EXPECT_THAT(std::vector<char>(screen.begin(), screen.end()), Each(::testing::Ge('\n')));
  EXPECT_THAT(screen, HasSubstr("***"));
}

TEST_F(TextScreen, OfARunThatHasJustBegunSaysSo) {
  const RunFolder run({.path = dir_.file("new")});
  EXPECT_EQ(text_screen(dir_.file("new"), {}), "new   no line yet\n");
  EXPECT_THAT(message_of<IoError>([&] { text_screen(dir_.file("none"), {}); }),
              HasSubstr("expected the folder of a run"));
}

TEST_F(TextScreen, OfMetricsWithoutNumbersSaysSo) {
  RunFolder run({.path = dir_.file("odd")});
  run.append_metrics({{"epoch", std::int64_t{1}}, {"loss", std::numeric_limits<double>::infinity()}});
  EXPECT_THAT(text_screen(dir_.file("odd"), {}), HasSubstr("loss  no numbers\n"));
}

}  // namespace
}  // namespace tandem::telemetry
