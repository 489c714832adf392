#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "parallel/job/launched.h"
#include "support/process.h"

// Jobs for which the system's limits are too low. They end at once, and say which limit it was, and how to raise it.

namespace tandem::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

/// Runs a job of three ranks that meet and compute a sum, each after the shell commands `before`.
Outcome job_of_three(const std::string& before) {
  Outcome outcome;
  const double took = seconds_of([&] { outcome = run_script(3, before + "; exec '" GUARD_PROGRAM "' join"); });
  EXPECT_LT(took, 10) << before;
  return outcome;
}

/// Runs that job, or one of more ranks, with the limits of `before` for the launcher, too.
Outcome limited_job(const std::string& before, int ranks = 3) {
  Outcome outcome;
  const double took = seconds_of([&] {
    outcome = run_program(
        "/bin/sh", {"-c", fmt::format("{}; exec '{}' run -n {} '{}' join", before, TANDEM_TOOL, ranks, GUARD_PROGRAM)},
        ".");
  });
  EXPECT_LT(took, 10) << before;
  return outcome;
}

class Limits : public testing::Test {
 protected:
  void SetUp() override {
    if (IS_SANITIZED) {
      GTEST_SKIP() << "sanitizers need files and terabytes of addresses themselves";
    }
  }
};

TEST_F(Limits, OpenFilesOfRanks) {
  for (const int files : {5, 6, 7, 8, 9, 10}) {
    const std::string soft = fmt::format("ulimit -S -n {}", files);
    const Outcome outcome = job_of_three(soft);
    EXPECT_NE(outcome.exit_code, 0) << files;
    const std::string limit = fmt::format("Too many open files: the process may have {} (ulimit -n); ", files);
    EXPECT_THAT(outcome.out + outcome.err, HasSubstr(limit + "raise it before the start: ulimit -n 4096"));
    const Outcome hard = job_of_three(fmt::format("ulimit -n {}", files));
    EXPECT_THAT(hard.out + hard.err, HasSubstr(limit + "raise its hard limit"));
  }
}

TEST_F(Limits, OpenFilesOfOneRankAreNamedOnEveryRank) {
  const Outcome outcome = job_of_three("test $RANK != 1 || ulimit -n 10");
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("[{}] CommError init 1: ", rank)));
  }
  EXPECT_THAT(lines_of(outcome.out),
              testing::Each(HasSubstr("rank 1 of 3: cannot connect: Too many open files: the process may have 10 ")));
}

TEST_F(Limits, OpenFilesOfTheLauncher) {
  for (const int files : {6, 8, 9, 10, 12, 14, 16, 17, 18, 19, 20, 21}) {
    const Outcome outcome = limited_job(fmt::format("ulimit -n {}", files));
    EXPECT_NE(outcome.exit_code, 0) << files;
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("Too many open files: the process may have {} (ulimit -n)", files)));
  }
}

// All ranks start, and the last ones find no room in the store. The exact limit depends on the tests' own files.
TEST_F(Limits, OpenFilesOfTheStore) {
  for (int files = 40; files <= 48; ++files) {
    const Outcome outcome = limited_job(fmt::format("ulimit -n {}", files), 8);
    if (outcome.exit_code != 0) {
      EXPECT_THAT(outcome.err,
                  HasSubstr(fmt::format("Too many open files: the process may have {} (ulimit -n)", files)));
    }
  }
}

TEST_F(Limits, Threads) {
  const std::string other = "setpriv --reuid=65534 --regid=65534 --clear-groups ";
  if (run_program("/bin/sh", {"-c", other + "test -x '" TANDEM_TOOL "' -a -x '" GUARD_PROGRAM "'"}, "/").exit_code !=
      0) {
    GTEST_SKIP() << "cannot become another user who may run the programs; root has no limit";
  }
  for (const int threads : {2, 4, 6, 8, 10, 12}) {
    const Outcome outcome =
        run_program("/bin/sh",
                    {"-c", fmt::format("exec {}bash -c \"ulimit -u {}; exec '{}' run -n 3 '{}' join\"", other, threads,
                                       TANDEM_TOOL, GUARD_PROGRAM)},
                    "/");
    EXPECT_NE(outcome.exit_code, 0) << threads;
    EXPECT_THAT(outcome.out + outcome.err,
                HasSubstr(fmt::format("the user may have {} threads and processes (ulimit -u)", threads)));
  }
}

TEST_F(Limits, Memory) {
  for (const int kib : {28'750, 29'250, 30'000, 36'000, 42'000, 48'000}) {
    const Outcome outcome = limited_job(fmt::format("ulimit -v {}", kib));
    if (outcome.exit_code != 0) {
      EXPECT_THAT(outcome.out + outcome.err, AnyOf(HasSubstr("(ulimit -v)"), HasSubstr("out of host memory"))) << kib;
    }
  }
  EXPECT_NE(limited_job("ulimit -v 20000").exit_code, 0);
}

}  // namespace
}  // namespace tandem::test
