#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/cuda.h>

#include "support/process.h"
#include "support/temp_dir.h"

// Tests that the programs of the articles print the same as their originals, on machines with and without GPUs.

namespace example {
namespace {

using tandem::cuda::device_count;
using tandem::cuda::device_name;
using tandem::test::lines_of;
using tandem::test::Outcome;
using tandem::test::run_program;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

class Article : public ::testing::Test {
 protected:
  Article() { ::setenv("TANDEM_ADVICE", "0", 1); }  // depends on how busy the machine is
  Outcome run(const std::string& name) const {
    const Outcome outcome = run_program(fmt::format("{}/article_{}", PROGRAMS, name), {}, dir_.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("warning")));
    return outcome;
  }
  // Launches by `tandem run`, on CPUs: the stand-in for NCCL supports only one process.
  Outcome launch(const std::string& name) const {
    const Outcome outcome =
        run_program("/usr/bin/env",
                    {"CUDA_VISIBLE_DEVICES=", "EMULATED_GPU_COUNT=0", fmt::format("{}/tandem", PROGRAMS), "run", "-n",
                     "2", fmt::format("{}/article_{}", PROGRAMS, name)},
                    dir_.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("[0] distributed, 2 ranks: loss "));
    return outcome;
  }

  tandem::test::TempDir dir_;
};

std::string lets_use_gpus() { return device_count() > 1 ? fmt::format("Let's use {} GPUs!\n", device_count()) : ""; }

TEST_F(Article, WhyOneGpu) {
  const Outcome outcome = run("why_one_gpu");
  EXPECT_EQ(outcome.out, lets_use_gpus());
  EXPECT_THAT(lines_of(outcome.err), ElementsAreArray({MatchesRegex("data parallel: loss [0-9.]+"),
                                                       MatchesRegex("data parallel, shuffled: loss [0-9.]+"),
                                                       MatchesRegex("distributed, 1 ranks: loss [0-9.]+")}));
}

TEST_F(Article, WhyNotFaster) {
  const Outcome outcome = run("why_not_faster");
  const std::vector<std::string> lines = lines_of(outcome.out);
  const auto listed = static_cast<std::size_t>(1 + device_count());
  ASSERT_THAT(lines, SizeIs(listed + 100));
  if (device_count() == 0) {
    EXPECT_EQ(lines[0], "cuda is not available on this machine.");
  } else {
    EXPECT_EQ(lines[0], fmt::format("number of gpus available: {}", device_count()));
    EXPECT_EQ(lines[1], fmt::format("gpu 0 name: {}", device_name(0)));
  }
  for (std::size_t epoch = 0; epoch < 100; ++epoch) {
    EXPECT_THAT(lines[listed + epoch], MatchesRegex(fmt::format("epoch: {}, loss:[0-9.]+", epoch)));
  }
  const int ranks = std::max(device_count(), device_count() == 0 ? 2 : 1);
  EXPECT_THAT(outcome.err, HasSubstr(fmt::format("{} batches on each of {} ranks: mean loss of all 1.",
                                                 ((1000 + ranks - 1) / ranks + 19) / 20, ranks)));
}

TEST_F(Article, HowToUseAll) {
  std::vector<std::string> lines = lines_of(run("how_to_use_all").out);
  if (device_count() > 1) {
    EXPECT_EQ(lines[0], fmt::format("Using {} GPUs", device_count()));
    lines.erase(lines.begin());
  }
  ASSERT_GE(lines.size(), 3u);
  EXPECT_THAT(lines[0], MatchesRegex("Loss: [01]\\.[0-9]{4}"));
  EXPECT_EQ(lines[1], "Parameter containing:");
  EXPECT_THAT(lines[2], MatchesRegex("tensor\\(\\[\\[.*"));
  EXPECT_THAT(lines.back(), MatchesRegex(".*\\]\\].*requires_grad=true\\)"));
}

TEST_F(Article, ParallelizeExisting) {
  const Outcome outcome = run("parallelize_existing");
  EXPECT_EQ(outcome.out, lets_use_gpus());
  EXPECT_THAT(lines_of(outcome.err), ElementsAreArray({MatchesRegex("data parallel: loss [01]\\.[0-9]+"),
                                                       MatchesRegex("distributed, 1 ranks: loss [01]\\.[0-9]+"),
                                                       MatchesRegex("model parallel: loss [01]\\.[0-9]+")}));
}

TEST_F(Article, StepByStep) {
  const int gpus = device_count();
  std::vector<std::string> expected{fmt::format("Available GPUs: {}", gpus)};
  if (gpus == 0) {
    expected.push_back("Warning: No GPUs detected. Code will run on CPU.");
  }
  expected.push_back(gpus > 1 ? fmt::format("Model wrapped with DataParallel on {} GPUs", gpus)
                              : fmt::format("Running on single device: {}", gpus == 1 ? "cuda" : "cpu"));
  expected.insert(expected.end(),
                  {"Epoch 1, Avg Loss: 2\\.[0-9]{4}", "Epoch 2, Avg Loss: 2\\.[0-9]{4}", "Training complete"});
  const std::vector<std::string> lines = lines_of(run("step_by_step").out);
  ASSERT_THAT(lines, SizeIs(expected.size()));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i], MatchesRegex(expected[i]));
  }
  EXPECT_LT(lines[lines.size() - 2].substr(20), lines[lines.size() - 3].substr(20)) << "it learns";
}

TEST_F(Article, WhyOneGpuAsRanks) { EXPECT_EQ(launch("why_one_gpu").out, ""); }
TEST_F(Article, ParallelizeExistingAsRanks) { EXPECT_EQ(launch("parallelize_existing").out, ""); }

}  // namespace
}  // namespace example
