#include <csignal>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/job/launched.h"

// One rank fails: the messages for the other ranks and for the user.

namespace tandem::test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

/// Ranks that have joined and wait for each other forever.
class Waiting : public testing::Test {
 protected:
  void start(int ranks, std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"-n", std::to_string(ranks)});
    flags.insert(flags.end(), {RANK_PROGRAM, "wait", folder_.path()});
    launched_ = std::make_unique<Launched>(flags);
    for (int rank = 0; rank < ranks; ++rank) {
      pids_.push_back(pid_in(folder_.file(fmt::format("pid{}", rank))));
    }
  }
  std::string name(int rank) const {
    return fmt::format("rank {} (pid {} on {})", rank, pids_[static_cast<std::size_t>(rank)], host_name());
  }
  static std::string last_line(const Outcome& outcome) {
    const std::vector<std::string> lines = lines_of(outcome.err);
    return lines.empty() ? "nothing" : lines.back();
  }

  TempDir folder_;
  std::unique_ptr<Launched> launched_;
  std::vector<pid_t> pids_;
};

TEST_F(Waiting, TheOthersHearAtOnceWhoWasKilledAndHow) {
  start(3);
  const double took = seconds_of([&] {
    ::kill(pids_[1], SIGKILL);
    EXPECT_TRUE(eventually([&] { return processes_with(folder_.path()).size() <= 2; }));
  });
  EXPECT_LT(took, 1.0);  // before any SIGTERM
  const Outcome outcome = launched_->wait();
  EXPECT_EQ(outcome.exit_code, 128 + 9);
  const std::string cause = name(1) + " was killed by signal 9 (SIGKILL)";
  EXPECT_THAT(outcome.err, HasSubstr("[0] heard: " + cause + "\n"));
  EXPECT_THAT(outcome.err, HasSubstr("[2] heard: " + cause + "\n"));
  EXPECT_THAT(outcome.err, HasSubstr("\n  ranks 0, 2: ended with exit code 7\n"));
  EXPECT_EQ(last_line(outcome), "tandem run: " + cause);
}

TEST_F(Waiting, AStoppedRankIsNamedWithinTheLimit) {
  start(2, {"--heartbeat-limit", "2", "--kill-timeout", "20"});
  Outcome outcome;
  const double took = seconds_of([&] {
    ::kill(pids_[1], SIGSTOP);
    outcome = launched_->wait();
  });
  EXPECT_GT(took, 1.0);  // the rank may have been silent before it was stopped; the message gives the total time
  EXPECT_LT(took, 2.5 + 1 + 1);  // the limit, SIGTERM a second later, and the time to wake the rank for SIGTERM
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_THAT(outcome.err, HasSubstr("[0] heard: " + name(1) + " has sent no heartbeat for 2."));
  EXPECT_THAT(last_line(outcome), HasSubstr("tandem run: " + name(1) + " has sent no heartbeat for 2."));
}

TEST_F(Waiting, AStoppedRankThatWakesInTimeGoesOn) {
  start(2, {"--heartbeat-limit", "4"});  // the last heartbeat may be a second old when the rank is stopped
  ::kill(pids_[1], SIGSTOP);
  std::this_thread::sleep_for(800ms);
  ::kill(pids_[1], SIGCONT);
  std::this_thread::sleep_for(4500ms);
  EXPECT_EQ(lines_of(launched_->err()).size(), 1U) << launched_->err();
}

TEST(Failure, TheRootCauseComesLastAndFitsOnAScreen) {
  const TempDir folder;
  const std::string pid = folder.file("pid");
  const Outcome outcome = run_script(
      6, fmt::format("case $RANK in 2) for i in $(seq 100); do echo line $i >&2; done; {} echo 'error: loss is NaN' "
                     ">&2; exit 3;; 4) echo $$ > {}; exit 0;; *) sleep 30;; esac",
                     until_noticed_end(pid), pid));
  EXPECT_EQ(outcome.exit_code, 3);
  const std::size_t start = outcome.err.find("tandem run: the job failed after ");
  ASSERT_NE(start, std::string::npos) << outcome.err;
  const std::vector<std::string> report = lines_of(outcome.err.substr(start));
  EXPECT_LE(report.size(), 24U);
  EXPECT_THAT(outcome.err.substr(start), HasSubstr("\n  ranks 0, 1, 3, 5: ended by the launcher's SIGTERM\n"));
  EXPECT_THAT(outcome.err.substr(start), HasSubstr("\n  rank 4: ended with exit code 0\n"));
  EXPECT_THAT(outcome.err.substr(start), HasSubstr("    line 99\n    line 100\n    error: loss is NaN\n"));
  EXPECT_THAT(report.back(),
              MatchesRegex("tandem run: rank 2 \\(pid [0-9]+ on .+\\) ended with exit code 3: error: loss "
                           "is NaN"));
}

TEST(Failure, SigtermComesASecondLaterAndSigkillAfterTheLimit) {
  const TempDir folder;
  Outcome outcome;
  double took_from_failure = 0;
  const double took = seconds_of([&] {
    // Wait until the other rank ignores SIGTERM.
    Launched launched(
        {"-n", "2", "--kill-timeout", "1", "sh", "-c",
         fmt::format("if [ $RANK = 1 ]; then {} echo $$ > {}; exit 3; fi; exec {} stubborn {}",
                     until_written(folder.file("child0")), folder.file("fails"), RANK_PROGRAM, folder.path())});
    pid_in(folder.file("fails"));
    took_from_failure = seconds_of([&] { outcome = launched.wait(); });
  });
  EXPECT_GT(took, 2.0);
  EXPECT_LT(took_from_failure, 4.0);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("\n  rank 0: did not end by SIGTERM, and had to be killed\n"));
  EXPECT_TRUE(eventually([&] { return processes_with(folder.path()).empty(); }));  // nor does its child survive
}

TEST(Failure, WhatARankLeavesBehindEndsWithIt) {
  const TempDir folder;
  const Outcome outcome =
      run_script(2, fmt::format("sleep 30.{} & echo $! > {}/$RANK; sleep 0.1", ::getpid(), folder.path()));
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* rank : {"0", "1"}) {
    const pid_t child = pid_in(folder.file(rank));
    EXPECT_TRUE(eventually([&] { return read_text(fmt::format("/proc/{}/cmdline", child)).empty(); }, 5s));
  }
}

TEST(Failure, ARankThatEndsWellWithoutAGoodbyeIsNamedToTheOthers) {
  Outcome outcome;
  const double took = seconds_of([&] { outcome = run_ranks({"-n", "3", RANK_PROGRAM, "drop", "exit"}); });
  EXPECT_LT(took, 30.0);  // the other ranks would wait for 60 s
  const char* const cause = "rank 1 \\(pid [0-9]+ on .+\\) ended with exit code 0 in the middle of its job";
  EXPECT_THAT(lines_of(outcome.err).back(), MatchesRegex(fmt::format("tandem run: {}", cause)));
  EXPECT_THAT(outcome.err, HasSubstr("[0] heard: rank 1 (pid "));
  EXPECT_THAT(outcome.err, HasSubstr("[2] heard: rank 1 (pid "));
  EXPECT_EQ(outcome.exit_code, 7);
}

TEST(Failure, ARankThatLeavesEarlyIsNone) {
  const Outcome outcome = run_ranks({"-n", "3", RANK_PROGRAM, "drop", "leave"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(Failure, AnErrorThatARankReportsIsPrintedAsPeopleReadIt) {
  const Outcome outcome = run_ranks({"-n", "2", RANK_PROGRAM, "drop", "report"});
  EXPECT_THAT(lines_of(outcome.err).back(),
              MatchesRegex("tandem run: process group: its ranks made different calls; rank 1 \\(pid [0-9]+ on .+\\) "
                           "ended with exit code 5"));
  EXPECT_EQ(outcome.exit_code, 5);
}

// A rank's own report arrives before its process ends.
TEST(Failure, OfThoseSeenTogetherTheOneThatWasKilledIsNamed) {
  const Outcome outcome = run_script(2, "[ $RANK = 1 ] && kill -KILL $$; sleep 30");
  EXPECT_EQ(outcome.exit_code, 137);
  EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr("was killed by signal 9 (SIGKILL)"));
}

}  // namespace
}  // namespace tandem::test
