#include "common/cli.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

namespace example {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

struct Outcome {
  std::optional<int> exit_code;
  std::string out;
  std::string err;
  CommonOptions options;
};

Outcome run(std::vector<const char*> arguments) {
  Outcome outcome;
  CLI::App app("Trains a multilayer perceptron.", "mlp");
  app.footer("Examples:\n  mlp --epochs 5");
  add_common_options(app, outcome.options, "Where the data set is");
  arguments.insert(arguments.begin(), "mlp");
  CaptureStdout();
  CaptureStderr();
  outcome.exit_code = parse(app, outcome.options, static_cast<int>(arguments.size()), arguments.data());
  std::fflush(stdout);
  outcome.out = GetCapturedStdout();
  outcome.err = GetCapturedStderr();
  return outcome;
}

struct WrongCase {
  std::vector<const char*> arguments;
  const char* message;
};

class WrongCommandLine : public ::testing::TestWithParam<WrongCase> {};

TEST_P(WrongCommandLine, IsOneClearLineAndExitCodeTwo) {
  const Outcome outcome = run(GetParam().arguments);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "error: " + std::string(GetParam().message) + "\n");
}

INSTANTIATE_TEST_SUITE_P(
    Flags, WrongCommandLine,
    ::testing::Values(WrongCase{{"--epoch", "5"}, "unknown flag --epoch; did you mean --epochs?"},
                      WrongCase{{"--batch_size=5"}, "unknown flag --batch_size; did you mean --batch-size?"},
                      WrongCase{{"--frobnicate"}, "unknown flag --frobnicate; --help lists all flags"},
                      WrongCase{{"-x"}, "unknown flag -x; --help lists all flags"},
                      WrongCase{{"digits.csv"}, "unexpected argument 'digits.csv'"},
                      WrongCase{{"--epochs", "5", "6"}, "unexpected argument '6'"},
                      WrongCase{{"--", "x"}, "unexpected argument '--'"},
                      WrongCase{{"--epochs"}, "--epochs: a value must follow"},
                      WrongCase{{"--epochs="}, "--epochs: a value must follow"},
                      WrongCase{{"--json=false"}, "--json: takes no value"},
                      WrongCase{{"--out", "--json"}, "--out: expected a path, got '--json'"},
                      WrongCase{{"--data", ""}, "--data: expected a path, got ''"}));

// Checks that each of `values` is refused with the text `expected`.
void expect_refused(const char* flag, const std::vector<const char*>& values, const std::string& expected) {
  for (const char* value : values) {
    const Outcome outcome = run({flag, value});
    EXPECT_EQ(outcome.exit_code, 2) << flag << " " << value;
    EXPECT_EQ(outcome.err, std::string("error: ") + flag + ": expected " + expected + ", got '" + value + "'\n");
  }
}

TEST(Cli, WrongValuesNameFlagExpectationAndValue) {
  const std::string count = "a whole number from 1 to 1000000";
  expect_refused("--epochs", {"0", "-3", "1e3", "1.5", "0x10", "ten", "", " 5", "1000001", "99999999999999999999"},
                 count);
  expect_refused("--batch-size", {"0", "64,"}, count);
  expect_refused("--lr", {"0", "-0.1", "nan", "inf", "-inf", "1e400", "1e-400", "0.1x", "0,1", ""},
                 "a finite number above 0");
  expect_refused("--optimizer", {"Adam", "rmsprop", ""}, "adam, adamw or sgd");
  expect_refused("--hidden", {"256,,10", "256,", ",256", "0", "256;128", "-1", "", "[256]"},
                 "layer sizes from 1 to 1000000 with commas between them, like 256,128");
  expect_refused("--threads", {"-1", "257", "all"}, "a whole number from 0 to 256");
  expect_refused("--seed", {"-1", "9223372036854775808"}, "a whole number from 0 to 9223372036854775807");
}

TEST(Cli, DeviceThatIsNotThereIsRefused) {
  for (const char* device : {"gpu", "cpu:x", "cpu:64", "cuda:99", ""}) {
    const Outcome outcome = run({"--device", device});
    EXPECT_EQ(outcome.exit_code, 2) << device;
    EXPECT_THAT(outcome.err, ::testing::StartsWith("error: --device: device '"));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
  }
}

TEST(Cli, EveryFlagArrives) {
  const Outcome outcome = run({"--data",
                               "d",
                               "--epochs",
                               "010",
                               "--batch-size=7",
                               "--lr",
                               "1e-2",
                               "--optimizer",
                               "sgd",
                               "--hidden",
                               "5,6",
                               "--device",
                               "cpu:1",
                               "--threads",
                               "3",
                               "--seed",
                               "9223372036854775807",
                               "--out",
                               "o",
                               "--json",
                               "--quiet",
                               "--precision",
                               "bf16",
                               "--captured"});
  EXPECT_EQ(outcome.exit_code, std::nullopt) << outcome.err;
  const CommonOptions& options = outcome.options;
  EXPECT_EQ(options.data, "d");
  EXPECT_EQ(options.epochs, 10) << "a leading zero does not mean octal";
  EXPECT_EQ(options.batch_size, 7);
  EXPECT_EQ(options.lr, 0.01);
  EXPECT_EQ(options.optimizer, "sgd");
  EXPECT_THAT(options.hidden, ElementsAre(5, 6));
  EXPECT_EQ(options.device, "cpu:1");
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.seed, 9223372036854775807u);
  EXPECT_EQ(options.out, "o");
  EXPECT_TRUE(options.json);
  EXPECT_TRUE(options.quiet);
  EXPECT_EQ(options.precision, "bf16");
  EXPECT_TRUE(options.captured);
}

TEST(Cli, NoFlagsKeepTheSamplesDefaults) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.exit_code, std::nullopt);
  EXPECT_EQ(outcome.options.epochs, 10);
  EXPECT_THAT(outcome.options.hidden, ElementsAre(256, 128));
}

TEST(Cli, ErrorsOfResumeFitOnAScreen) {
  const std::string flag = "-" + std::string(3000, 'y');
  const std::string folder(3000, 'x');
  for (const auto& arguments : {std::vector<const char*>{"--resume", "x", flag.c_str()},
                                std::vector<const char*>{"--resume", folder.c_str()}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_LT(outcome.err.size(), 1920U);
  }
}

TEST(Cli, LastOfSeveralCounts) {
  EXPECT_EQ(run({"--epochs", "3", "--json", "--epochs", "4", "--json"}).options.epochs, 4);
}

TEST(Cli, HelpShowsFlagsDefaultsAndExamplesInEightyColumns) {
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* text :
       {"Usage: mlp [OPTIONS]", "--hidden N,N,...      Sizes of the hidden layers [default: 256,128]",
        "[default: 0.001]", "--version", "Examples:\n  mlp --epochs 5\n"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(Cli, VersionIsOneLine) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex("mlp \\(tandem [0-9.]+\\)\n"));
}

TEST(Cli, ResultIsOneLineOfJson) {
  CaptureStdout();
  print_result_json({{"accuracy", 0.978}, {"loss", std::nan("")}, {"note", "a\n\xff"}});
  std::fflush(stdout);
  EXPECT_EQ(GetCapturedStdout(), "{\"accuracy\":0.978,\"loss\":null,\"note\":\"a\\n\xEF\xBF\xBD\"}\n");
}

int main_exit_code(int (*program)(int, char**)) { return run_main(0, nullptr, program); }

TEST(RunMain, PassesTheExitCodeOn) {
  EXPECT_EQ(main_exit_code([](int, char**) { return 0; }), 0);
  EXPECT_EQ(main_exit_code([](int, char**) { return 2; }), 2);
}

TEST(RunMain, ExceptionsBecomeAMessage) {
  CaptureStderr();
  EXPECT_EQ(main_exit_code([](int, char**) -> int { throw tandem::IoError("'a.csv': is empty"); }), 1);
  EXPECT_EQ(main_exit_code([](int, char**) -> int { throw std::runtime_error("no"); }), 1);
  EXPECT_EQ(GetCapturedStderr(), "error: 'a.csv': is empty\nerror: no\n");
}

TEST(RunMain, OutputThatCannotBeWrittenIsAFailure) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) {
    GTEST_SKIP() << "no /dev/full";
  }
  std::fflush(stdout);
  const int saved = ::dup(STDOUT_FILENO);
  ::dup2(full, STDOUT_FILENO);
  CaptureStderr();
  const int code = main_exit_code([](int, char**) {
    print_result_json({{"epochs", 1}});
    return 0;
  });
  ::dup2(saved, STDOUT_FILENO);
  std::clearerr(stdout);
  ::close(saved);
  ::close(full);
  EXPECT_EQ(code, 1);
  EXPECT_EQ(GetCapturedStderr(), "error: cannot write to stdout: No space left on device\n");
}

}  // namespace
}  // namespace example
