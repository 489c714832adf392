#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/parallel/comm/hosts/gloo_backend.h>

#include "help.h"
#include "support/process.h"
#include "support/temp_dir.h"

// Tests of the output and files of ddp_bench, not of speed.

namespace tandem::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class DdpBench : public ::testing::Test {
 protected:
  const std::vector<std::string> quick_{"--model", "12-16-10", "--batch", "8", "--rounds", "3", "--block-ms", "0"};
  TempDir dir_;

  nlohmann::json json(const char* program, std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), quick_.begin(), quick_.end());
    arguments.insert(arguments.end(), {"--json", "ddp.json"});
    const Outcome outcome = run_program(program, arguments, dir_.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::ifstream file(dir_.file("ddp.json"));
    return nlohmann::json::parse(file);
  }
};

void expect_whole(const nlohmann::json& result, int ranks, const std::string& backend) {
  EXPECT_EQ(result.at("ranks"), ranks);
  EXPECT_EQ(result.at("backend"), backend);
  EXPECT_LE(result.at("difference"), 1e-5);
  EXPECT_EQ(result.at("bucket_bytes").size(), 1U);
  EXPECT_GE(result.at("bucket_bytes").at(0), 4 * (12 * 16 + 16 + 16 * 10 + 10));
  EXPECT_GT(result.at("bound_us"), result.at("backward_us"));
  ASSERT_EQ(result.at("ways").size(), 11U);
  for (const nlohmann::json& way : result.at("ways")) {
    SCOPED_TRACE(way.dump());
    EXPECT_EQ(way.at("rows"), way.at("way") == "one rank's part" ? 8 : 8 * ranks);
    EXPECT_GT(way.at("us_per_step"), 0);
    EXPECT_GT(way.at("rate_to_one_rank"), 0);
    EXPECT_EQ(way.at("rounds_us").size(), 3U);
  }
}

TEST_F(DdpBench, TimesThreads) {
  expect_whole(json(DDP_BENCH, {}), 2, "local");
  expect_whole(json(DDP_BENCH, {"--ranks", "1"}), 1, "local");
}

TEST_F(DdpBench, TimesProcesses) {
  if (!parallel::has_gloo()) {
    GTEST_SKIP() << "this build has no Gloo";
  }
  expect_whole(json(TANDEM_PROGRAM, {"run", "-n", "2", "--", DDP_BENCH}), 2, "gloo");
}

TEST_F(DdpBench, CutsGradientsIntoBuckets) {
  const nlohmann::json result = json(DDP_BENCH, {"--bucket-mb", "0.0001"});
  EXPECT_EQ(result.at("bucket_bytes").size(), 4U);  // one bucket per parameter
}

TEST_F(DdpBench, PrintsATableWithTheBound) {
  const Outcome outcome = run_program(DDP_BENCH, quick_, dir_.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("12-16-10, ce, adam; 2 ranks over local, batch 8 of each, 1 thread per rank, "));
  EXPECT_THAT(outcome.out, HasSubstr("\nbound: "));
  EXPECT_THAT(outcome.out, HasSubstr("\nexchange: 1 bucket of "));
  EXPECT_THAT(outcome.err, HasSubstr("round 3 of 3\n"));
}

TEST_F(DdpBench, RefusesWhatItCannotDoOnOneLine) {
  const Outcome outcome = run_program(DDP_BENCH, {"--ranks", "0"}, dir_.path());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, StartsWith("error: --ranks: expected"));
}

TEST_F(DdpBench, HelpFitsOnAScreen) { expect_help_that_fits(DDP_BENCH, dir_.path()); }

}  // namespace
}  // namespace tandem::test
