#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/lane_stages.h>

namespace tandem::autograd {
namespace {

using Stages = std::vector<std::size_t>;

TEST(LaneStages, LanesThatNeedNothingOfEachOtherShareAStage) {
  EXPECT_EQ(find_stages(std::vector<StagedTask>{{{0}}, {{1}}, {{0}}, {{1}}}, 2), (Stages{0, 0, 0, 0}));
}

TEST(LaneStages, AMeetingPointEndsAStage) {
  EXPECT_EQ(find_stages(std::vector<StagedTask>{{{0, 1}}, {{0}}, {{1}}, {{0, 1}}}, 2), (Stages{0, 1, 1, 1}));
}

TEST(LaneStages, AResultOfAnotherLaneIsThereInTheNextStage) {
  EXPECT_EQ(find_stages(std::vector<StagedTask>{{{0}}, {{1}, {0}}, {{0}, {1}}}, 2), (Stages{0, 1, 2}));
}

// Task 0 starts lane 1. The rest of lane 0 waits for company.
TEST(LaneStages, ALaneThatStartsAnotherRunsBesideIt) {
  const std::vector<StagedTask> tasks{{{0}}, {{1}, {0}}, {{0}, {0}}, {{1}, {1}}, {{0}, {2}}, {{1}, {3}}};
  EXPECT_EQ(find_stages(tasks, 2), (Stages{0, 1, 1, 1, 1, 1}));
}

// The last task of lane 0 needs all of lane 1. The rest of lane 0 runs beside lane 1.
TEST(LaneStages, ALaneThatEndsAnotherRanBesideIt) {
  const std::vector<StagedTask> tasks{{{0}}, {{1}}, {{0}, {0}}, {{1}, {1}}, {{0}, {2, 3}}};
  EXPECT_EQ(find_stages(tasks, 2), (Stages{0, 0, 0, 0, 1}));
}

TEST(LaneStages, NoTasksHaveNoStages) { EXPECT_TRUE(find_stages({}, 0).empty()); }

TEST(LaneStages, EveryTaskRunsAfterAllThatItNeeds) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const std::size_t lanes = 1 + random() % 4;
    std::vector<StagedTask> tasks(random() % 40);
    for (std::size_t index = 0; index < tasks.size(); ++index) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        if (random() % 8 == 0) {
          tasks[index].lanes.push_back(lane);
        }
      }
      if (tasks[index].lanes.empty()) {
        tasks[index].lanes.push_back(random() % lanes);
      }
      for (std::size_t i = 0; index > 0 && i < random() % 3; ++i) {
        tasks[index].needs.push_back(random() % index);
      }
    }
    const Stages stages = find_stages(tasks, lanes);
    const auto is_single = [&](std::size_t i) { return tasks[i].lanes.size() == 1; };
    const auto expect_order = [&](std::size_t before, std::size_t index) {
      const bool beside = is_single(before) && is_single(index) && tasks[before].lanes != tasks[index].lanes;
      const bool after_meeting = !is_single(before) && is_single(index);
      ASSERT_LE(stages[before] + (beside || after_meeting ? 1 : 0), stages[index]) << "in round " << round;
    };
    for (std::size_t index = 0; index < tasks.size(); ++index) {
      for (const std::size_t needed : tasks[index].needs) {
        expect_order(needed, index);
      }
      for (const std::size_t lane : tasks[index].lanes) {
        for (std::size_t before = 0; before < index; ++before) {
          if (std::ranges::count(tasks[before].lanes, lane) > 0 && is_single(before) == is_single(index)) {
            ASSERT_LE(stages[before], stages[index]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::autograd
