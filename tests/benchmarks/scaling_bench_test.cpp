#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "help.h"
#include "support/process.h"
#include "support/temp_dir.h"

// Tests of the output and files of scaling_bench, not of speed.

namespace tandem::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ScalingBench : public ::testing::Test {
 protected:
  Outcome run(std::vector<std::string> arguments) const {
    for (const char* quick : {"--model", "12-16-10", "--batch", "8", "--rounds", "2", "--block-ms", "0"}) {
      arguments.emplace_back(quick);
    }
    return run_program(SCALING_BENCH, arguments, dir_.path());
  }
  nlohmann::json json(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--json", "scaling.json"});
    const Outcome outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::ifstream file(dir_.file("scaling.json"));
    return nlohmann::json::parse(file);
  }
  static std::vector<std::string> ways_of(const nlohmann::json& result, const std::string& mode, int devices) {
    std::vector<std::string> names;
    for (const nlohmann::json& row : result.at("rows")) {
      if (row.at("mode") == mode && row.at("devices") == devices) {
        names.push_back(row.at("way"));
      }
    }
    return names;
  }

  TempDir dir_;
};

TEST_F(ScalingBench, WritesEveryWayWithItsPhases) {
  const nlohmann::json result = json({"--devices", "2"});
  EXPECT_EQ(result.at("model"), "12-16-10");
  EXPECT_EQ(result.at("rounds"), 2);
  EXPECT_LE(result.at("worst_difference"), 1e-5);
  for (const char* name : {"engine", "loss", "batch", "optimizer", "momentum", "lr", "device", "threads_per_device",
                           "clock", "disturbed", "left_out", "isa", "cpu"}) {
    EXPECT_TRUE(result.contains(name)) << name;
  }
  EXPECT_THAT(ways_of(result, "strong", 1), ElementsAre("plain", "dp", "dp_loss"));
  EXPECT_THAT(ways_of(result, "strong", 2), ElementsAre("one part", "plain threads", "dp", "dp_loss"));
  EXPECT_THAT(ways_of(result, "weak", 2), ElementsAre("plain threads", "dp", "dp_loss"));
  for (const nlohmann::json& row : result.at("rows")) {
    SCOPED_TRACE(row.dump());
    EXPECT_GT(row.at("us_per_step"), 0);
    EXPECT_GT(row.at("images_per_second"), 0);
    EXPECT_LE(row.at("efficiency_interval").at(0), row.at("efficiency"));
    EXPECT_GE(row.at("efficiency_interval").at(1), row.at("efficiency"));
    EXPECT_EQ(row.at("rounds_us").size(), 2U);
    EXPECT_TRUE(row.contains("of_threads"));
    EXPECT_EQ(row.at("phases_us").size(), 8U);
    const bool adds_up = row.at("devices") == 2 && row.at("way").get<std::string>().starts_with("dp");
    EXPECT_EQ(row.at("phases_us").at("reduce") > 0, adds_up);
    EXPECT_GT(row.at("phases_us").at("backward"), 0);
    EXPECT_GT(row.at("phases_us").at("optimizer"), 0);
  }
  EXPECT_THAT(result.at("reason").get<std::string>(), HasSubstr(", 2 devices: "));
}

TEST_F(ScalingBench, CutsTheBatchInStrongModeOnly) {
  const nlohmann::json result = json({"--devices", "4", "--optimizer", "sgd", "--loss", "mse"});
  for (const nlohmann::json& row : result.at("rows")) {
    if (row.at("way") == "dp") {
      EXPECT_EQ(row.at("batch"), row.at("mode") == "strong" ? 8 : 8 * row.at("devices").get<int>());
      EXPECT_EQ(row.at("threads"), row.at("devices"));
    }
    if (row.at("way") == "one part") {
      EXPECT_EQ(row.at("batch"), 8 / row.at("devices").get<int>());
      EXPECT_EQ(row.at("threads"), 1);
    }
  }
}

TEST_F(ScalingBench, TimesWhatIsAskedFor) {
  nlohmann::json result = json({"--devices", "2", "--mode", "weak", "--parallel", "dp", "--threads", "2"});
  EXPECT_THAT(ways_of(result, "strong", 2), ElementsAre());
  EXPECT_THAT(ways_of(result, "weak", 2), ElementsAre("dp", "dp_loss"));
  EXPECT_EQ(result.at("rows").back().at("threads"), 4);
  result = json({"--devices", "3", "--mode", "strong", "--parallel", "plain"});
  EXPECT_THAT(ways_of(result, "strong", 2), ElementsAre("one part", "plain threads"));
  EXPECT_THAT(ways_of(result, "strong", 3), ElementsAre("one part", "plain threads"));
  EXPECT_EQ(result.at("reason"), "");
}

TEST_F(ScalingBench, PrintsATableAndDrawsCurves) {
  const Outcome outcome = run({"--devices", "2", "--picture", "scaling.svg"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("12-16-10, ce, adam; cpu, 1 thread per device, "));
  EXPECT_THAT(outcome.out, HasSubstr("\nweak: batch 8 for each device\n"));
  EXPECT_THAT(outcome.err, HasSubstr("round 2 of 2\n"));
  std::ifstream file(dir_.file("scaling.svg"));
  const std::string picture((std::istreambuf_iterator<char>(file)), {});
  for (const char* text : {"images/s", "efficiency", "plain threads", "dp_loss"}) {
    EXPECT_THAT(picture, HasSubstr(text));
  }
}

TEST_F(ScalingBench, RefusesWhatItCannotDoOnOneLine) {
  const auto error_of = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = run_program(SCALING_BENCH, arguments, dir_.path());
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_EQ(error_of({"--devices", "4", "--batch", "3"}),
            "error: --batch: expected at least a row for each of the 4 devices, got '3'\n");
  EXPECT_EQ(error_of({"--devices", "64", "--threads", "5"}),
            "error: --threads: expected at most 4, as 64 devices may have 256 together, got '5'\n");
  EXPECT_THAT(error_of({"--device", "cuda", "--devices", "64"}), StartsWith("error: --device"));
}

TEST_F(ScalingBench, HelpFitsOnAScreen) { expect_help_that_fits(SCALING_BENCH, dir_.path()); }

}  // namespace
}  // namespace tandem::test
