#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/checkpoint/generations.h>

#include "checkpoint/resumed_training.h"
#include "support/temp_dir.h"
#include "support/warnings.h"

// A run that was interrupted ends with the bits of one that was not. TANDEM_RESUME_EVERY=1 resumes after each step.

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::Generations;

std::int64_t every_nth() {
  const char* text = std::getenv("TANDEM_RESUME_EVERY");
  return text == nullptr ? 10 : std::strtoll(text, nullptr, 10);
}

std::string newest_in(const std::string& folder) {
  const std::string checkpoints = folder + "/checkpoints";
  return Generations::path_in(checkpoints, Generations::steps_in(checkpoints).at(0));
}

std::string name_of(const ::testing::TestParamInfo<Way>& way) { return to_string(way.param); }

class ResumedRun : public ::testing::TestWithParam<Way> {};

TEST_P(ResumedRun, HasTheBitsOfTheUninterruptedOneAfterAnyStep) {
  constexpr std::int64_t kSteps = 300;
  const std::int64_t every = every_nth();
  const TempDir dir;
  const std::string whole = dir.file("whole");
  train(whole, {.way = GetParam(), .steps = kSteps}, {.every = every, .keep = 1'000});
  const std::string last = read_text(newest_in(whole));
  const std::string metrics = read_text(whole + "/metrics.jsonl");
  ASSERT_NE(last, "");
  const std::vector<std::int64_t> steps = Generations::steps_in(whole + "/checkpoints");
  ASSERT_GE(static_cast<std::int64_t>(steps.size()), kSteps / every);
  for (const std::int64_t step : steps) {
    const std::string part = dir.file("part");
    fs::remove_all(part);
    fs::create_directories(part + "/checkpoints");
    fs::copy(Generations::path_in(whole + "/checkpoints", step), part + "/checkpoints");
    fs::copy(whole + "/metrics.jsonl", part);  // with lines from after the checkpoint
    train(part, {.way = GetParam(), .steps = kSteps}, {.every = 0});
    ASSERT_EQ(read_text(newest_in(part)), last) << "resumed after step " << step;
    ASSERT_EQ(read_text(part + "/metrics.jsonl"), metrics) << "resumed after step " << step;
  }
}

TEST_P(ResumedRun, HasTheBitsOfTheUninterruptedOneAfterACrashBetweenCheckpoints) {
  const TempDir dir;
  train(dir.file("whole"), {.way = GetParam(), .steps = 80}, {.every = 7});
  const TrainingPlan plan{.way = GetParam(), .steps = 80};
  for (const std::int64_t stop_at : {3, 26, 70}) {  // the first one before any checkpoint
    TrainingPlan crashing = plan;
    crashing.stop_at = stop_at;
    EXPECT_THROW(train(dir.file("part"), crashing, {.every = 7}), Stopped);
  }
  train(dir.file("part"), plan, {.every = 7});
  EXPECT_EQ(read_text(newest_in(dir.file("part"))), read_text(newest_in(dir.file("whole"))));
  EXPECT_EQ(read_text(dir.file("part/metrics.jsonl")), read_text(dir.file("whole/metrics.jsonl")));
}

INSTANTIATE_TEST_SUITE_P(Ways, ResumedRun,
                         ::testing::Values(Way::eager, Way::captured, Way::scaled, Way::replicas, Way::ranks,
                                           Way::ranks_in_join, Way::ranks_with_shard, Way::ranks_with_parts),
                         name_of);

}  // namespace
}  // namespace tandem::test
