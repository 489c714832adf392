#include <array>
#include <chrono>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/job/launched.h"
#include "support/process.h"
#include "support/reserved_port.h"

// Processes that join a job and leave it, under `tandem run` and without a launcher, where rank 0 hosts the store.

namespace tandem::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// Starts ranks with torchrun's plain variables; `sizes` gives each rank's WORLD_SIZE. A shell starts the ranks, since
/// a test with threads must not fork.
std::vector<Outcome> plain_ranks(const std::string& what, const std::vector<int>& sizes = {2, 2}) {
  const ReservedPort port;
  const TempDir folder;
  std::string script;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    script += fmt::format(
        "(RANK={0} WORLD_SIZE={1} MASTER_ADDR=127.0.0.1 MASTER_PORT={2} '{3}' '{4}' > out{0} 2> err{0}; echo $? > "
        "code{0}) & ",
        rank, sizes[rank], port.number(), GUARD_PROGRAM, what);
  }
  run_program("/bin/sh", {"-c", script + "wait"}, folder.path());
  std::vector<Outcome> outcomes;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    Outcome outcome;
    outcome.out = read_text(folder.file(fmt::format("out{}", rank)));
    outcome.err = read_text(folder.file(fmt::format("err{}", rank)));
    outcome.exit_code = std::stoi(read_text(folder.file(fmt::format("code{}", rank))));
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

std::vector<std::string> outputs(const std::vector<Outcome>& outcomes) {
  std::vector<std::string> texts;
  for (const Outcome& outcome : outcomes) {
    texts.push_back(fmt::format("{} {} {}", outcome.exit_code, outcome.signal, outcome.out));
  }
  return texts;
}

TEST(Guard, JoinsWithoutALauncher) { EXPECT_THAT(outputs(plain_ranks("join")), Each("0 0 sum 3\n")); }

TEST(Guard, IsLeftAtOnceWhateverOutlivesIt) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(outputs(plain_ranks("outlive")), Each("0 0 left\n"));
  EXPECT_LT(std::chrono::steady_clock::now() - start,
            std::chrono::seconds(20));  // 30 s would mean that the rank waited for itself
}

TEST(Guard, CanJoinAgain) {
  std::string ten_sums = "0 0 ";
  for (int i = 0; i < 10; ++i) {
    ten_sums += "sum 3\n";
  }
  EXPECT_THAT(outputs(plain_ranks("join again")), Each(ten_sums));
}

TEST(Guard, CanJoinAgainAfterErrors) {
  EXPECT_THAT(outputs(plain_ranks("join after errors", {3, 3, 3})), Each("0 0 joined\n"));
}

TEST(Guard, CanTryAgain) {
  for (const std::string& text : outputs(plain_ranks("try again"))) {
    EXPECT_THAT(text, HasSubstr("sum 3\n"));
  }
}

TEST(Guard, ThatNeverWentIsALostRank) {
  const std::vector<Outcome> outcomes = plain_ranks("end in the middle");
  EXPECT_EQ(outcomes[1].exit_code, 3);
  EXPECT_EQ(outcomes[0].exit_code, 1);
  EXPECT_THAT(outcomes[0].out, StartsWith("CommError aborted 1: "));
  EXPECT_THAT(outcomes[0].out, HasSubstr("ended with exit code 3"));
}

TEST(Guard, ComparesTheNumberOfRanks) {
  EXPECT_THAT(
      outputs(plain_ranks("join", {2, 3})),
      ElementsAre("1 0 CommError init 1: init_process_group: rank 1 was started as one of 3 ranks, and rank 0 as "
                  "one of 2\n",
                  "1 0 CommError init 0: init_process_group: rank 0 was started as one of 2 ranks, and rank 1 as "
                  "one of 3\n"));
}

TEST(Guard, TakesItsNumberAsAnArgumentUnderTheLauncher) {
  const Outcome outcome = run_ranks({"-n", "2", GUARD_PROGRAM, "arguments"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(lines_of(outcome.out), testing::UnorderedElementsAre("[0] sum 3", "[1] sum 3"));
}

TEST(Guard, WhatARankThrewIsTheLastThingThatTheLauncherSays) {
  const Outcome outcome = run_ranks({"-n", "2", GUARD_PROGRAM, "throw"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(
      lines_of(outcome.err).back(),
      testing::MatchesRegex("tandem run: process group: rank 0 is lost: it left its work by an exception: the disk is "
                            "full \\[TDM-E618\\]; rank 0 \\(pid [0-9]+ on .+\\) ended with exit code 1"));
}

// A rank 1 without a rank 0, a rank 0 alone, and one of very many.
TEST(Guard, WhoWaitsSaysForWhom) {
  const std::array<ReservedPort, 3> ports;
  const TempDir folder;
  std::string script = "all=; ";
  for (const auto& [rank, size, port] :
       {std::tuple{1, 2, ports[0].number()}, {0, 3, ports[1].number()}, {0, 999'999, ports[2].number()}}) {
    script += fmt::format(
        "RANK={} WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} '{}' join > /dev/null 2> err{} & "
        "all=\"$all $!\"; ",
        rank, size, port, GUARD_PROGRAM, size);
  }
  script += "for i in $(seq 200); do [ -s err2 ] && [ -s err3 ] && [ -s err999999 ] && break; sleep 0.1; done; ";
  run_program("/bin/sh", {"-c", script + "kill -KILL $all; wait"}, folder.path());
  EXPECT_EQ(read_text(folder.file("err2")),
            fmt::format("tandem: rank 1 of 2 waits for rank 0, whose store is to be at 127.0.0.1:{} (Connection "
                        "refused)\n",
                        ports[0].number()));
  EXPECT_EQ(read_text(folder.file("err3")), "tandem: waiting for ranks 1, 2; 1 of 3 are here\n");
  EXPECT_EQ(read_text(folder.file("err999999")), "tandem: rank 0 waits for the other 999998 ranks\n");
}

}  // namespace
}  // namespace tandem::test
