#include <filesystem>
#include <string>

#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.h"

// Tests of the samples as a user starts them with `tandem run`.

namespace example {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class LaunchedSample : public Samples, public ::testing::WithParamInterface<const char*> {
 protected:
  bool is_mlp() const { return std::string(GetParam()) == "mlp"; }
  Outcome run(const Arguments& arguments) const { return is_mlp() ? mlp(arguments) : regression(arguments); }
  Outcome launch(const Arguments& arguments, const char* ranks = "2") const {
    return run_program(TANDEM_TOOL, with({"run", "-n", ranks, is_mlp() ? MLP_PROGRAM : REGRESSION_PROGRAM}, arguments),
                       dir_.path());
  }
};

INSTANTIATE_TEST_SUITE_P(Programs, LaunchedSample, ::testing::Values("mlp", "regression"),
                         [](const auto& program) { return std::string(program.param); });

// The samples have 3823 and 16512 rows; two ranks cannot share 3823 evenly. Dropout is on.
TEST_P(LaunchedSample, GivesTheBitsOfRanksThatAreThreads) {
  const Arguments short_run{"--epochs", "2", "--hidden", "16", "--batch-size", "50", "--quiet"};
  const Outcome launched = launch(with(short_run, {"--parallel", "ddp", "--out", "processes"}));
  EXPECT_EQ(launched.exit_code, 0) << launched.err;
  const Outcome threads = run(with(short_run, {"--ranks", "2", "--out", "threads"}));
  EXPECT_EQ(threads.exit_code, 0) << threads.err;
  EXPECT_EQ(metrics("processes"), metrics("threads"));
  const Outcome shared_out = launch(with(short_run, {"--shard", "optimizer", "--out", "shared_out"}));
  EXPECT_EQ(shared_out.exit_code, 0) << shared_out.err;
  EXPECT_EQ(metrics("shared_out"), metrics("threads"));
  EXPECT_EQ(metrics("processes").size(), 2u);
}

TEST_P(LaunchedSample, OneRankGivesWhatAPlainRunGivesToTheLastDigit) {
  const Arguments short_run{"--epochs", "2", "--hidden", "16", "--quiet"};
  EXPECT_EQ(launch(with(short_run, {"--parallel", "ddp", "--out", "launched"}), "1").exit_code, 0);
  EXPECT_EQ(run(with(short_run, {"--out", "plain"})).exit_code, 0);
  EXPECT_EQ(metrics("launched"), metrics("plain"));
}

TEST_P(LaunchedSample, TrainsTogetherUnaskedAndOnlyItsLeadingRankSpeaks) {
  const Outcome outcome = launch({"--epochs", "2", "--hidden", "8", "--json", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(parse_record(text("run/config.json")).at("parallel"), "ddp");
  EXPECT_THAT(lines_of(outcome.out), AllOf(SizeIs(3), Each(StartsWith("[0] "))));
  EXPECT_EQ(parse_record(lines_of(outcome.out).back().substr(4)).at("seed"), "0");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("[0] 2 ranks with "), HasSubstr("[0] epoch 2/2"), Not(HasSubstr("[1] "))));
}

TEST_P(LaunchedSample, WithoutEachOtherIsWorthAWarning) {
  const Outcome outcome = launch({"--epochs", "1", "--hidden", "8", "--quiet", "--parallel", "none"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(lines_of(outcome.out), SizeIs(4)) << "each has results of its own";
  EXPECT_THAT(outcome.err, HasSubstr("[0] warning: --parallel none in each of 2 processes: none knows of the others, "
                                     "and each trains on all of the data; --parallel ddp makes them train together\n"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("[1] ")));
}

TEST_P(LaunchedSample, RanksOfRanksAreRefused) {
  const Outcome outcome = launch({"--ranks", "2", "--quiet"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("error: spawn: a launcher has already made this process rank "));
}

TEST_P(LaunchedSample, OutThatHoldsSomethingEndsAllRanks) {
  std::filesystem::create_directory(file("run"));
  write("run/weights", "precious");
  const Outcome outcome = launch({"--out", "run", "--quiet"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("[0] error: 'run': cannot use it as the run folder"));
  EXPECT_EQ(text("run/weights"), "precious");
}

TEST_P(LaunchedSample, HostsNeedNothingMore) {
  // Both launchers run on this machine. Node 0's address is unique to this run of the test.
  const std::string address = fmt::format("127.{}.{}.1:29500", 1 + ::getpid() % 250, 1 + ::getpid() / 250 % 250);
  const std::string program = is_mlp() ? MLP_PROGRAM : REGRESSION_PROGRAM;
  std::string script = "export TANDEM_JOB_TOKEN=" + std::string(64, 'a') + "\n";
  for (const char* node : {"0", "1"}) {
    script += fmt::format(
        "'{}' run -n 1 --nnodes 2 --node-rank {} --rdzv {} '{}' --epochs 2 --hidden 16 --batch-size "
        "50 --quiet --out hosts > out{} 2> err{} &\n",
        TANDEM_TOOL, node, address, program, node, node);
  }
  run_program("/bin/sh", {"-c", script + "wait"}, dir_.path());
  const Outcome threads =
      run({"--epochs", "2", "--hidden", "16", "--batch-size", "50", "--quiet", "--ranks", "2", "--out", "threads"});
  EXPECT_EQ(threads.exit_code, 0);
  EXPECT_EQ(metrics("hosts"), metrics("threads")) << text("err0") << text("err1");
  EXPECT_EQ(text("out1"), "");
}

}  // namespace
}  // namespace example
