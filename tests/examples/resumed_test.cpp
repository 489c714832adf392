#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.h"

// Tests of samples that are interrupted and go on.

namespace example {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class InterruptedSample : public Samples {
 protected:
  /// Runs a command line until this file of its run folder "run" is there, sends the signal, and prints the exit code.
  /// With -m the shell does not have its background jobs ignore SIGINT.
  Outcome interrupted(const std::string& command, const std::string& signal,
                      const std::string& until = "config.json") const {
    const std::string script = fmt::format(
        "set -m\n{} --out run & job=$!\nwhile kill -0 $job && ! [ -s run/{} ]; do sleep 0.01; done\nkill -{} $job\n"
        "wait $job\necho \"exit code $?\"\n",
        command, until, signal);
    return run_program("/bin/bash", {"-c", script}, dir_.path());
  }
};

class ResumedSample : public InterruptedSample, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string program() const { return std::string(GetParam()) == "mlp" ? MLP_PROGRAM : REGRESSION_PROGRAM; }
  /// Long enough to be interrupted; sanitizers slow the programs down.
  int epochs() const { return std::string(GetParam()) == "mlp" ? (IS_SANITIZED ? 6 : 40) : (IS_SANITIZED ? 2 : 15); }
  Arguments with_epochs(const Arguments& more) const {
    return with({"--epochs", std::to_string(epochs()), "--hidden", "64"}, more);
  }
  std::string options() const { return fmt::format("--epochs {} --hidden 64", epochs()); }
  Outcome run(const Arguments& arguments) const { return run_program(program(), arguments, dir_.path()); }
  Outcome tool(const Arguments& arguments) const { return run_program(TANDEM_TOOL, arguments, dir_.path()); }
  void expect_same_weights(const std::string& one, const std::string& other) const {
    const Outcome outcome = tool({"inspect", one + "/model.safetensors", other + "/model.safetensors"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    EXPECT_EQ(metrics(one), metrics(other));
  }
};

INSTANTIATE_TEST_SUITE_P(Programs, ResumedSample, ::testing::Values("mlp", "regression"),
                         [](const auto& program) { return std::string(program.param); });

TEST_P(ResumedSample, CtrlCSavesAndResumeGoesOnToTheBit) {
  const Outcome stopped = interrupted(fmt::format("'{}' {} --quiet", program(), options()), "INT");
  EXPECT_THAT(stopped.out, HasSubstr("exit code 130\n"));
  EXPECT_THAT(stopped.err, HasSubstr("SIGINT at step "));
  EXPECT_THAT(stopped.err, HasSubstr(": the run is saved in run, to go on from there\n"));
  const Outcome resumed = run({"--resume", "run"});
  EXPECT_EQ(resumed.exit_code, 0);
  EXPECT_THAT(resumed.err, HasSubstr("going on after step "));
  EXPECT_EQ(run(with_epochs({"--quiet", "--out", "whole"})).exit_code, 0);
  expect_same_weights("run", "whole");
  const Outcome again = run({"--resume", "run"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr(fmt::format("all {} epochs are done; --epochs has it go on\n", epochs())));
  EXPECT_EQ(lines_of(again.out).front(), lines_of(resumed.out).front());
}

TEST_P(ResumedSample, TheScaleOfLossesInF16GoesOnToo) {
  const std::string f16 = options() + " --precision f16";
  interrupted(fmt::format("'{}' {} --quiet", program(), f16), "INT");
  const Outcome resumed = run({"--resume", "run"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr(" steps left out\n"));
  EXPECT_EQ(run(with_epochs({"--precision", "f16", "--quiet", "--out", "whole"})).exit_code, 0);
  expect_same_weights("run", "whole");
}

TEST_P(ResumedSample, UnderTheLauncherTooAndWithAnotherNumberOfRanks) {
  const Outcome stopped =
      interrupted(fmt::format("'{}' run -n 2 '{}' {} --quiet", TANDEM_TOOL, program(), options()), "TERM");
  EXPECT_THAT(stopped.out, HasSubstr("exit code 143\n"));
  EXPECT_THAT(stopped.err, HasSubstr("[0] SIGTERM at step "));
  EXPECT_THAT(stopped.err, Not(HasSubstr("[1] "))) << "one rank speaks for all";
  std::filesystem::copy(file("run"), file("other"), std::filesystem::copy_options::recursive);
  EXPECT_EQ(tool({"run", "-n", "2", program(), "--resume", "run", "--quiet"}).exit_code, 0);
  EXPECT_EQ(run(with_epochs({"--ranks", "2", "--quiet", "--out", "whole"})).exit_code, 0);
  expect_same_weights("run", "whole");
  EXPECT_EQ(run({"--resume", "other", "--ranks", "3", "--quiet"}).exit_code, 0);
  EXPECT_EQ(metrics("other").size(), static_cast<std::size_t>(epochs()));
}

TEST_P(ResumedSample, ARestartedJobGoesOnInItsFolder) {
  for (const std::string out : {"--out run", ""}) {
    // In the first attempt rank 0 ends itself when it has written a checkpoint.
    const std::string script = fmt::format(
        "TANDEM_FAILPOINT=save.finished:3 '{}' run -n 2 --max-restarts 1 '{}' {} --checkpoint-every 20 --quiet {}",
        TANDEM_TOOL, program(), options(), out);
    const Outcome outcome = run_program("/bin/sh", {"-c", script}, dir_.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("was killed by signal 9 (SIGKILL) after step "));
    EXPECT_THAT(outcome.err, HasSubstr("restart 1 of 1 follows in 1 s\n"));
    if (out.empty()) {
      const auto folder = std::filesystem::directory_iterator(file("runs"));
      EXPECT_EQ(std::distance(folder, {}), 1) << "one job has one folder";
      std::filesystem::rename(std::filesystem::directory_iterator(file("runs"))->path(), file("unnamed"));
    }
    if (!std::filesystem::exists(file("whole"))) {
      EXPECT_EQ(run(with_epochs({"--ranks", "2", "--quiet", "--out", "whole"})).exit_code, 0);
    }
    expect_same_weights(out.empty() ? "unnamed" : "run", "whole");
    std::filesystem::remove_all(file("run"));
  }
}

TEST_P(ResumedSample, ResumeTakesTheOptionsOfTheRunAndRefusesOthers) {
  EXPECT_EQ(run({"--epochs", "2", "--hidden", "16", "--seed", "5", "--quiet", "--out", "run"}).exit_code, 0);
  expect_error(run({"--resume", "run", "--lr", "0.1"}),
               "--lr: is not for --resume: the run keeps what it began with; leave it out, or begin a new run", 2);
  expect_error(run({"--resume=run", "--out", "other"}),
               "--out: is not for --resume: the run keeps what it began with; leave it out, or begin a new run", 2);
  expect_error(run({"--resume", "nowhere"}), "cannot read 'nowhere/config.json': No such file or directory", 2);
  const Outcome longer = run({"--resume", "run", "--epochs", "3", "--json", "--quiet"});
  EXPECT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_EQ(parse_record(lines_of(longer.out).back()).at("seed"), "5");
  EXPECT_EQ(metrics("run").size(), 3U);
  EXPECT_EQ(parse_record(text("run/config.json")).at("hidden"), "16");
}

/// A sample that makes its own inputs: no DataLoader knows where an epoch was interrupted.
struct Loop {
  const char* program;
  int epochs;  // long enough to be interrupted
};

class ResumedLoop : public InterruptedSample, public ::testing::WithParamInterface<Loop> {};

INSTANTIATE_TEST_SUITE_P(Programs, ResumedLoop,
                         ::testing::Values(Loop{HEAT_EQUATION_PROGRAM, IS_SANITIZED ? 12 : 120},
                                           Loop{GRADIENT_PENALTY_PROGRAM, IS_SANITIZED ? 3 : 10}),
                         [](const auto& loop) {
                           return std::filesystem::path(loop.param.program).filename().string();
                         });

TEST_P(ResumedLoop, GoesOnInAnEpochAndPrintsTheSameWhenItIsOver) {
  const auto& [program, epochs] = GetParam();
  const std::string command =
      fmt::format("'{}' --epochs {} --hidden 16 --batch-size 256 --threads 1 --quiet", program, epochs);
  const auto run_into = [&](const char* folder) {
    return run_program("/bin/sh", {"-c", fmt::format("{} --out {}", command, folder)}, dir_.path());
  };
  const Outcome stopped = interrupted(command, "INT", "metrics.jsonl");
  EXPECT_THAT(stopped.out, HasSubstr("exit code 130\n"));
  EXPECT_LT(metrics("run").size(), static_cast<std::size_t>(epochs));
  const Outcome resumed = run_into("run");
  const Outcome whole = run_into("whole");
  EXPECT_EQ(metrics("run"), metrics("whole"));
  EXPECT_EQ(lines_of(resumed.out).front(), lines_of(whole.out).front());
  EXPECT_EQ(lines_of(run_into("run").out).front(), lines_of(whole.out).front());
}

}  // namespace
}  // namespace example
