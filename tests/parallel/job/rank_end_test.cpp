#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/job/attempt.h>
#include <tandem/parallel/job/rank_end.h>

namespace tandem::parallel {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr int kExit3 = 3 << 8;

TEST(WordsAtTheEnd, AreTheLastErrorAndWhatBelongsToIt) {
  EXPECT_EQ(words_at_the_end({}), "");
  EXPECT_EQ(words_at_the_end({"epoch 1", "epoch 2"}), "epoch 2");
  EXPECT_EQ(words_at_the_end({"epoch 1", "error: Linear 'fc1': 5 features", "  in replica 0 of 2"}),
            "error: Linear 'fc1': 5 features  in replica 0 of 2");
  EXPECT_EQ(words_at_the_end({"error: disk full", "tandem: warning: a process group was destroyed"}),
            "error: disk full");
  EXPECT_EQ(words_at_the_end({"terminate called after throwing an instance of 'X'", "  what():  its cause"}),
            "terminate called after throwing an instance of 'X'  what():  its cause");
  EXPECT_EQ(words_at_the_end({"  all", "  indented"}), "  indented");
}

TEST(RankEnd, IsSaidInWords) {
  EXPECT_EQ(rank_name(2, 4711, "node7"), "rank 2 (pid 4711 on node7)");
  EXPECT_EQ(end_text(SIGKILL), "was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(end_text(kExit3), "ended with exit code 3");
  EXPECT_EQ(exit_code_of(SIGKILL), 137);
  EXPECT_EQ(exit_code_of(kExit3), 3);
  EXPECT_EQ(number_list({0, 2, 3, 4, 7, 8}), "0, 2-4, 7, 8");
}

TEST(RankEnd, IsReadBackFromAVerdict) {
  EXPECT_EQ(rank_in("rank 12 (pid 1 on a) threw: x"), 12);
  for (const char* text :
       {"", "rank", "rank (pid 1 on a)", "rank -1 (pid 1 on a)", "rank 1", "rank 99999999999 (pid 1"}) {
    EXPECT_EQ(rank_in(text), -1) << text;
  }
  EXPECT_EQ(without_pid("rank 12 (pid 1 on a) threw: pid"), "rank 12 (on a) threw: pid");
  EXPECT_EQ(without_pid("nobody"), "nobody");
}

TEST(FailureReport, FitsOnAScreenAndEndsWithTheCause) {
  AttemptResult result{
      .outcome = {.cause = "rank 3 (pid 103 on a) ended\nbadly", .rank = 3}, .after = 1.5, .log = "/l/rank3.err"};
  for (int rank = 0; rank < 64; ++rank) {
    result.ends.push_back({rank, 100 + rank, (rank % 20) << 8, 1.0, ""});
  }
  for (int i = 0; i < 20; ++i) {
    result.last_lines.push_back(std::string(300, 'x') + "\x1b[2J");
  }
  const std::string report = failure_report(result, "restart 1 of 2 follows in 1 s");
  EXPECT_LE(std::count(report.begin(), report.end(), '\n'), 24);
  EXPECT_EQ(report.find('\x1b'), std::string::npos);
  EXPECT_THAT(report, HasSubstr(", all in /l/rank3.err:\n    xxx"));
  EXPECT_THAT(report, EndsWith("\ntandem run: restart 1 of 2 follows in 1 s\n"
                               "tandem run: rank 3 (pid 103 on a) ended badly\n"));
}

}  // namespace
}  // namespace tandem::parallel
