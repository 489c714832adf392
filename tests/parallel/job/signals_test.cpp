#include <algorithm>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/job/launched.h"

namespace tandem::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> ranks_that(const char* what, const TempDir& folder, int ranks) {
  return {"-n", std::to_string(ranks), RANK_PROGRAM, what, folder.path()};
}

TEST(Signals, GoToAllRanks) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const TempDir folder;
    Launched launched(ranks_that("catch", folder, 2));
    pid_in(folder.file("pid0"));
    pid_in(folder.file("pid1"));
    launched.signal(number);
    const Outcome outcome = launched.wait();
    EXPECT_EQ(outcome.exit_code, 0);  // all ended well
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("[0] caught {}\n", number)));
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("[1] caught {}\n", number)));
    EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr(fmt::format("tandem run: stopped by signal {} (", number)));
  }
}

TEST(Signals, ThatEndRanksAreInTheExitCode) {
  const TempDir folder;
  Launched launched(ranks_that("wait", folder, 2));
  pid_in(folder.file("pid0"));
  pid_in(folder.file("pid1"));
  launched.signal(SIGTERM);
  EXPECT_EQ(launched.wait().exit_code, 128 + SIGTERM);
}

TEST(Signals, ASecondCtrlCKills) {
  const TempDir folder;
  Launched launched(ranks_that("stubborn", folder, 2));
  pid_in(folder.file("child0"));
  pid_in(folder.file("child1"));
  launched.signal(SIGINT);
  EXPECT_TRUE(eventually([&] {
    return launched.err().find("tandem run: SIGINT went to all ranks; once more kills them\n") != std::string::npos;
  }));
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(processes_with(folder.path()).size(), 6U);  // launcher, its guard, two ranks with a child each
  launched.signal(SIGINT);
  const double took = seconds_of([&] { EXPECT_EQ(launched.wait().exit_code, 128 + SIGKILL); });
  EXPECT_LT(took, 1.0);
  EXPECT_TRUE(eventually([&] { return processes_with(folder.path()).empty(); }, 1s));
}

TEST(Signals, WhoIgnoresThemIsKilledAfterTheLimit) {
  const TempDir folder;
  std::vector<std::string> arguments = ranks_that("stubborn", folder, 1);
  arguments.insert(arguments.begin(), {"--kill-timeout", "0.5"});
  Launched launched(arguments);
  pid_in(folder.file("child0"));
  launched.signal(SIGTERM);
  EXPECT_EQ(launched.wait(10s).exit_code, 128 + SIGKILL);
}

TEST(Signals, OfATerminalReachEachRankOnceAndRanksHaveColours) {
  const TempDir folder;
  int terminal = -1;
  const pid_t launcher = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (launcher == 0) {
    ::alarm(60);
    ::unsetenv("NO_COLOR");
    ::execl(TANDEM_TOOL, TANDEM_TOOL, "run", "-n", "2", RANK_PROGRAM, "catch", folder.path().c_str(), nullptr);
    ::_exit(126);
  }
  pid_in(folder.file("pid0"));
  pid_in(folder.file("pid1"));
  ASSERT_EQ(::write(terminal, "\x03", 1), 1);  // Ctrl-C
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(terminal, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(WEXITSTATUS(status), 0) << text;
  EXPECT_THAT(text, HasSubstr("\x1b[36m[0]\x1b[0m caught 2\r\n"));
  EXPECT_THAT(text, HasSubstr("\x1b[33m[1]\x1b[0m caught 2\r\n"));
  ::close(terminal);
}

TEST(Signals, CtrlZStopsRanksToo) {
  const TempDir folder;
  Launched launched(ranks_that("wait", folder, 2));
  const pid_t pids[] = {pid_in(folder.file("pid0")), pid_in(folder.file("pid1"))};
  launched.signal(SIGTSTP);
  for (const pid_t pid : {pids[0], pids[1], launched.pid()}) {
    EXPECT_TRUE(eventually([&] { return state_of(pid) == 'T'; })) << pid;
  }
  launched.signal(SIGCONT);
  for (const pid_t pid : {pids[0], pids[1], launched.pid()}) {
    EXPECT_TRUE(eventually([&] { return state_of(pid) != 'T'; })) << pid;
  }
  launched.signal(SIGTERM);
  EXPECT_EQ(launched.wait().exit_code, 128 + SIGTERM);
}

// A program built with ThreadSanitizer creates and removes a file at its start, which may be cut short.
std::vector<std::string> left_in(const TempDir& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (std::string name = entry.path().filename(); !name.starts_with("tsan.rodata.")) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

// The launcher may be starting ranks, forwarding output or waiting. The ranks and their children end within a second.
TEST(LauncherKilled, AtAnyMomentLeavesNothing) {
  constexpr int kRanks = 4;
  std::mt19937 random(20261122);
  double slowest = 0;
  int with_ranks = 0;
  for (int round = 0; round < 20; ++round) {
    const TempDir folder;
    const TempDir temporary;
    Launched launched(ranks_that("stubborn", folder, kRanks), false, {"TMPDIR=" + temporary.path()});
    // Odd rounds wait until ranks and children run; even rounds kill the launcher while it starts.
    for (int rank = 0; rank < kRanks && round % 2 == 1; ++rank) {
      pid_in(folder.file(fmt::format("child{}", rank)));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    with_ranks += std::filesystem::exists(folder.file("child3")) ? 1 : 0;
    slowest = std::max(slowest, seconds_of([&] {
                         launched.signal(SIGKILL);
                         EXPECT_TRUE(eventually([&] { return processes_with(folder.path()).empty(); }, 5s)) << round;
                       }));
    EXPECT_THAT(left_in(temporary), IsEmpty());
  }
  EXPECT_LT(slowest, 1.0);
  EXPECT_GE(with_ranks, 10);
  RecordProperty("slowest", fmt::format("{:.3f}", slowest));
}

// Models kill -9 for every process that looks like a launcher.
TEST(LauncherKilled, RanksDieEvenWhereTheGuardDiedFirst) {
  const TempDir folder;
  Launched launched(ranks_that("stubborn", folder, 2));
  const pid_t ranks[] = {pid_in(folder.file("pid0")), pid_in(folder.file("pid1"))};
  const pid_t children[] = {pid_in(folder.file("child0")), pid_in(folder.file("child1"))};
  int guards = 0;
  for (const pid_t pid : processes_with(folder.path())) {
    if (read_text(fmt::format("/proc/{}/comm", pid)) == "launch-guard\n") {
      ++guards;
      ::kill(pid, SIGKILL);
    }
  }
  EXPECT_EQ(guards, 1);
  launched.signal(SIGKILL);
  for (const pid_t pid : ranks) {
    EXPECT_TRUE(eventually([&] { return read_text(fmt::format("/proc/{}/cmdline", pid)).empty(); }, 1s));
  }
  for (const pid_t pid : children) {
    ::kill(pid, SIGKILL);  // no other process is left to do it
  }
}

TEST(LauncherKilled, AGuardThatWasKilledIsReplaced) {
  const TempDir folder;
  Launched launched(ranks_that("stubborn", folder, 2));
  const pid_t children[] = {pid_in(folder.file("child0")), pid_in(folder.file("child1"))};
  const auto guards = [&] {
    std::vector<pid_t> found;
    for (const pid_t pid : processes_with(folder.path())) {
      if (read_text(fmt::format("/proc/{}/comm", pid)) == "launch-guard\n") {
        found.push_back(pid);
      }
    }
    return found;
  };
  ASSERT_TRUE(eventually([&] { return guards().size() == 1; }));
  const pid_t first = guards().front();
  ::kill(first, SIGKILL);
  EXPECT_TRUE(eventually([&] {
    const std::vector<pid_t> found = guards();  // looked up once: the killed guard vanishes at any moment
    return found.size() == 1 && found.front() != first;
  }));
  EXPECT_TRUE(eventually([&] {
    return launched.err().find(fmt::format("(pid {}) was killed; there is a new one", first)) != std::string::npos;
  }));
  launched.signal(SIGKILL);
  for (const pid_t pid : children) {
    EXPECT_TRUE(eventually([&] { return read_text(fmt::format("/proc/{}/cmdline", pid)).empty(); }, 1s));
  }
}

TEST(LauncherKilled, StoppedRanksGoToo) {
  const TempDir folder;
  Launched launched(ranks_that("stubborn", folder, 2));
  const pid_t first = pid_in(folder.file("pid0"));
  pid_in(folder.file("pid1"));
  ::kill(first, SIGSTOP);
  launched.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return processes_with(folder.path()).empty(); }, 1s));
}

}  // namespace
}  // namespace tandem::test
