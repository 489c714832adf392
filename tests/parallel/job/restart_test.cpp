#include <csignal>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/job/launched.h"

namespace tandem::test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(Restarts, EachAttemptHasAStoreOfItsOwn) {
  // The ranks of the second attempt would find leftovers of the first one in the store.
  const TempDir folder;
  const std::string pid = folder.file("pid");
  const Outcome outcome = run_script(
      2,
      fmt::format("echo $$ > {}$RANK; {} meet x || exit 9; echo attempt $TORCHELASTIC_RESTART_COUNT; ", pid,
                  RANK_PROGRAM) +
          fmt::format("if [ $TORCHELASTIC_RESTART_COUNT$RANK = 01 ]; then {} kill -KILL $$; fi; exit 0",
                      until_noticed_end(pid + "0")),  // otherwise rank 0 would hear of it while it still meets
      {"--max-restarts", "3"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* line : {"[0] attempt 0\n", "[1] attempt 0\n", "[0] attempt 1\n", "[1] attempt 1\n"}) {
    EXPECT_THAT(outcome.out, HasSubstr(line));
  }
  EXPECT_THAT(outcome.out, Not(HasSubstr("attempt 2")));
  EXPECT_THAT(outcome.err, HasSubstr("\ntandem run: restart 1 of 3 follows in 1 s\ntandem run: rank 1 (pid "));
}

TEST(Restarts, EndAfterSoMany) {
  const Outcome outcome = run_script(1, "kill -KILL $$", {"--max-restarts", "1"});
  EXPECT_EQ(outcome.exit_code, 137);
  EXPECT_THAT(outcome.err, HasSubstr("restart 1 of 1 follows"));
  EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr("was killed by signal 9 (SIGKILL)"));
}

TEST(Restarts, TheSameFailureAtTheSamePlaceIsNotTriedAgain) {
  const Outcome outcome = run_script(2, "echo 'error: step 7: loss is NaN' >&2; [ $RANK = 1 ] && exit 3; sleep 30",
                                     {"--max-restarts", "9"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("restart 1 of 9 follows"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("restart 2 of 9 follows")));
  EXPECT_THAT(outcome.err, HasSubstr("\ntandem run: deterministic failure: "));
  EXPECT_THAT(lines_of(outcome.err).back(),
              MatchesRegex("tandem run: rank 1 .* ended with exit code 3: error: step 7: loss is NaN"));
}

TEST(Restarts, ARankThatObeyedASignalHasStoppedTheJob) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Outcome outcome = run_script(2, fmt::format("[ $RANK = 1 ] && exit {}; sleep 30", 128 + signal),
                                       {"--max-restarts", "3", "--kill-timeout", "2"});
    EXPECT_EQ(outcome.exit_code, 128 + signal);
    EXPECT_THAT(outcome.err, Not(HasSubstr("restart 1 of 3")));
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("ended with exit code {}: it was asked to stop, and so is the job\n",
                                                   128 + signal)));
    EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr(fmt::format("tandem run: stopped by signal {} (", signal)));
  }
}

TEST(Restarts, ARankThatObeyedASignalLeavesTheOthersTimeToSave) {
  const TempDir folder;
  const Outcome outcome =
      run_script(2,
                 fmt::format("trap 'sleep 1; echo saved; exit 143' TERM; echo $$ > {0}$RANK; "
                             "while [ ! -s {0}0 ] || [ ! -s {0}1 ]; do sleep 0.01; done; "
                             "[ $RANK = 1 ] && {{ kill -TERM $(cat {0}0); exit 143; }}; while :; do sleep 0.05; done",
                             folder.file("pid")),
                 {"--max-restarts", "3"});
  EXPECT_EQ(outcome.exit_code, 143);
  EXPECT_THAT(outcome.out, HasSubstr("[0] saved\n"));
}

TEST(Restarts, AtAnotherPlaceIsAnotherFailure) {
  const Outcome outcome = run_script(
      1, "echo error: step $TORCHELASTIC_RESTART_COUNT >&2; [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && exit 3; exit 0",
      {"--max-restarts", "2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(Restarts, LogsOfLaterAttemptsFollow) {
  const TempDir folder;
  for (int run = 0; run < 2; ++run) {  // a second run starts afresh
    const Outcome outcome = run_script(
        1, "echo error: $TORCHELASTIC_RESTART_COUNT >&2; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3; exit 0",
        {"--max-restarts", "2", "--log-dir", folder.path()});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(read_text(folder.file("rank0.err")), "error: 0\nerror: 1\n");
  }
}

}  // namespace
}  // namespace tandem::test
