#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/core/isa.h>
#include <tandem/data/npy.h>

#include "help.h"
#include "support/process.h"
#include "support/temp_dir.h"

// Tests of the output of step_bench, not of speed.

namespace tandem::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class StepBench : public ::testing::Test {
 protected:
  Outcome run(std::vector<std::string> arguments) const {
    for (const char* quick : {"--blocks", "3", "--block-ms", "0"}) {
      arguments.emplace_back(quick);
    }
    return run_program(STEP_BENCH, arguments, dir_.path());
  }
  nlohmann::json json(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Outcome outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(lines_of(outcome.out).size(), 1U);
    return nlohmann::json::parse(outcome.out);
  }

  TempDir dir_;
};

const std::vector<std::vector<std::string>> kCases{
    {"--model", "10-1", "--loss", "mse", "--batch", "32", "--optimizer", "sgd"},
    {"--model", "12-20-10", "--batch", "16", "--optimizer", "sgd"},
    {"--model", "30-40-50-7", "--batch", "33", "--optimizer", "adam", "--threads", "2"},
    {"--model", "64-96-1000", "--batch", "40", "--optimizer", "sgd", "--momentum", "0.9", "--threads", "2"},
    {"--model", "5-4-3", "--loss", "mse", "--batch", "1", "--optimizer", "adam"},
    {"--model", "lenet", "--batch", "3", "--optimizer", "sgd", "--momentum", "0.9", "--threads", "2"},
    {"--model", "resnet20", "--batch", "2", "--optimizer", "sgd", "--check-steps", "2"},
    {"--model", "64-128-10", "--batch", "32", "--optimizer", "adam", "--precision", "medium"},
    {"--model", "pinn", "--batch", "16", "--optimizer", "adam", "--check-steps", "5"},
};

TEST_F(StepBench, PrintsOneObjectAndBothLossesAgree) {
  for (const std::string mode : {"eager", "captured"}) {
    for (auto arguments : kCases) {
      SCOPED_TRACE(mode + " " + arguments[1]);
      arguments.insert(arguments.end(), {"--mode", mode});
      const nlohmann::json result = json(arguments);
      EXPECT_EQ(result.at("engine"), "tandem");
      EXPECT_EQ(result.at("mode"), mode);
      EXPECT_EQ(result.at("model"), arguments[1]);
      EXPECT_GT(result.at("us_per_step"), 0);
      EXPECT_GT(result.at("floor_us"), 0);
      EXPECT_LE(result.at("interval").at(0), result.at("ratio"));
      EXPECT_GE(result.at("interval").at(1), result.at("ratio"));
      EXPECT_EQ(result.at("blocks"), 3);
      EXPECT_EQ(result.at("isa"), core::to_string(core::isa()));
      const double loss = result.at("loss_after_steps");
      const double tolerance = result.at("products") == "bf16" ? 2e-2 : 1e-4;
      EXPECT_NEAR(loss, result.at("floor_loss_after_steps"), tolerance * loss);
      for (const char* name : {"loss", "batch", "optimizer", "momentum", "lr", "threads", "disturbed", "left_out",
                               "clock", "steps_per_block", "check_steps", "cpu"}) {
        EXPECT_TRUE(result.contains(name)) << name;
      }
    }
  }
}

TEST_F(StepBench, AgreesForEveryInstructionSet) {
  for (const core::Isa isa : core::available_isas()) {
    ::setenv("TANDEM_CPU_ISA", core::to_string(isa), 1);
    EXPECT_EQ(json(kCases[2]).at("isa"), core::to_string(isa));
  }
  ::unsetenv("TANDEM_CPU_ISA");
}

TEST_F(StepBench, PrintsATableForPeople) {
  const Outcome outcome = run(kCases[0]);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, StartsWith("10-1, mse, batch 32, sgd, lr 0.001, precision highest; 1 thread, "));
  EXPECT_THAT(outcome.out, HasSubstr("\nratio "));
  EXPECT_LE(lines_of(outcome.out).size(), 10U);
}

TEST_F(StepBench, ExportsWhatItTrainsOn) {
  json({"--model", "12-20-10", "--batch", "16", "--export", "data/small"});
  EXPECT_EQ(data::load_npy(dir_.file("data/small/x.npy")).shape(), (Shape{16, 12}));
  EXPECT_EQ(data::load_npy(dir_.file("data/small/y.npy")).dtype(), DType::i64);
  EXPECT_EQ(data::load_npy(dir_.file("data/small/weight_1.npy")).shape(), (Shape{10, 20}));
  EXPECT_EQ(data::load_npy(dir_.file("data/small/bias_0.npy")).shape(), (Shape{20}));
  json({"--model", "lenet", "--batch", "2", "--check-steps", "1", "--export", "data/net"});
  EXPECT_EQ(data::load_npy(dir_.file("data/net/x.npy")).shape(), (Shape{2, 1, 28, 28}));
  EXPECT_EQ(data::load_npy(dir_.file("data/net/3.weight.npy")).shape(), (Shape{16, 6, 5, 5}));
}

TEST_F(StepBench, RefusesWhatItCannotDoOnOneLine) {
  const auto error_of = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  for (const char* model : {"10", "10-", "-1", "10-0", "10x1", "10-1-", "10-9999999"}) {
    EXPECT_EQ(error_of({"--model", model}),
              "error: --model: expected two or more sizes from 1 to 1000000 with '-' between them, or lenet, resnet20, "
              "resnet18, pinn, got '" +
                  std::string(model) + "'\n");
  }
  EXPECT_EQ(error_of({"--model", "lenet", "--loss", "mse"}),
            "error: --loss: expected ce for a net, which classifies, got 'mse'\n");
  EXPECT_EQ(error_of({"--optimizer", "lion"}), "error: --optimizer: expected sgd or adam, got 'lion'\n");
  EXPECT_EQ(error_of({"--thread", "2"}), "error: unknown flag --thread; did you mean --threads?\n");
  EXPECT_THAT(error_of({"--mode", "fast"}), StartsWith("error: --mode: expected eager, captured or fused"));
}

TEST_F(StepBench, HelpFitsOnAScreen) { expect_help_that_fits(STEP_BENCH, dir_.path()); }

}  // namespace
}  // namespace tandem::test
