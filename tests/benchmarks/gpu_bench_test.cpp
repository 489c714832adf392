#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/core/cuda.h>
#include <tandem/data/npy.h>

#include "support/process.h"
#include "support/temp_dir.h"

// Tests of the output and files of gpu_bench, not of speed.

namespace tandem::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class GpuBench : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::is_available()) {
      GTEST_SKIP() << "no GPU";
    }
  }
  Outcome run(const std::vector<std::string>& arguments) const {
    return run_program(GPU_BENCH, arguments, dir_.path());
  }
  // The lines that it prints for sizes that need no GPU.
  std::vector<nlohmann::json> lines(const std::string& workloads) const {
    const Outcome outcome = run({"--smoke", "--workloads", workloads, "--export", "data"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::ofstream(dir_.file("lines.jsonl")) << outcome.out;
    std::vector<nlohmann::json> objects;
    for (const std::string& line : lines_of(outcome.out)) {
      objects.push_back(nlohmann::json::parse(line));
      EXPECT_GT(objects.back().at("us"), 0) << line;
      EXPECT_LE(objects.back().at("quartiles").at(0), objects.back().at("us")) << line;
      EXPECT_GE(objects.back().at("quartiles").at(1), objects.back().at("us")) << line;
    }
    return objects;
  }

  TempDir dir_;
};

TEST_F(GpuBench, StepsOfBothWaysHaveOneLoss) {
  const auto found = lines("W1,W3");
  ASSERT_EQ(found.size(), 6U);
  for (std::size_t i = 0; i < found.size(); i += 2) {
    EXPECT_EQ(found[i].at("variant"), "eager");
    EXPECT_EQ(found[i + 1].at("variant"), "captured");
    EXPECT_EQ(found[i].at("case"), found[i + 1].at("case"));
    EXPECT_EQ(found[i].at("loss_after_steps"), found[i + 1].at("loss_after_steps"));
    EXPECT_GT(found[i].at("floor_us"), 0);
  }
}

TEST_F(GpuBench, EveryOtherWorkloadRuns) {
  std::set<std::string> workloads;
  for (const nlohmann::json& line : lines("W0,W2,W4,W5,W7,host")) {
    workloads.insert(line.at("workload").get<std::string>());
  }
  EXPECT_THAT(workloads, ::testing::ElementsAre("W0", "W2", "W4", "W5", "W7", "host"));
}

TEST_F(GpuBench, WritesWhatPeersNeed) {
  lines("W1");
  std::ifstream file(dir_.file("data/cases.jsonl"));
  const nlohmann::json c = nlohmann::json::parse(file);
  EXPECT_EQ(c.at("model"), "12-16-12-10");
  EXPECT_EQ(data::load_npy(dir_.file(c.at("data").get<std::string>() + "/weight_0.npy")).shape(), (Shape{16, 12}));
  EXPECT_EQ(data::load_npy(dir_.file(c.at("data").get<std::string>() + "/y.npy")).dtype(), DType::i64);
}

TEST_F(GpuBench, ReportsRoundsPeersAndTheirFailures) {
  const auto found = lines("W1");
  const double loss = found[0].at("loss_after_steps");
  nlohmann::json peer = found[0];
  peer["engine"] = "pytorch";
  peer["variant"] = "eager";
  const auto report = [&](double peer_loss) {
    peer["loss_after_steps"] = peer_loss;
    std::ofstream file(dir_.file("lines.jsonl"), std::ios::app);
    file << peer << "\n"
         << nlohmann::json{{"workload", "W1"},
                           {"case", peer.at("case")},
                           {"engine", "pytorch"},
                           {"variant", "compile"},
                           {"failed", "no compiler"}}
         << "\n";
    file.close();
    return run({"--report", "lines.jsonl", "--out", "table"});
  };
  Outcome outcome = report(loss * (1 + 1e-5));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::ifstream file(dir_.file("table.md"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, HasSubstr("| W1 | 12-16-12-10 batch 4 f32 | pytorch eager | "));
  EXPECT_THAT(text, HasSubstr("| pytorch compile | | | | | no compiler |"));
  outcome = report(loss * 1.01);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("1 losses are not ours"));
}

// The GPU is three times as slow in the second round, and the first round has no peer.
TEST_F(GpuBench, ComparesWithPeersOfTheSameRound) {
  std::ofstream file(dir_.file("lines.jsonl"));
  const auto add = [&](int round, const char* engine, double us) {
    file << nlohmann::json{{"round", round}, {"workload", "W5"},   {"case", "loss"},        {"engine", engine},
                           {"us", us},       {"variant", "eager"}, {"quartiles", {us, us}}, {"host_us", 1}}
         << "\n";
  };
  add(0, "tandem", 10);
  add(1, "tandem", 10);
  add(1, "pytorch", 20);
  add(2, "tandem", 30);
  add(2, "pytorch", 60);
  file.close();
  const Outcome outcome = run({"--report", "lines.jsonl", "--out", "table"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("| W5 | loss | pytorch eager | 40.00 (20.00 to 60.00) |  | 2.00 |"));
}

TEST_F(GpuBench, CallsEachCaseOnceForAProfiler) {
  const Outcome outcome = run({"--once", "--smoke", "--workloads", "W5"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const std::string& line : lines_of(outcome.out)) {
    EXPECT_EQ(nlohmann::json::parse(line).at("calls_per_block"), 1);
  }
}

TEST_F(GpuBench, RefusesWhatItDoesNotKnow) {
  const Outcome outcome = run({"--workloads", "W1,W9"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, StartsWith("error: --workloads: expected some of W0 W1 W2 W3 W4 W5 W7 host"));
}

}  // namespace
}  // namespace tandem::test
