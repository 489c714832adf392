#include <tandem/telemetry/progress.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "support/clock.h"

namespace tandem {
namespace {

using test::sleep_ms;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

using telemetry::Progress;
using telemetry::ProgressOptions;

// The output of a Progress to a pipe while `body` uses it.
template <class Body>
std::string written(ProgressOptions options, Body&& body) {
  int ends[2];
  if (::pipe(ends) != 0) {
    std::abort();
  }
  options.fd = ends[1];
  {
    Progress progress(options);
    body(progress);
  }
  ::close(ends[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    output.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  return output;
}

TEST(ProgressInAPipe, OneLineAnEpoch) {
  const std::string output = written({.total = 100, .unit = "images", .label = "mlp"}, [](Progress& progress) {
    for (int epoch = 9; epoch <= 10; ++epoch) {
      progress.start_epoch(epoch, 10);
      for (int i = 0; i < 100; ++i) {
        progress.advance();
      }
      progress.set("loss", 0.5);
      progress.end_epoch();
    }
  });
  EXPECT_THAT(output, MatchesRegex("mlp  epoch  9/10  loss 0.5  [0-9,]+ images/s  [0-9.e-]+ s\n"
                                   "mlp  epoch 10/10  loss 0.5  [0-9,]+ images/s  [0-9.e-]+ s\n"));
}

TEST(ProgressInAPipe, LinesWithinAnEpochKeepTheirDistance) {
  const auto start = std::chrono::steady_clock::now();
  const std::string output = written({.total = 1000, .line_seconds = 0.05}, [](Progress& progress) {
    progress.start_epoch(1, 1);
    for (int i = 0; i < 44; ++i) {
      sleep_ms(5);
      progress.advance();
    }
    progress.end_epoch("done");
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto lines = std::count(output.begin(), output.end(), '\n');
  EXPECT_GE(lines, 3);
  EXPECT_LE(lines, seconds / 0.05 + 1);
  EXPECT_THAT(output, HasSubstr("epoch 1/1  "));
  EXPECT_THAT(output, HasSubstr("%  "));
  EXPECT_THAT(output, HasSubstr(" steps/s  eta 0:"));
}

TEST(ProgressInAPipe, EtaCountsTheEpochsThatAreLeft) {
  const std::string output = written({.total = 100, .line_seconds = 0}, [](Progress& progress) {
    progress.start_epoch(1, 1000000);
    sleep_ms(20);
    progress.advance(50);  // at most 2,500 per second: 10^8 steps take more than 11 hours
    progress.end_epoch();
  });
  EXPECT_THAT(output,
              MatchesRegex("epoch       1/1000000   50%  [0-9,]+ steps/s  eta [0-9][0-9]+:[0-9][0-9]:[0-9][0-9]\n.*"));
}

TEST(ProgressInAPipe, RateLeavesOutWhatFollowsTheLastStep) {
  const std::string output = written({.unit = "images"}, [](Progress& progress) {
    progress.start_epoch(1);
    sleep_ms(10);
    progress.advance(50);  // about 5,000 per second
    sleep_ms(250);         // an evaluation; if it counted, the rate would be below 200
    progress.end_epoch("ok");
  });
  EXPECT_THAT(output, MatchesRegex("epoch 1  ok  [0-9],[0-9]+ images/s  0.2[0-9]* s\n"));
}

// The number before " steps/s" in each line.
std::vector<double> rates(const std::string& output) {
  std::vector<double> found;
  for (std::size_t end = 0; (end = output.find(" steps/s", end)) != std::string::npos; ++end) {
    std::string digits = output.substr(0, end);
    digits.erase(0, digits.rfind(' ') + 1);
    std::erase(digits, ',');
    found.push_back(std::stod(digits));
  }
  return found;
}

TEST(ProgressInAPipe, RateIsSmoothed) {
  const std::string output = written({.line_seconds = 0}, [](Progress& progress) {
    sleep_ms(10);
    progress.advance(100000);
    sleep_ms(10);
    progress.advance(1);  // much slower: contributes weight 0.3 of almost nothing
  });
  const std::vector<double> rate = rates(output);
  ASSERT_EQ(rate.size(), 2u) << output;
  EXPECT_NEAR(rate[1] / rate[0], 0.7, 0.02);
}

TEST(ProgressInAPipe, TimeBetweenEpochsDoesNotSlowTheRate) {
  const std::string output = written({.line_seconds = 0.1}, [](Progress& progress) {
    progress.start_epoch(1);
    sleep_ms(5);
    progress.advance(100000);
    sleep_ms(200);  // two evaluations, before and after end_epoch()
    progress.end_epoch();
    sleep_ms(200);
    progress.start_epoch(2);
    sleep_ms(5);
    progress.advance(1);
  });
  const std::vector<double> rate = rates(output);
  EXPECT_NEAR(rate.back() / rate.front(), 0.7, 0.02) << output;
}

TEST(ProgressInAPipe, UnknownTotalCountsUp) {
  const std::string output = written({.unit = "rows", .label = "read", .line_seconds = 0},
                                     [](Progress& progress) { progress.advance(41234); });
  EXPECT_THAT(output, MatchesRegex("read  41,200 rows  [0-9,]+ rows/s\n"));
}

TEST(ProgressInAPipe, MoreThanTheTotalIsAHundredPercent) {
  const std::string output =
      written({.total = 10, .line_seconds = 0}, [](Progress& progress) { progress.advance(25); });
  EXPECT_THAT(output, MatchesRegex("100%  .*eta 0:00\n"));
}

TEST(ProgressInAPipe, LastStateIsNotLost) {
  const std::string output = written({.total = 10}, [](Progress& progress) { progress.advance(4); });
  EXPECT_THAT(output, MatchesRegex(" 40%  .*\n"));
}

TEST(ProgressInAPipe, NothingDoneNothingWritten) {
  EXPECT_THAT(written({.total = 10}, [](Progress& progress) { progress.start_epoch(1, 2); }), IsEmpty());
}

TEST(ProgressInAPipe, ValuesKeepTheirOrderAndAreReplaced) {
  const std::string output = written({}, [](Progress& progress) {
    progress.set("loss", 1);
    progress.set("acc", "bad");
    progress.set("loss", "low");
    progress.set("acc", 0.123456);
    progress.end_epoch();
  });
  EXPECT_THAT(output, MatchesRegex("loss low  acc 0.1235  .* s\n"));
}

TEST(ProgressInAPipe, TextIsMadeOneCleanLine) {
  const std::string output = written({.label = "a\nb"}, [](Progress& progress) {
    progress.set("\x1b[1m", "\r\xC2\x85\xff\xC3\xA4\xE2\x82");
    progress.set("surrogate", "\xED\xA0\x80");
    progress.set("overlong", "\xE0\x80\x80");
    progress.end_epoch();
  });
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_THAT(output, ::testing::StartsWith("a b   [1m   " + bad + "\xC3\xA4" + bad + bad + "  surrogate " + bad + bad +
                                            bad + "  overlong " + bad + bad + bad + "  "));
  EXPECT_THAT(output, ::testing::EndsWith(" s\n"));
}

TEST(ProgressInAPipe, DisabledWritesNothing) {
  EXPECT_THAT(written({.total = 1, .enabled = false, .line_seconds = 0},
                      [](Progress& progress) {
                        progress.start_epoch(1, 1);
                        progress.set("loss", 1.0);
                        progress.set("acc", "x");
                        progress.advance();
                        progress.end_epoch("done");
                      }),
              IsEmpty());
}

TEST(Progress, FailingOutputIsIgnored) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) {
    GTEST_SKIP() << "no /dev/full";
  }
  {
    Progress progress({.total = 10, .fd = full, .line_seconds = 0});
    progress.start_epoch(1, 1);
    progress.advance();
    progress.end_epoch();
    progress.advance();
    ::close(full);
  }
  SUCCEED();
}

TEST(Progress, WrongOptionsAreRefused) {
  EXPECT_THROW(Progress({.total = -1}), ConfigError);
  EXPECT_THROW(Progress({.fd = -1}), ConfigError);
  EXPECT_THROW(Progress({.line_seconds = -0.5}), ConfigError);
}

TEST(Progress, AdvanceTakesLessThanAMicrosecond) {
  constexpr int kCalls = 20000;
  double best = 1e9;  // best of several, because other programs may take the processor
  written({.total = kCalls}, [&](Progress& progress) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) {
        progress.advance();
      }
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls);
    }
  });
  EXPECT_LT(best, 1e-6);
}

}  // namespace
}  // namespace tandem
