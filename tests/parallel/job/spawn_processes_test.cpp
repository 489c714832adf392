#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/job/launched.h"

namespace tandem::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::UnorderedElementsAre;

Outcome spawn_program(const std::vector<std::string>& arguments) {
  const TempDir folder;
  return run_program(SPAWN_PROGRAM, arguments, folder.path());
}

TEST(SpawnProcesses, EachCallRunsItsOwnFunctionOnceAsEachRank) {
  const Outcome outcome = spawn_program({"several", "an argument"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  // All processes of later calls pass the code between the calls.
  std::vector<std::string> lines = lines_of(outcome.out);
  const auto between = std::count(lines.begin(), lines.end(), "between, 1 thread");
  EXPECT_EQ(between, 1 + 3 + 3);
  std::erase(lines, "between, 1 thread");
  EXPECT_THAT(
      lines, UnorderedElementsAre("first 0 of 2 an argument", "first 1 of 2 an argument", "loop 0 rank 0 an argument",
                                  "loop 0 rank 1 an argument", "loop 0 rank 2 an argument", "loop 1 rank 0 an argument",
                                  "loop 1 rank 1 an argument", "loop 1 rank 2 an argument", "end"));
  EXPECT_EQ(lines.back(), "end");
}

TEST(SpawnProcesses, DrawNumbersOfTheirOwn) {
  const Outcome outcome = spawn_program({"draw"});
  std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 3U);
  std::sort(lines.begin(), lines.end());
  const std::string parents = lines[0].substr(lines[0].rfind(' '));
  EXPECT_EQ(lines[1], "rank 0 draws" + parents);  // the caller would have drawn the same numbers
  EXPECT_NE(lines[2], "rank 1 draws" + parents);
}

TEST(SpawnProcesses, HaveADefaultGroup) {
  const std::vector<std::string> lines = lines_of(spawn_program({"group"}).out);
  EXPECT_THAT(lines,
              UnorderedElementsAre("rank 0 has 6 over gloo", "rank 1 has 6 over gloo", "rank 2 has 6 over gloo"));
}

TEST(SpawnProcesses, GoOnWithoutARankThatThrows) {
  const Outcome outcome = spawn_program({"elastic"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(lines_of(outcome.out), UnorderedElementsAre("rank 0 of 3", "rank 1 of 3", "rank 2 of 3", "rank 0 of 2",
                                                          "rank 1 of 2", "the parent goes on"));
  EXPECT_THAT(outcome.err, HasSubstr("error: std::runtime_error: its own words"));
}

TEST(SpawnProcesses, AnExceptionReachesTheParentAndAllRanks) {
  const Outcome outcome = spawn_program({"throw"});
  EXPECT_EQ(outcome.exit_code, 1);
  const std::string cause = "rank 1 \\(pid [0-9]+ on .+\\) threw std::runtime_error: its own words";
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 4U) << outcome.out;
  EXPECT_THAT(lines, Contains(MatchesRegex("rank 0 heard: .*" + cause + ".*")));
  EXPECT_THAT(lines, Contains(MatchesRegex("rank 2 heard: .*" + cause + ".*")));
  EXPECT_EQ(lines[2], "std::runtime_error: its own words");
  EXPECT_EQ(lines[3], "  in rank 1 of 3");
}

TEST(SpawnProcesses, AnErrorKeepsItsType) {
  EXPECT_THAT(lines_of(spawn_program({"shape"}).out).front(), MatchesRegex("ShapeError: .*\\[2\\].*\\[3\\].*"));
  EXPECT_EQ(lines_of(spawn_program({"shape"}).out).back(), "  in rank 0 of 1");
}

// Many long lines at the same time, in small writes.
TEST(SpawnProcesses, TearNoLines) {
  const Outcome outcome = spawn_program({"chatter"});
  const std::vector<std::string> lines = lines_of(outcome.out);
  EXPECT_EQ(lines.size(), 3U * 200U);
  for (const std::string& line : lines) {
    EXPECT_THAT(line, MatchesRegex("(0(,0)*|1(,1)*|2(,2)*)")) << line;
  }
}

TEST(SpawnProcesses, AKilledOneIsNamedWithItsSignal) {
  const std::vector<std::string> lines = lines_of(spawn_program({"kill"}).out);
  const std::string cause = "rank 1 \\(pid [0-9]+ on .+\\) was killed by signal 9 \\(SIGKILL\\)";
  EXPECT_THAT(lines, Contains(MatchesRegex("rank 0 heard: .*" + cause + ".*")));
  EXPECT_THAT(lines.back(), MatchesRegex("CommError peer_lost 1: spawn: " + cause));
}

TEST(SpawnProcesses, AMainThatTakesAnotherWayIsAnError) {
  const Outcome outcome = spawn_program({"another way"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("error: spawn: a rank's process came to the end of main() without the call that it "
                        "was made for (1 "));
  EXPECT_THAT(
      outcome.out,
      MatchesRegex("CommError peer_lost [01]: spawn: rank [01] .* ended with exit code 1: error: spawn: a rank's "
                   "process came to the end of main\\(\\) .*\n"));
}

TEST(SpawnProcesses, RefuseWhatCannotBeMeant) {
  EXPECT_THAT(spawn_program({"nested"}).out,
              HasSubstr("error: spawn: called within a rank; ranks have no ranks of their own"));
  const Outcome launched = run_ranks({"-n", "2", SPAWN_PROGRAM, "one"});
  EXPECT_THAT(launched.out,
              HasSubstr("[0] error: spawn: a launcher has already made this process rank 0 (RANK is set), "
                        "and 1 ranks in each of its processes are not meant: either start this program "
                        "without the launcher, or call the function without spawn()"));
}

}  // namespace
}  // namespace tandem::test
