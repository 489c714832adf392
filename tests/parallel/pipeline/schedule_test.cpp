#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

namespace tandem::test {
namespace {

using parallel::bubble_of;
using parallel::Schedule;
using parallel::StageCost;
using parallel::time_of;
using parallel::detail::actions_of;
using parallel::detail::StageAction;
using testing::HasSubstr;

std::string text_of(const std::vector<StageAction>& actions) {
  std::string text;
  for (const auto& [is_backward, m] : actions) {
    text += (is_backward ? "B" : "F") + std::to_string(m) + " ";
  }
  return text;
}

TEST(PipelineSchedule, GPipeRunsAllForwardPassesFirst) {
  for (std::size_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(text_of(actions_of(Schedule::gpipe, stage, 3, 4)), "F0 F1 F2 F3 B0 B1 B2 B3 ");
  }
}

TEST(PipelineSchedule, OneForwardOneBackwardAlternates) {
  EXPECT_EQ(text_of(actions_of(Schedule::one_f_one_b, 0, 3, 4)), "F0 F1 F2 B0 F3 B1 B2 B3 ");
  EXPECT_EQ(text_of(actions_of(Schedule::one_f_one_b, 1, 3, 4)), "F0 F1 B0 F2 B1 F3 B2 B3 ");
  EXPECT_EQ(text_of(actions_of(Schedule::one_f_one_b, 2, 3, 4)), "F0 B0 F1 B1 F2 B2 F3 B3 ");
  EXPECT_EQ(text_of(actions_of(Schedule::one_f_one_b, 0, 4, 2)), "F0 F1 B0 B1 ");
}

TEST(PipelineSchedule, KeepsOrderAndAtMostSMinusStageInFlight) {
  for (std::size_t stages = 1; stages <= 5; ++stages) {
    for (std::size_t count = 1; count <= 9; ++count) {
      for (std::size_t stage = 0; stage < stages; ++stage) {
        std::size_t forward = 0;
        std::size_t backward = 0;
        for (const auto& [is_backward, m] : actions_of(Schedule::one_f_one_b, stage, stages, count)) {
          EXPECT_EQ(m, is_backward ? backward : forward);
          ++(is_backward ? backward : forward);
          EXPECT_LE(forward - backward, stages - stage);
        }
        EXPECT_EQ(forward, count);
        EXPECT_EQ(backward, count);
      }
    }
  }
}

TEST(PipelineSchedule, OfEqualStagesHasTheBubbleOfTheFormula) {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    for (std::size_t stages = 1; stages <= 6; ++stages) {
      for (std::size_t count = 1; count <= 12; ++count) {
        const double work = 3.0 * static_cast<double>(count);
        const double time = time_of(schedule, std::vector<StageCost>(stages, {.forward = 1, .backward = 2}), count);
        EXPECT_NEAR(1 - work / time, bubble_of(stages, count), 1e-12) << stages << " stages, " << count;
      }
    }
  }
}

TEST(PipelineSchedule, OfUnequalStagesIsPacedByTheSlowest) {
  const std::vector<StageCost> costs{{.forward = 1, .backward = 2}, {.forward = 2, .backward = 4}};
  // The slow stage starts after one forward pass, and the last gradient takes one backward pass of the fast stage.
  EXPECT_DOUBLE_EQ(time_of(Schedule::one_f_one_b, costs, 8), 1 + 8 * 6 + 2);
  EXPECT_DOUBLE_EQ(time_of(Schedule::gpipe, costs, 8), 1 + 8 * 6 + 2);
}

TEST(PipelineReport, SplitsTheBubble) {
  parallel::PipelineReport report{.microbatches = 8, .steps = 1, .seconds = 60e-3};
  report.stages = {{.name = "first", .passes = 8, .forward = 8e-3, .backward = 16e-3, .most_in_flight = 2},
                   {.name = "second", .passes = 8, .forward = 16e-3, .backward = 32e-3, .most_in_flight = 1}};
  EXPECT_NEAR(report.bubble(), 1 - 72.0 / 120, 1e-12);
  EXPECT_NEAR(report.bubble_of_schedule(), 1.0 / 9, 1e-12);
  EXPECT_NEAR(report.bubble_of_imbalance(), 1 - 72.0 / (2 * 51) - 1.0 / 9, 1e-12);
  const std::string text = to_string(report);
  EXPECT_THAT(text, HasSubstr("pipeline: 2 stages, 8 micro-batches, 1F1B; 1 steps of 60.00 ms"));
  EXPECT_THAT(text, HasSubstr("second: 2000 us forward, 4000 us backward, busy 80.0 %, at most 1 in flight"));
  EXPECT_THAT(text, HasSubstr("bubble 40.0 %: 11.1 % of the schedule, (S - 1) / (M + S - 1); 18.3 % unequal stages; "
                              "10.6 % handing over and waiting"));
}

}  // namespace
}  // namespace tandem::test
