#include <tandem/telemetry/progress.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/clock.h"
#include "telemetry/terminal.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

using telemetry::Progress;
using test::Screen;
using test::show;
using test::sleep_ms;
using test::Terminal;

class ProgressOnTerminal : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Terminal::available()) {
      GTEST_SKIP() << "no pseudo-terminals here (is /dev/pts mounted?)";
    }
    ::setenv("TERM", "xterm", 1);
    ::setenv("LC_ALL", "C.UTF-8", 1);
    ::unsetenv("NO_COLOR");
  }
};

// The line left by a run that stops in the middle of an epoch.
std::string stopped_run(Terminal& terminal, const std::string& label) {
  {
    Progress progress({.total = 1000, .unit = "images", .label = label, .fd = terminal.fd()});
    progress.start_epoch(3, 30);
    progress.set("loss", 0.143);
    progress.set("acc", "97.8%");
    sleep_ms(2);
    progress.advance(620);
  }
  return terminal.finish();
}

TEST_F(ProgressOnTerminal, ShowsEverythingOnOneLine) {
  Terminal terminal(120);
  const Screen screen = show(stopped_run(terminal, ""), 120);
  ASSERT_EQ(screen.rows.size(), 2u);
  EXPECT_THAT(screen.rows[0], HasSubstr("epoch  3/30  ━━━━━━━━━━━━━━──────────   62%  loss 0.143  acc 97.8%  "));
  EXPECT_THAT(screen.rows[0], MatchesRegex(".* [0-9,]+ images/s  eta [0-9]+:[0-9][0-9]"));
  EXPECT_EQ(screen.rows[1], "");
}

TEST_F(ProgressOnTerminal, NeverWrapsWhateverTheWidth) {
  for (const char* label : {"", "mlp", "Ziffern \xE6\x95\xB0\xE5\xAD\x97 \xF0\x9F\x94\xA2"}) {
    for (int columns = 1; columns <= 130; ++columns) {
      Terminal terminal(columns);
      const Screen screen = show(stopped_run(terminal, label), columns);
      EXPECT_FALSE(screen.wrapped) << columns << " columns: " << screen.rows[0];
      EXPECT_EQ(screen.rows.size(), 2u) << columns;
    }
  }
}

TEST_F(ProgressOnTerminal, NarrowTerminalDropsPartsFromTheRight) {
  Terminal terminal(30);
  EXPECT_THAT(show(stopped_run(terminal, ""), 30).rows, ElementsAre("epoch  3/30  ━━━━━━────   62%", ""));
}

TEST_F(ProgressOnTerminal, FollowsAResize) {
  Terminal terminal(120);
  {
    Progress progress({.total = 1000, .fd = terminal.fd()});
    progress.start_epoch(1, 2);
    sleep_ms(110);
    progress.advance(1);
    terminal.resize(20);
    sleep_ms(110);
    progress.advance(1);
    terminal.resize(100);
  }
  const std::string output = terminal.finish();
  const std::string at_20_columns = output.substr(output.find('\r', 1));
  EXPECT_FALSE(show(at_20_columns.substr(0, at_20_columns.find('\r', 1)), 20).wrapped);
}

TEST_F(ProgressOnTerminal, RedrawsAtMostTenTimesASecond) {
  Terminal terminal(100);
  const auto start = std::chrono::steady_clock::now();
  {
    Progress progress({.total = 1000000, .fd = terminal.fd()});
    for (int i = 0; i < 40; ++i) {
      sleep_ms(10);
      progress.advance();
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string output = terminal.finish();
  const auto draws = std::count(output.begin(), output.end(), '\r') - 1;  // every redraw, but not the newline's own
  EXPECT_GE(draws, 2);
  EXPECT_LE(draws, seconds * 10 + 1);
}

TEST_F(ProgressOnTerminal, EachEpochLeavesOneWholeLine) {
  Terminal terminal(80);
  {
    Progress progress({.total = 100, .unit = "images", .fd = terminal.fd()});
    for (int epoch = 1; epoch <= 2; ++epoch) {
      progress.start_epoch(epoch, 2);
      sleep_ms(110);
      progress.advance(100);
      progress.end_epoch("test accuracy 97.8%");
    }
  }
  EXPECT_THAT(show(terminal.finish(), 80).rows,
              ElementsAre(MatchesRegex("epoch 1/2  test accuracy 97.8%  [0-9.]+ images/s  0.1[0-9]* s"),
                          MatchesRegex("epoch 2/2  test accuracy 97.8%  [0-9.]+ images/s  0.1[0-9]* s"), ""));
}

TEST_F(ProgressOnTerminal, ExceptionLeavesTheCursorOnANewLine) {
  Terminal terminal(80);
  try {
    Progress progress({.total = 100, .fd = terminal.fd()});
    progress.start_epoch(1);
    progress.advance(50);
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  const Screen screen = show(terminal.finish(), 80);
  ASSERT_EQ(screen.rows.size(), 2u);
  EXPECT_THAT(screen.rows[0], HasSubstr("epoch 1  ━━"));
  EXPECT_EQ(screen.rows[1], "");
}

TEST_F(ProgressOnTerminal, OnlyClearsAndColours) {
  Terminal terminal(120);
  const std::string output = stopped_run(terminal, "a\x1b[2Jb\nc");
  EXPECT_THAT(show(output, 120).odd, IsEmpty());
  EXPECT_THAT(output, HasSubstr("a [2Jb c"));
  EXPECT_THAT(output, HasSubstr("\x1b[36m"));
}

TEST_F(ProgressOnTerminal, NoColorIsRespected) {
  ::setenv("NO_COLOR", "1", 1);
  Terminal terminal(120);
  const std::string output = stopped_run(terminal, "");
  EXPECT_THAT(output, Not(HasSubstr("\x1b[36m")));
  EXPECT_THAT(output, HasSubstr("━━"));
}

TEST_F(ProgressOnTerminal, BarIsAsciiOutsideUtf8) {
  ::setenv("LC_ALL", "C", 1);
  Terminal terminal(120);
  EXPECT_THAT(stopped_run(terminal, ""), HasSubstr("==============----------"));
}

TEST_F(ProgressOnTerminal, BarKeepsItsLengthWhenDigitsComeAndGo) {
  Terminal terminal(40);
  {
    Progress progress({.total = 1000, .fd = terminal.fd()});
    for (const double loss : {0.1234, 0.5, 0.1234}) {
      progress.set("loss", loss);
      sleep_ms(105);
      progress.advance(0);
    }
  }
  const std::string output = terminal.finish();
  std::vector<std::size_t> bars;
  for (std::size_t at = 0; (at = output.find("\x1b[36m", at)) != std::string::npos; ++at) {
    bars.push_back(output.find("\x1b[0m", at) - at);
  }
  ASSERT_EQ(bars.size(), 4u);  // three redraws, and the last state again at the end
  EXPECT_THAT(bars, ::testing::Each(bars[0]));
}

TEST_F(ProgressOnTerminal, DumbTerminalGetsPlainLines) {
  ::setenv("TERM", "dumb", 1);
  Terminal terminal(20);
  const std::string output = stopped_run(terminal, "");
  EXPECT_THAT(output, MatchesRegex("epoch  3/30   62%  loss 0.143  acc 97.8%  .*\r\n"));
  EXPECT_THAT(output, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace tandem
