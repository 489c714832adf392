#include <csignal>
#include <filesystem>
#include <map>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/job/launched.h"

namespace tandem::test {
namespace {

using ::testing::HasSubstr;

/// Each line of `text` must be "[r] <r i xxx>" with i counting up for each rank; returns how many there were.
std::map<int, int> count_whole_lines(const std::string& text, int streams) {
  std::map<int, int> counts;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("tandem run: ")) {
      continue;
    }
    const int rank = line[1] - '0';
    const int number = std::atoi(line.c_str() + 7);
    const std::string expected =
        fmt::format("[{0}] <{0} {1} {2}>", rank, number, std::string(static_cast<std::size_t>(number * 7 % 120), 'x'));
    if (line != expected) {
      ADD_FAILURE() << "not whole: " << line;
      return counts;
    }
    const int seen = counts[rank]++;
    if (streams == 1) {
      EXPECT_EQ(number, seen);
    }
  }
  return counts;
}

TEST(RanksOutput, NoLineIsEverSplit) {
  Launched launched({"-n", "4", RANK_PROGRAM, "lines", "10000"}, true);
  const Outcome outcome = launched.wait();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(count_whole_lines(outcome.out, 2), (std::map<int, int>{{0, 20000}, {1, 20000}, {2, 20000}, {3, 20000}}));
}

TEST(RanksOutput, StaysOnItsStream) {
  const Outcome outcome = run_ranks({"-n", "2", RANK_PROGRAM, "lines", "500"});
  EXPECT_EQ(count_whole_lines(outcome.out, 1), (std::map<int, int>{{0, 500}, {1, 500}}));
  EXPECT_EQ(count_whole_lines(outcome.err, 1), (std::map<int, int>{{0, 500}, {1, 500}}));
}

TEST(RanksOutput, LongLinesAndLinesWithoutAnEndAreKept) {
  const Outcome outcome = run_script(2, "head -c 300000 /dev/zero | tr '\\0' y; echo; printf 'no end'");
  EXPECT_EQ(outcome.exit_code, 0);
  const std::string line(300000, 'y');
  std::vector<std::string> lines = lines_of(outcome.out);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"[0] no end", "[0] " + line, "[1] no end", "[1] " + line}));
  EXPECT_TRUE(outcome.out.ends_with("no end\n"));
}

TEST(RanksOutput, GoesToAFileForEachRank) {
  const TempDir folder;
  const std::string logs = folder.file("a/b");
  const Outcome outcome = run_script(2,
                                     "echo out $RANK; echo err $RANK >&2; if [ $RANK = 1 ]; then " +
                                         until_written(logs + "/rank0.err") + "exit 3; fi; sleep 20",
                                     {"--log-dir", logs});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.out, "");
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(read_text(fmt::format("{}/rank{}.out", logs, rank)), fmt::format("out {}\n", rank));
    EXPECT_EQ(read_text(fmt::format("{}/rank{}.err", logs, rank)), fmt::format("err {}\n", rank));
  }
  EXPECT_THAT(outcome.err,
              HasSubstr(fmt::format("the last lines of rank 1 on stderr, all in {}/rank1.err:\n    err 1\n", logs)));
  const Outcome refused = run_script(1, "true", {"--log-dir", "/proc/none"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.err, "error: cannot make the folder '/proc/none': No such file or directory\n");
}

// Names that others have planted in the folder neither lead elsewhere nor hold the launcher up.
TEST(RanksOutput, GoesToNoFileOutsideOfItsFolder) {
  const TempDir folder;
  const std::string victim = folder.file("victim");
  write_text(victim, "precious");
  const std::string plant = fmt::format("mkdir {0}/logs; cd {0}/logs; ", folder.path());
  for (const std::string& planted : {fmt::format("ln -s {} rank0.out", victim), fmt::format("ln {} rank0.out", victim),
                                     std::string("mkfifo rank0.out"), std::string("mkdir rank0.out")}) {
    run_program("/bin/sh", {"-c", plant + planted}, folder.path());
    const Outcome outcome = run_script(1, "echo out", {"--log-dir", folder.file("logs")});
    EXPECT_EQ(outcome.exit_code, 1) << planted;
    EXPECT_THAT(outcome.err, HasSubstr("error: cannot write a rank's output to '" + folder.file("logs/rank0.out'")));
    EXPECT_EQ(read_text(victim), "precious") << planted;
    std::filesystem::remove_all(folder.file("logs"));
  }
}

TEST(RanksOutput, IsForNobodyElse) {
  const TempDir folder;
  run_script(1, "echo out", {"--log-dir", folder.file("new/logs")});
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(folder.file("new/logs")).permissions(), perms::owner_all);
  EXPECT_EQ(std::filesystem::status(folder.file("new/logs/rank0.out")).permissions(),
            perms::owner_read | perms::owner_write);
}

TEST(RanksOutput, ThatCannotBeWrittenIsAnError) {
  const TempDir folder;
  const Outcome outcome = run_program(
      "/bin/sh", {"-c", fmt::format("{} run -n 2 {} lines 100 > /dev/full", TANDEM_TOOL, RANK_PROGRAM)}, folder.path());
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("error: cannot write the output of ranks to 'stdout or stderr': No space left"));
  const Outcome closed =
      run_program("/bin/sh", {"-c", fmt::format("{} run -n 2 {} lines 3000 | head -n 1", TANDEM_TOOL, RANK_PROGRAM)},
                  folder.path());
  EXPECT_EQ(lines_of(closed.out).size(), 1U);
}

TEST(RanksOutput, WithoutAReaderEndsTheJob) {
  const TempDir folder;
  const std::string endless = "while true; do echo line; sleep 0.05; done";
  Outcome outcome;
  const double took = seconds_of([&] {
    outcome = run_program(
        "/bin/bash",
        {"-c", fmt::format("{} run -n 2 sh -c '{}' | head -n 3; echo code ${{PIPESTATUS[0]}}", TANDEM_TOOL, endless)},
        folder.path());
  });
  EXPECT_LT(took, 10);
  EXPECT_EQ(lines_of(outcome.out).size(), 4U);
  EXPECT_EQ(lines_of(outcome.out).back(), "code 141");  // 128 + SIGPIPE
  EXPECT_THAT(outcome.err, HasSubstr("tandem run: stopped by signal 13 (SIGPIPE): nobody reads the output any more\n"));
}

// The reader may be a held terminal or a pager: the launcher still notices deaths.
TEST(RanksOutput, ThatNobodyReadsHoldsUpNothingElse) {
  const TempDir folder;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::alarm(60);
    ::dup2(ends[1], STDOUT_FILENO);
    const std::string script =
        fmt::format("if [ $RANK = 0 ]; then yes {0}; fi; echo $$ > {0}/pid; sleep 1; exit 6", folder.path());
    ::execl(TANDEM_TOOL, TANDEM_TOOL, "run", "-n", "2", "--kill-timeout", "1", "sh", "-c", script.c_str(), nullptr);
    ::_exit(126);
  }
  ::close(ends[1]);
  EXPECT_GT(pid_in(folder.file("pid")), 0);
  EXPECT_TRUE(
      eventually([&] { return processes_with(folder.path()).size() <= 2; }, 10s));  // the launcher and its guard
  char buffer[65536];
  while (::read(ends[0], buffer, sizeof buffer) > 0) {
  }
  int status = 0;
  EXPECT_EQ(::waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(WEXITSTATUS(status), 6);
  ::close(ends[0]);
}

}  // namespace
}  // namespace tandem::test
