#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "idx_files.h"
#include "samples.h"

// Tests of the samples with ranks that are threads of one process: --parallel ddp, --ranks.

namespace example {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

class RankedSample : public Samples, public ::testing::WithParamInterface<const char*> {
 protected:
  Outcome run(const Arguments& arguments) const {
    return std::string(GetParam()) == "mlp" ? mlp(arguments) : regression(arguments);
  }
  std::string score() const { return std::string(GetParam()) == "mlp" ? "test_accuracy" : "test_rmse"; }

  // The metrics of a run of two epochs.
  std::vector<Record> metrics_of(const Arguments& more, int line = __builtin_LINE()) {
    const std::string folder = fmt::format("run{}", ++runs_);
    const Outcome outcome = run(with({"--epochs", "2", "--hidden", "16", "--quiet", "--out", folder}, more));
    EXPECT_EQ(outcome.exit_code, 0) << "line " << line << ": " << outcome.err;
    EXPECT_EQ(outcome.err, "") << "line " << line;
    std::vector<Record> read = metrics(folder);
    EXPECT_EQ(read.size(), 2u) << "line " << line;
    return read;
  }

 private:
  int runs_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Programs, RankedSample, ::testing::Values("mlp", "regression"),
                         [](const auto& program) { return std::string(program.param); });

void expect_near(const std::vector<Record>& got, const std::vector<Record>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t epoch = 0; epoch < got.size(); ++epoch) {
    for (const std::string& key : expected[epoch].keys()) {
      const double value = expected[epoch].number(key);
      EXPECT_NEAR(got[epoch].number(key), value, 1e-5 * std::abs(value)) << key << " after epoch " << epoch + 1;
    }
  }
}

TEST_P(RankedSample, OneRankGivesWhatAPlainRunGivesToTheLastDigit) {
  const std::vector<Record> plain = metrics_of({});
  EXPECT_EQ(metrics_of({"--parallel", "ddp"}), plain);
  EXPECT_EQ(metrics_of({"--ranks", "1"}), plain);
}

TEST_P(RankedSample, EverySampleIsTestedOnceHoweverManyRanksThereAre) {
  // A tiny learning rate keeps the weights as they were made.
  const Arguments still{"--optimizer", "sgd", "--lr", "1e-30", "--batch-size", "20"};
  const double one = metrics_of(still).back().number(score());
  for (const char* ranks : {"2", "3", "4"}) {  // 1797 and 4128 rows
    EXPECT_NEAR(metrics_of(with(still, {"--ranks", ranks})).back().number(score()), one, 1e-9 * one) << ranks;
  }
}

TEST_P(RankedSample, PrecisionF16LeavesOutTheSameStepsOnAllRanks) {
  // Rows for which some ranks make a step more than others (Join).
  const Arguments f16{"--ranks", "3", "--batch-size", "17", "--precision", "f16", "--lr", "0.005"};
  const std::vector<Record> epochs = metrics_of(f16);
  EXPECT_LT(epochs[1].number("train_loss"), epochs[0].number("train_loss"));
  for (const char* shard : {"optimizer", "gradients"}) {
    EXPECT_EQ(metrics_of(with(f16, {"--shard", shard})), epochs) << shard;
  }
  if (score() == "test_rmse") {
    EXPECT_GT(epochs[0].number("skipped_steps"), 0);
    EXPECT_LT(epochs[0].number("loss_scale"), 65536);
  }
}

TEST_P(RankedSample, MoreRanksThanDivideTheDataTrainOnAllOfIt) {
  const std::vector<Record> epochs = metrics_of({"--ranks", "5", "--batch-size", "16"});  // 3823 and 16512 rows
  EXPECT_LT(epochs[1].number("train_loss"), epochs[0].number("train_loss"));
  EXPECT_EQ(metrics_of({"--ranks", "5", "--batch-size", "16", "--devices", "cpu:1,cpu:2,cpu:3,cpu:4,cpu:5"}), epochs);
  EXPECT_EQ(metrics_of({"--ranks", "5", "--batch-size", "16", "--shard", "optimizer"}), epochs);
  // Ranks with fewer samples take some twice there.
  const std::vector<Record> padded = metrics_of({"--ranks", "5", "--batch-size", "16", "--shard", "parameters"});
  EXPECT_NEAR(padded[1].number("train_loss"), epochs[1].number("train_loss"), 0.02 * epochs[1].number("train_loss"));
}

TEST_P(RankedSample, LeadingRankSpeaksForAll) {
  const Outcome outcome = run({"--epochs", "2", "--hidden", "8", "--ranks", "2", "--json", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(lines_of(outcome.out), ::testing::SizeIs(3));
  const std::string batch = std::string(GetParam()) == "mlp" ? "64 images each in a step: the effective batch is 128"
                                                             : "128 rows each in a step: the effective batch is 256";
  int announced = 0;
  for (const std::string& line : lines_of(outcome.err)) {
    announced += line == "2 ranks with " + batch ? 1 : 0;
    EXPECT_FALSE(line.starts_with("epoch ") && !line.starts_with("epoch 1/2 ") && !line.starts_with("epoch 2/2 "));
  }
  EXPECT_EQ(announced, 1) << outcome.err;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(file("run"))) {
    files.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(files, UnorderedElementsAre("config.json", "environment.json", "metrics.jsonl", "curves.svg",
                                          "model.safetensors", "checkpoints", StartsWith("events.out.tfevents.")));
  EXPECT_EQ(metrics("run").size(), 2u);
  const Record config = parse_record(text("run/config.json"));
  EXPECT_EQ(config.at("parallel"), "ddp");
  EXPECT_EQ(config.at("ranks"), "2");
}

TEST_P(RankedSample, SaysWhereTheTimeOfTheLastEpochWent) {
  const bool is_mlp = std::string(GetParam()) == "mlp";
  const std::pair<Arguments, std::string> cases[] = {
      {{"--ranks", "2"}, is_mlp ? "29 steps on each of 2 ranks, " : "64 steps on each of 2 ranks, "},
      {{"--parallel", "dp", "--devices", "cpu:0,cpu:1"}, is_mlp ? "59 steps, " : "128 steps, "},
      {{}, is_mlp ? "59 steps, " : "128 steps, "}};
  for (const auto& [arguments, steps] : cases) {
    const Outcome outcome = run(with({"--epochs", "2", "--hidden", "8", "--report", "--quiet"}, arguments));
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.out, StartsWith(steps));
    EXPECT_THAT(outcome.out, ::testing::AllOf(HasSubstr("\n  optimizer "), HasSubstr("\ntest ")));
    EXPECT_EQ(outcome.err, "");
  }
}

TEST_P(RankedSample, TracesTheLastEpochOfAllRanks) {
  const Outcome outcome = run({"--ranks", "2", "--epochs", "2", "--hidden", "8", "--report", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("\nwhere the time went: run/report.html; open run/trace.json in "));
  const std::string trace = text("run/trace.json");
  EXPECT_THAT(trace, HasSubstr("\"rank 0 on "));
  EXPECT_THAT(trace, HasSubstr("\"rank 1 on "));
  EXPECT_THAT(trace, HasSubstr("\"name\":\"all_reduce\""));
  EXPECT_THAT(outcome.out, StartsWith(text("run/diagnosis.txt")));
  EXPECT_THAT(text("run/report.html"), ::testing::AllOf(HasSubstr("rank 1 on "), HasSubstr("2 ranks give about ")));
}

TEST_P(RankedSample, OneRankSaysHowManyItIs) {
  const Outcome outcome = run({"--epochs", "1", "--hidden", "8", "--parallel", "ddp"});
  EXPECT_THAT(outcome.err, HasSubstr("1 rank with "));
}

TEST_P(RankedSample, ErrorsSayWhichRankHadThem) {
  const std::string rows = std::string(GetParam()) == "mlp" ? "1912" : "8256";
  expect_error(run({"--ranks", "2", "--batch-size", "9000", "--quiet", "--out", "run"}),
               "--batch-size 9000 is larger than the training part (" + rows +
                   " samples for each rank); choose at most that\n  in rank 0 of 2");
  EXPECT_FALSE(std::filesystem::exists(file("run")));
  expect_error(run({"--ranks", "3", "--devices", "cpu:0,cpu:1", "--quiet"}),
               "--devices: 2 devices for 3 ranks on this host; expected one for each");
  const Outcome diverged = run({"--ranks", "2", "--optimizer", "sgd", "--lr", "1e30", "--quiet"});
  EXPECT_EQ(diverged.exit_code, 1);
  EXPECT_THAT(diverged.err, HasSubstr("\nerror: the loss is "));
}

TEST_P(RankedSample, OutThatHoldsSomethingEndsAllRanks) {
  std::filesystem::create_directory(file("run"));
  write("run/weights", "precious");
  const Outcome outcome = run({"--ranks", "2", "--out", "run", "--quiet"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, StartsWith("error: 'run': cannot use it as the run folder"));
  EXPECT_EQ(text("run/weights"), "precious");
}

// With 16512 rows, two ranks have 129 batches of 64, and one rank has 129 of 128.
TEST_F(Samples, RegressionOfTwoRanksIsThatOfOneWithTwiceTheBatch) {
  const Arguments short_run{"--epochs", "3", "--hidden", "16", "--quiet"};
  EXPECT_EQ(regression(with(short_run, {"--batch-size", "128", "--out", "one"})).exit_code, 0);
  EXPECT_EQ(regression(with(short_run, {"--batch-size", "64", "--ranks", "2", "--out", "two"})).exit_code, 0);
  EXPECT_EQ(regression(with(short_run, {"--batch-size", "32", "--ranks", "4", "--out", "four"})).exit_code, 0);
  expect_near(metrics("two"), metrics("one"));
  expect_near(metrics("four"), metrics("one"));
}

class UnevenRanks : public Samples, public ::testing::WithParamInterface<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Rows, UnevenRanks, ::testing::Values(60u, 61u, 62u, 65u, 71u),
                         ::testing::PrintToStringParamName());

// Numbers of rows that ranks or batches do not divide: last batches are shorter, and some ranks have one batch fewer.
TEST_P(UnevenRanks, TrainOnEverySampleOnceAsOneDoes) {
  std::filesystem::create_directory(file("d"));
  write("d/train-images-idx3-ubyte", images(GetParam()));
  write("d/train-labels-idx1-ubyte", labels(GetParam()));
  write("d/t10k-images-idx3-ubyte", images(31));
  write("d/t10k-labels-idx1-ubyte", labels(31));
  const Arguments short_run{"--data", "d", "--epochs", "4", "--hidden", "8", "--dropout", "0", "--quiet"};
  EXPECT_EQ(mlp(with(short_run, {"--batch-size", "12", "--out", "one"})).exit_code, 0);
  EXPECT_EQ(mlp(with(short_run, {"--batch-size", "6", "--ranks", "2", "--out", "two"})).exit_code, 0);
  EXPECT_EQ(mlp(with(short_run, {"--batch-size", "4", "--ranks", "3", "--out", "three"})).exit_code, 0);
  expect_near(metrics("two"), metrics("one"));
  expect_near(metrics("three"), metrics("one"));
  const std::string all = std::to_string((GetParam() + 1) / 2);  // rows of the first rank, which may have one more
  EXPECT_EQ(mlp(with(short_run, {"--batch-size", all, "--ranks", "2", "--out", "whole"})).exit_code, 0);
}

}  // namespace
}  // namespace example
