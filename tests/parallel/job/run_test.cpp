#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/job/launched.h"

namespace tandem::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

TEST(TandemRun, TellsEachRankWhoItIs) {
  const Outcome outcome = run_ranks({"-n", "2", "--max-restarts", "1", RANK_PROGRAM, "who"},
                                    {"TANDEM_NUM_THREADS=3", "TANDEM_JOB_TOKEN_FILE=/nowhere", "RANK=7"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string rest =
      "GROUP_RANK=0 GROUP_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=1 "
      "TANDEM_STORE_HOSTED=1 TANDEM_NUM_THREADS=3 TANDEM_JOB_TOKEN_FILE=(unset) run=16 token=64 port=true";
  EXPECT_THAT(lines_of(outcome.out),
              UnorderedElementsAre("[0] RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 " + rest,
                                   "[1] RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 " + rest));
}

TEST(TandemRun, SharesTheCoresAndSaysSoOnce) {
  ::unsetenv("TANDEM_NUM_THREADS");
  const Outcome outcome = run_ranks({"-n", "64", RANK_PROGRAM, "who"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, StartsWith("tandem run: 64 ranks, 1 thread each (TANDEM_NUM_THREADS), store at 127.0.0.1:"));
  EXPECT_THAT(outcome.out, HasSubstr(" TANDEM_NUM_THREADS=1 "));
}

TEST(TandemRun, RanksMeetInItsStore) {
  const Outcome outcome = run_ranks({"-n", "3", RANK_PROGRAM, "meet", "us"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[2] met 3 ranks of us\n"));
}

TEST(TandemRun, PassesArgumentsOnAsTheyAre) {
  const Outcome outcome = run_ranks(
      {"--", "sh", "-c", "for a in \"$@\"; do echo \"<$a>\"; done", "-n", "--help", "", "a b", "$HOME", "--"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "[0] <--help>\n[0] <>\n[0] <a b>\n[0] <$HOME>\n[0] <-->\n");
}

TEST(TandemRun, ARankHasItsOwnGroupAndNothingOfTheLaunchersButThePageOfItsProgress) {
  const Outcome outcome = run_ranks({"-n", "2", RANK_PROGRAM, "descriptors"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const std::string& line : lines_of(outcome.out)) {
    EXPECT_THAT(line, ::testing::MatchesRegex("\\[[01]\\] 0 1 2 [0-9]+ stdin=-1 group=true mask=1"));
  }
}

TEST(TandemRun, TheExitCodeIsThatOfTheFirstRankThatFailed) {
  EXPECT_EQ(run_script(3, "exit 0").exit_code, 0);
  EXPECT_EQ(run_script(3, "[ $RANK = 1 ] && exit 42; sleep 30; exit 5").exit_code, 42);
  EXPECT_EQ(run_script(2, "[ $RANK = 0 ] && kill -SEGV $$; sleep 30").exit_code, 128 + 11);
  // Later occurrences do not count.
  const TempDir folder;
  const std::string pid = folder.file("pid");
  const std::string fails = fmt::format("if [ $RANK = 2 ]; then echo $$ > {}; exit 4; fi; ", pid);
  EXPECT_EQ(run_script(3, fails + until_noticed_end(pid) + "exit 5").exit_code, 4);
}

TEST(TandemRun, SeesEndsEvenWhereItsParentIgnoresThem) {
  const TempDir folder;
  const Outcome outcome = run_program(
      "/bin/sh", {"-c", fmt::format("trap '' CHLD; exec {} run -n 2 sh -c 'exit 5'", TANDEM_TOOL)}, folder.path());
  EXPECT_EQ(outcome.exit_code, 5) << outcome.err;
}

TEST(TandemRun, ARankThatEndsWellEarlierIsNoFailure) {
  const TempDir folder;
  const std::string pid = folder.file("pid");
  const Outcome outcome = run_script(3, fmt::format("if [ $RANK = 1 ]; then echo $$ > {}; echo done; exit; fi; ", pid) +
                                            until_noticed_end(pid) + "echo done");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(lines_of(outcome.out), UnorderedElementsAre("[0] done", "[1] done", "[2] done"));
  EXPECT_THAT(outcome.out, StartsWith("[1] done\n"));
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
}

TEST(TandemRun, AProgramThatIsNotThereIsSaidBeforeAnythingStarts) {
  const auto error_of = [](const std::string& program) {
    const Outcome outcome = run_ranks({"-n", "3", program});
    EXPECT_EQ(outcome.exit_code, 127);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  const TempDir folder;
  EXPECT_EQ(error_of("no-such-program"), "error: there is no program 'no-such-program' in PATH\n");
  EXPECT_EQ(error_of("./no-such-program"), "error: there is no program './no-such-program'\n");
  EXPECT_EQ(error_of(folder.path()), fmt::format("error: '{}' is no program, but a folder\n", folder.path()));
  const std::string text = folder.write("text", "hello");
  EXPECT_EQ(error_of(text), fmt::format("error: '{0}' is not executable: chmod +x {0}\n", text));
  // Only the system can detect that the file is not a program. No shell tries to run it.
  std::filesystem::permissions(text, std::filesystem::perms::owner_all);
  const Outcome outcome = run_ranks({text});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(fmt::format("error: cannot execute {}: Exec format error", text)));
}

TEST(TandemRun, WrongUseIsOneLineAndExitCodeTwo) {
  const auto error_of = [](const std::vector<std::string>& arguments, const std::vector<std::string>& variables = {}) {
    const Outcome outcome = run_ranks(arguments, variables);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_EQ(error_of({}), "error: a program must follow, as in tandem run -n 2 ./mlp\n");
  EXPECT_EQ(error_of({"-n", "0", "true"}),
            "error: --nproc-per-node: expected a whole number from 1 to 4096, auto, cpu or gpu, got '0'\n");
  EXPECT_EQ(error_of({"--nprocs", "2", "true"}), "error: unknown flag --nprocs; --help lists all flags\n");
  EXPECT_EQ(error_of({"--nnodes", "2", "true"}),
            "error: --rdzv: 2 hosts need an address of node 0 that the others reach, as in --rdzv 10.0.0.1:29500\n");
  EXPECT_EQ(error_of({"--nnodes", "2", "--rdzv", "here", "true"}),
            "error: --rdzv: expected host:port, as in 10.0.0.1:29500 or [::1]:29500, got 'here'\n");
  EXPECT_EQ(error_of({"--node-rank", "1", "true"}),
            "error: --node-rank: expected a whole number below --nnodes, 1, got '1'\n");
  EXPECT_EQ(error_of({"--standalone", "--nnodes=2", "true"}),
            "error: --standalone: is for one host, and --nnodes is 2\n");
  EXPECT_EQ(error_of({"-n", "4", "--elastic", "5", "true"}),
            "error: --elastic: expected a whole number up to --nproc-per-node, 4, got '5'\n");
  EXPECT_EQ(error_of({"-n", "4", "--elastic", "2", "--nnodes", "2", "--rdzv", "10.0.0.1:29500", "true"}),
            "error: --elastic: is for ranks on one host, and --nnodes is 2; --max-restarts works there\n");
}

TEST(TandemRun, TakesTorchrunsSpellingsAndItsVariables) {
  EXPECT_EQ(run_ranks({"--nproc_per_node=2", "--max_restarts", "0", RANK_PROGRAM, "meet", "a"}).exit_code, 0);
  EXPECT_EQ(
      lines_of(run_ranks({"true"}, {"PET_NPROC_PER_NODE=3", "PET_NNODES=1", "PET_MASTER_ADDR=10.9.8.7"}).err)[0].substr(
          0, 19),
      "tandem run: 3 ranks");
  const Outcome wrong = run_ranks({"true"}, {"PET_NNODES=many"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_EQ(wrong.err, "error: PET_NNODES='many': expected a whole number of 1 or more\n");
  EXPECT_EQ(run_ranks({"-n", "auto", "true"}).exit_code, 0);
}

TEST(TandemRun, HelpHasExamplesAndFits) {
  const Outcome outcome = run_ranks({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("\nExamples:\n  tandem run -n 2 "));
  for (const std::string& line : lines_of(outcome.out)) {
    EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST(TandemRun, LeavesNothingBehind) {
  const TempDir temporary;
  EXPECT_EQ(run_ranks({"-n", "2", RANK_PROGRAM, "meet", temporary.path()}, {"TMPDIR=" + temporary.path()}).exit_code,
            0);
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
  EXPECT_TRUE(processes_with(temporary.path()).empty());
}

}  // namespace
}  // namespace tandem::test
