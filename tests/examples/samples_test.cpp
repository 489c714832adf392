#include "samples.h"

#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Tests of the samples' promises to users and scripts: streams, exit codes, files.

namespace example {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class EachSample : public Samples, public ::testing::WithParamInterface<const char*> {
 protected:
  Outcome run(const Arguments& arguments) const {
    return std::string(GetParam()) == "mlp" ? mlp(arguments) : regression(arguments);
  }
};

INSTANTIATE_TEST_SUITE_P(Programs, EachSample, ::testing::Values("mlp", "regression"),
                         [](const auto& program) { return std::string(program.param); });

TEST_P(EachSample, HelpFitsEightyColumnsAndHasExamples) {
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* flag : {"--data PATH",
                           "--epochs N",
                           "--batch-size N",
                           "--lr RATE",
                           "--optimizer NAME",
                           "--hidden N,N,...",
                           "--device NAME",
                           "--parallel",
                           "--devices NAME,NAME,...",
                           "--ranks N",
                           "--threads N",
                           "--seed N",
                           "--out PATH",
                           "--resume PATH",
                           "--checkpoint-every N",
                           "--precision NAME",
                           "--shard NAME",
                           "--captured",
                           "--report",
                           "--json",
                           "--quiet",
                           "--help"}) {
    EXPECT_THAT(outcome.out, HasSubstr(flag));
  }
  EXPECT_THAT(outcome.out, HasSubstr("\nExamples:\n  " + std::string(GetParam()) + " "));
  for (const std::string& line : lines_of(outcome.out)) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_P(EachSample, UnknownFlagIsRefusedWithASuggestion) {
  expect_error(run({"--epoch", "3"}), "unknown flag --epoch; did you mean --epochs?", 2);
  expect_error(run({"--weight_decay", "0"}), "unknown flag --weight_decay; did you mean --weight-decay?", 2);
}

TEST_P(EachSample, WrongValueSaysWhatWasExpected) {
  for (const char* value : {"nan", "inf", "-1", "1e400", "x", ""}) {
    expect_error(run({"--weight-decay", value}),
                 "--weight-decay: expected a finite number not below 0, got '" + std::string(value) + "'", 2);
  }
  expect_error(run({"--device", "cpu:99"}),
               "--device: device 'cpu:99': there are 8 logical CPU devices (cpu:0 to cpu:7); set TANDEM_CPU_DEVICES "
               "for more",
               2);
}

TEST_P(EachSample, TrainsAsReplicas) {
  const Outcome outcome = run(
      {"--epochs", "2", "--hidden", "8", "--parallel", "dp", "--devices", "cpu:0,cpu:1", "--quiet", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Record config = parse_record(text("run/config.json"));
  EXPECT_EQ(config.at("parallel"), "dp");
  EXPECT_EQ(config.at("devices"), "cpu:0,cpu:1");
  EXPECT_EQ(config.at("device"), "cpu:0");
}

TEST_P(EachSample, DevicesThatDoNotFitAreRefused) {
  for (const auto& [arguments, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--devices", "cpu:0,cpu:1"},
            "error: --devices: goes with --parallel dp or ddp; for one device there is --device"},
           {{"--parallel", "dp", "--devices", "cpu:0,cpu:1", "--device", "cpu:1"},
            "error: --device: is for one device; with --parallel dp there is --devices"},
           {{"--parallel", "dp", "--devices", "cpu:0,cpu:99"}, "error: --devices: device 'cpu:99': "},
           {{"--parallel", "dp", "--devices", "cpu:0,cpu:0"},
            "error: --devices: expected different devices with commas between them, like cpu:0,cpu:1, got "
            "'cpu:0,cpu:0'"},
           {{"--parallel", "dp", "--devices", "cpu:0,cpu:1", "--captured"},
            "error: --captured: a step over several devices or ranks cannot be captured yet"},
           {{"--ranks", "2", "--captured"},
            "error: --captured: a step over several devices or ranks cannot be captured yet"},
           {{"--ranks", "2", "--parallel", "dp"}, "error: --ranks: goes with --parallel ddp"},
           {{"--shard", "optimizer"}, "error: --shard: goes with --parallel ddp"},
           {{"--ranks", "2", "--devices", "cpu:0,cpu:1", "--device", "cpu:1"},
            "error: --device: is for one device; with --parallel ddp there is --devices"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, StartsWith(message));
    EXPECT_THAT(lines_of(outcome.err), ::testing::SizeIs(1));
  }
}

TEST_P(EachSample, GpuThatIsNotThereIsRefused) {
  const Outcome outcome = run({"--device", "cuda:99"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, StartsWith("error: --device: device 'cuda:99': "));
  EXPECT_THAT(lines_of(outcome.err), ::testing::SizeIs(1));
}

TEST_P(EachSample, ResultsGoToStdoutAndTheStoryToStderr) {
  const Outcome outcome = run({"--epochs", "2", "--hidden", "8", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(StartsWith("test "), HasSubstr("2 epochs in "), Not(HasSubstr("epoch 1/2")),
                    HasSubstr("\nrun folder: run  (config.json, metrics.jsonl, curves.svg, model.safetensors)\n")));
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(" to train, "), HasSubstr("epoch 1/2  loss "), HasSubstr("epoch 2/2  loss "),
                                 Not(HasSubstr("run folder"))));
}

TEST_P(EachSample, QuietLeavesStderrEmpty) {
  const Outcome outcome = run({"--epochs", "1", "--hidden", "8", "--quiet", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(lines_of(outcome.out), ::testing::SizeIs(2));
}

TEST_P(EachSample, RunFolderHasConfigMetricsAndPicture) {
  EXPECT_EQ(run({"--epochs", "3", "--hidden", "8,4", "--batch-size", "100", "--seed", "9223372036854775807", "--quiet",
                 "--out", "deep/run"})
                .exit_code,
            0);
  const Record config = parse_record(text("deep/run/config.json"));
  EXPECT_EQ(config.at("program"), GetParam());
  EXPECT_EQ(config.at("epochs"), "3");
  EXPECT_EQ(config.at("batch_size"), "100");
  EXPECT_EQ(config.at("hidden"), "8,4");
  EXPECT_EQ(config.at("seed"), "9223372036854775807");
  const std::vector<Record> epochs = metrics("deep/run");
  ASSERT_EQ(epochs.size(), 3u);
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    EXPECT_EQ(epochs[i].at("epoch"), std::to_string(i + 1));
    EXPECT_GT(epochs[i].number("train_loss"), 0);
    EXPECT_GE(epochs[i].number("lr"), 0);
  }
  EXPECT_LT(epochs[2].number("train_loss"), epochs[0].number("train_loss"));
  EXPECT_THAT(text("deep/run/curves.svg"), AllOf(HasSubstr("<svg "), EndsWith("</svg>\n")));
}

TEST_P(EachSample, WithoutOutAFolderUnderRunsIsMadeAndNamed) {
  const Outcome outcome = run({"--epochs", "1", "--hidden", "8", "--quiet"});
  EXPECT_THAT(outcome.out, HasSubstr("\nrun folder: runs/" + std::string(GetParam()) + "-20"));
  std::vector<std::string> runs;
  for (const auto& entry : std::filesystem::directory_iterator(file("runs"))) {
    runs.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(runs, ElementsAre(MatchesRegex(std::string(GetParam()) + "-[0-9]{8}-[0-9]{6}")));
}

TEST_P(EachSample, OutThatHoldsSomethingOrCannotBeMadeIsRefused) {
  std::filesystem::create_directory(file("run"));
  write("run/weights", "precious");
  expect_error(run({"--out", "run", "--quiet"}),
               "'run': cannot use it as the run folder: it exists and is not empty; give another path or remove it "
               "first");
  EXPECT_EQ(text("run/weights"), "precious");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file("run")), {}), 1);
  write("file", "");
  expect_error(run({"--out", "file/run", "--quiet"}), "cannot create the folder 'file/run': Not a directory");
}

TEST_P(EachSample, LossThatIsNoNumberStopsTheRun) {
  const Outcome outcome = run({"--optimizer", "sgd", "--lr", "1e30", "--quiet", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(
      outcome.err,
      MatchesRegex("error: the loss is (NaN|infinite) in epoch 1, batch [0-9]+ of [0-9]+: training stopped. A "
                   "smaller --lr \\(1e\\+30 now\\) is the usual cure; check the data for extreme values too\n"));
  EXPECT_THAT(text("run/config.json"), HasSubstr("\"lr\": 1e+30")) << "what was tried is kept";
}

TEST_P(EachSample, AnActivationBeyondF16StopsTheRunAndBf16IsNamed) {
  const Outcome outcome = run({"--optimizer", "sgd", "--lr", "1e10", "--precision", "f16", "--quiet"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("check the data for extreme values too, since f16 ends at 65504 (--precision bf16 "
                                     "does not)\n"));
}

TEST_P(EachSample, AWeightDecayThatIsTooStrongIsBlamed) {
  const Outcome outcome = run({"--optimizer", "sgd", "--weight-decay", "1e38", "--quiet", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("training stopped. The weight decay of 1e+38 is too strong for a learning rate of "));
}

TEST_P(EachSample, WeightsThatTheLastBatchRuinedStopTheRunToo) {
  const std::string rows = std::string(GetParam()) == "mlp" ? "3823" : "16512";
  const Outcome outcome = run({"--optimizer", "sgd", "--lr", "1e30", "--epochs", "1", "--batch-size", rows, "--quiet"});
  expect_error(outcome,
               "the model's output for the test data is not finite after epoch 1, batch 1 of 1: training stopped. A "
               "smaller --lr (1e+30 now) is the usual cure; check the data for extreme values too");
}

TEST_P(EachSample, BatchLargerThanTheDataIsRefused) {
  const std::string rows = std::string(GetParam()) == "mlp" ? "3823" : "16512";
  expect_error(run({"--batch-size", "16513", "--quiet", "--out", "run"}),
               "--batch-size 16513 is larger than the training part (" + rows + " samples); choose at most that");
  EXPECT_FALSE(std::filesystem::exists(file("run"))) << "nothing was run";
}

// ---- the results ----

TEST_F(Samples, MlpLearnsAndEndsWithItsResultAsJson) {
  const Outcome outcome = mlp({"--epochs", "3", "--seed", "7", "--json", "--quiet", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Record result = parse_record(lines_of(outcome.out).back());
  EXPECT_THAT(result.keys(), ElementsAre("test_accuracy", "train_seconds", "images_per_second", "epochs", "seed"));
  EXPECT_GT(result.number("test_accuracy"), 0.92);
  EXPECT_GT(result.number("train_seconds"), 0.0);
  EXPECT_NEAR(result.number("images_per_second") * result.number("train_seconds"), 3 * 3823, 0.1);
  EXPECT_EQ(result.at("epochs"), "3");
  EXPECT_EQ(result.at("seed"), "7");
  EXPECT_EQ(metrics("run").back().at("test_accuracy"), result.at("test_accuracy"));
}

TEST_F(Samples, RegressionBeatsTheBaselineAndEndsWithItsResultAsJson) {
  const Outcome outcome = regression({"--epochs", "3", "--seed", "7", "--json", "--quiet", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Record result = parse_record(lines_of(outcome.out).back());
  EXPECT_THAT(result.keys(), ElementsAre("test_rmse", "baseline_rmse", "train_seconds", "seed"));
  EXPECT_LT(result.number("test_rmse"), result.number("baseline_rmse"));
  EXPECT_NEAR(result.number("baseline_rmse"), 69600, 3000) << "linear least squares on any split";
  EXPECT_GT(result.number("train_seconds"), 0.0);
  EXPECT_EQ(result.at("seed"), "7");
  EXPECT_EQ(metrics("run").back().at("test_rmse"), result.at("test_rmse"));
}

// ---- flags of one sample only ----

TEST_F(Samples, WrongValuesOfMlpsOwnFlags) {
  expect_error(mlp({"--dropout", "1.5"}), "--dropout: expected a number from 0 to 1, got '1.5'", 2);
  expect_error(mlp({"--dropout", "nan"}), "--dropout: expected a number from 0 to 1, got 'nan'", 2);
  expect_error(mlp({"--schedule", "step"}), "--schedule: expected cosine or constant, got 'step'", 2);
  expect_error(mlp({"--scaling", "z"}), "--scaling: expected standard or unit, got 'z'", 2);
}

TEST_F(Samples, DataWithoutTargetIsRefused) {
  expect_error(regression({"--data", "a.csv"}), "--data needs --target COLUMN: which column is to be predicted?", 2);
  expect_error(regression({"--target", ""}), "--target: expected some text, got ''", 2);
}

TEST_F(Samples, TargetAloneChoosesAnotherColumnOfTheBundledTable) {
  const Outcome outcome = regression({"--target", "households", "--epochs", "1"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("16512 rows to train, 4128 to test; predicting 'households'\n"
                                     "taken as categories: 'ocean_proximity' (5)\n"));
}

}  // namespace
}  // namespace example
