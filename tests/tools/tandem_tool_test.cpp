#include <string>
#include <vector>

#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/core/isa.h>
#include <tandem/tandem.h>

#include "support/process.h"
#include "support/temp_dir.h"

namespace tandem::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TandemTool : public ::testing::Test {
 protected:
  Outcome run(const std::vector<std::string>& arguments) const {
    return run_program(TANDEM_TOOL, arguments, dir_.path());
  }
  nlohmann::json info() const {
    const Outcome outcome = run({"info", "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(lines_of(outcome.out).size(), 1U);
    return nlohmann::json::parse(outcome.out);
  }

  TempDir dir_;
};

TEST_F(TandemTool, InfoSaysWhatThereIs) {
  const nlohmann::json facts = info();
  EXPECT_EQ(facts.at("version"), TANDEM_VERSION);
  EXPECT_EQ(facts.at("isa"), core::to_string(core::isa()));
  EXPECT_THAT(facts.at("isas"), Contains("baseline"));
  EXPECT_THAT(facts.at("dtypes"), Contains("bf16"));
  EXPECT_EQ(facts.at("dtypes").size(), 8U);
  EXPECT_GE(facts.at("cores"), 1);
  EXPECT_GE(facts.at("cpu_devices"), 1);
  EXPECT_GT(facts.at("memory_bytes"), facts.at("free_memory_bytes"));
  EXPECT_EQ(facts.at("cuda_devices").size(), static_cast<std::size_t>(cuda::device_count()));
  EXPECT_TRUE(cuda::is_available() || facts.at("why_no_cuda") != "");
  EXPECT_NE(facts.at("cpu"), "");
  EXPECT_THAT(facts.at("backends"), Contains("local"));
  EXPECT_GE(facts.at("build").size(), 2U);
}

TEST_F(TandemTool, InfoFollowsTheEnvironment) {
  ::setenv("TANDEM_CPU_ISA", "baseline", 1);
  ::setenv("TANDEM_NUM_THREADS", "3", 1);
  ::setenv("TANDEM_CPU_DEVICES", "5", 1);
  const nlohmann::json facts = info();
  ::unsetenv("TANDEM_CPU_ISA");
  ::unsetenv("TANDEM_NUM_THREADS");
  ::unsetenv("TANDEM_CPU_DEVICES");
  EXPECT_EQ(facts.at("isa"), "baseline");
  EXPECT_EQ(facts.at("matmul_f32"), "Eigen, baseline");
  EXPECT_EQ(facts.at("threads"), 3);
  EXPECT_EQ(facts.at("cpu_devices"), 5);
}

TEST_F(TandemTool, InfoFitsOnAScreen) {
  const Outcome outcome = run({"info"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, StartsWith("tandem    " TANDEM_VERSION ", "));
  for (const char* name :
       {"\nbuild ", "\nbackends  local: ", "\ncpu ", "\nisa ", "\nmatmul ", "\ndevices ", "\ndtypes ", "\nmemory "}) {
    EXPECT_THAT(outcome.out, HasSubstr(name));
  }
  EXPECT_LE(lines_of(outcome.out).size(), 24U);
}

TEST_F(TandemTool, AWrongInstructionSetIsNamed) {
  ::setenv("TANDEM_CPU_ISA", "avx9", 1);
  const Outcome outcome = run({"info"});
  ::unsetenv("TANDEM_CPU_ISA");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, StartsWith("error: TANDEM_CPU_ISA='avx9': expected one that this machine has: baseline"));
}

TEST_F(TandemTool, ReportMakesAPageAboutARun) {
  for (const char* name : {"new", "old"}) {
    telemetry::RunFolder folder({.path = dir_.file(name)});
    folder.append_metrics({{"epoch", std::int64_t{1}}, {"loss", 0.5}});
  }
  const Outcome outcome = run({"report", "new"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "new/report.html\n");
  EXPECT_THAT(read_text(dir_.file("new/report.html")), HasSubstr(">loss</text>"));
  EXPECT_EQ(run({"report", "new", "old", "--out", "both.html"}).out, "both.html\n");
  EXPECT_THAT(read_text(dir_.file("both.html")), HasSubstr(">old</text>"));
  EXPECT_THAT(run({"report", "none"}).err, StartsWith("error: 'none': expected the folder of a run"));
  EXPECT_EQ(run({"report"}).exit_code, 2);
}

TEST_F(TandemTool, InspectPrintsTheNumbersAndTheDiagnosisOfARun) {
  telemetry::RunFolder folder({.path = dir_.file("run")});
  folder.append_metrics({{"loss", 0.25}});
  folder.write_file("diagnosis.txt", "29 steps, 100 us each:\nNearly all of it computes\n");
  const Outcome outcome = run({"inspect", "run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("\nloss 0.25\n"), HasSubstr("\n29 steps, 100 us each:\n")));
}

TEST_F(TandemTool, WatchShowsARun) {
  telemetry::RunFolder(telemetry::RunFolderOptions{.path = dir_.file("run")}).append_metrics({{"loss", 0.25}});
  const Outcome outcome = run({"watch", "run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(StartsWith("run   last line "), HasSubstr("\nloss 0.25\n")));
  EXPECT_THAT(run({"watch", "none"}).err, HasSubstr("expected the folder of a run"));
}

// On a terminal the page is one of its own, which goes when the user leaves; a changed window is drawn anew.
TEST_F(TandemTool, WatchLeavesTheTerminalAsItWas) {
  telemetry::RunFolder(telemetry::RunFolderOptions{.path = dir_.file("run")}).append_metrics({{"loss", 0.25}});
  int terminal = -1;
  winsize window{.ws_row = 20, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &window);
  if (child < 0) {
    GTEST_SKIP() << "the system has no pseudo-terminals";
  }
  if (child == 0) {
    const std::string folder = dir_.file("run");
    ::execl(TANDEM_TOOL, TANDEM_TOOL, "watch", folder.c_str(), "--every", "0.1", nullptr);
    ::_exit(127);
  }
  std::string seen;
  const auto read_until = [&](const std::string& text) {
    for (int looks = 0; looks < 500 && seen.find(text) == std::string::npos; ++looks) {
      char bytes[4096];
      const ssize_t count = ::read(terminal, bytes, sizeof bytes);
      if (count <= 0) {
        break;
      }
      seen.append(bytes, static_cast<std::size_t>(count));
    }
    return seen.find(text) != std::string::npos;
  };
  EXPECT_TRUE(read_until("loss 0.25")) << seen;
  EXPECT_THAT(seen, StartsWith("\x1b[?1049h"));
  seen.clear();
  window.ws_col = 30;
  ::ioctl(terminal, TIOCSWINSZ, &window);
  EXPECT_TRUE(read_until("loss 0.25")) << seen;
  EXPECT_EQ(::write(terminal, "q", 1), 1);
  EXPECT_TRUE(read_until("\x1b[?1049l")) << seen;
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(terminal);
}

TEST_F(TandemTool, PredictReadsTheNumbersOfARun) {
  telemetry::RunFolder run_folder({.path = dir_.file("one")});
  const telemetry::StepProfile profile{
      .step_us = 3000, .forward_us = 1000, .backward_us = 2000, .parameter_bytes = {1e6, 1e6}};
  run_folder.write_file("steps.json", telemetry::to_json(profile.to_fields()));
  const Outcome table = run({"predict", "one", "-n", "1,2", "--network", "100gbit"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(lines_of(table.out).size(), 1U + 2 * 4);
  EXPECT_THAT(table.out, AllOf(HasSubstr("shard = parameters"), HasSubstr("<- fastest")));
  const auto json = nlohmann::json::parse(run({"predict", "one", "-n", "2", "--json"}).out);
  EXPECT_EQ(json.at("ways").size(), 4U);
  EXPECT_EQ(json.at("ranks"), std::vector<double>(4, 2));
  EXPECT_THAT(run({"predict", "one", "-n", "2,,4"}).err, HasSubstr("-n: expected numbers of ranks such as 2,4,8"));
  EXPECT_THAT(run({"predict", "one", "--network", "fast"}).err, HasSubstr("--network: expected nvlink or a rate"));
  EXPECT_THAT(run({"predict", "none"}).err, HasSubstr("which a run with --report writes"));
}

TEST_F(TandemTool, InspectShowsAFileOfTensors) {
  StateDict state;
  state.set("fc.weight", ones({2, 3}));
  state.set("step", full({}, 12, {.dtype = DType::i64}));
  save(state, dir_.file("a"), {.metadata = {{"epoch", "3"}}});
  const Outcome outcome = run({"inspect", "a"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("fc.weight  F32     [2, 3]                     24 B  "));
  EXPECT_THAT(outcome.out, HasSubstr("\nepoch = 3\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\n2 tensors, 7 elements, 32 B; all hashes match\n"));
  const auto json = nlohmann::json::parse(run({"inspect", "a", "--json"}).out);
  EXPECT_EQ(json.at("names"), (std::vector<std::string>{"step", "fc.weight"}));
  EXPECT_EQ(json.at("dtypes"), (std::vector<std::string>{"I64", "F32"}));

  std::string bytes = read_text(dir_.file("a"));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  dir_.write("damaged", bytes);
  const Outcome damaged = run({"inspect", "damaged"});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.err, HasSubstr("the bytes of tensor 'fc.weight' are not those that were saved"));
}

TEST_F(TandemTool, InspectShowsTheCheckpointsOfARun) {
  {
    nn::Linear model(2, 1);
    checkpoint::Run run(dir_.file("run"), {.every = 1, .keep = 2});
    run.track(model);
    for (int i = 0; i < 3; ++i) {
      run.step();
    }
    run.save();
  }
  const std::string older = dir_.file("run/checkpoints/step-0000000002.safetensors");
  std::string bytes = read_text(older);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(older, bytes);
  const Outcome outcome = run({"inspect", "run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("step          3  "));
  EXPECT_THAT(lines_of(outcome.out).front(), ::testing::EndsWith("  whole"));
  EXPECT_THAT(lines_of(outcome.out).at(1), AllOf(StartsWith("step          2  "), HasSubstr("safetensors 'run/")));
  EXPECT_THAT(outcome.out, HasSubstr("\nmodel.weight "));
  EXPECT_THAT(outcome.out, HasSubstr("\nstep = 3\n"));
  EXPECT_EQ(run({"inspect", "run", "run"}).exit_code, 0);
  EXPECT_EQ(run({"inspect", "."}).err,
            "error: '.': this folder has no checkpoints of a run, which would be in ./checkpoints\n");
}

TEST_F(TandemTool, InspectReadsAllShardsOfACheckpoint) {
  parallel::spawn(2, [&](int) {
    nn::Linear model(2, 1);
    parallel::DistributedDataParallel ddp(model);  // equal on both ranks
    checkpoint::Run run(dir_.file("run"), {.sharded = true});
    run.track(model);
    run.step();
    run.save();
  });
  const Outcome outcome = run({"inspect", "run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(lines_of(outcome.out).front(), ::testing::EndsWith("  whole, in 2 files"));
  EXPECT_THAT(outcome.out, HasSubstr("\nmodel.weight "));
  EXPECT_THAT(outcome.out, HasSubstr("\nmodel.bias "));
  EXPECT_EQ(run({"inspect", "run", "run"}).exit_code, 0);
  const std::string shard = dir_.file("run/checkpoints/step-0000000001.shard-1.safetensors");
  std::string bytes = read_text(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(shard, bytes);
  EXPECT_THAT(lines_of(run({"inspect", "run"}).out).front(), HasSubstr(".shard-1."));
}

TEST_F(TandemTool, InspectSaysHowTwoFilesDiffer) {
  StateDict one, other;
  one.set("same", ones({2}));
  one.set("changed", zeros({4}));
  one.set("reshaped", ones({2, 3}));
  one.set("gone", ones({1}));
  other.set("same", ones({2}));
  other.set("changed", tensor({0.0, 0.5, 0.0, -2.0}).to(DType::f32));
  other.set("reshaped", ones({3, 2}));
  save(one, dir_.file("a"));
  save(other, dir_.file("b"));
  const Outcome outcome = run({"inspect", "a", "b"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out,
            "changed: 2 of 4 elements differ, by 2 at most\ngone: only in a\nreshaped: F32 [2, 3] and F32 [3, 2]\n");
  save(one, dir_.file("c"), {.metadata = {{"epoch", "3"}}});
  EXPECT_EQ(run({"inspect", "a", "c"}).out, "__metadata__: the texts differ\n");
  const Outcome equal = run({"inspect", "a", "a"});
  EXPECT_EQ(equal.exit_code, 0);
  EXPECT_EQ(equal.out, "all 4 tensors are equal, bit by bit\n");
}

TEST_F(TandemTool, HelpHasExamples) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"-h"}, {"info", "--help"}, {"inspect", "--help"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.out, HasSubstr("\nExamples:\n  "));
    for (const std::string& line : lines_of(outcome.out)) {
      EXPECT_LE(line.size(), 80U) << line;
    }
  }
  EXPECT_EQ(run({"--version"}).out, "tandem " TANDEM_VERSION "\n");
}

TEST_F(TandemTool, WrongUseIsOneLineAndExitCodeTwo) {
  const auto error_of = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_EQ(error_of({}), "error: a command must follow; tandem --help lists them\n");
  EXPECT_EQ(error_of({"inf"}), "error: unknown command inf; did you mean info?\n");
  EXPECT_EQ(error_of({"rnu"}), "error: unknown command rnu; tandem --help lists the commands\n");
  EXPECT_EQ(error_of({"train"}), "error: unknown command train; tandem --help lists the commands\n");
  EXPECT_EQ(error_of({"--jsn"}), "error: unknown flag --jsn; tandem --help lists the commands\n");
  EXPECT_EQ(error_of({"info", "--jsn"}), "error: unknown flag --jsn; did you mean --json?\n");
  EXPECT_EQ(error_of({"info", "cpu"}), "error: unexpected argument 'cpu'\n");
}

}  // namespace
}  // namespace tandem::test
