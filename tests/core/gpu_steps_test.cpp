#include <tandem/core/gpu_steps.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Tests of the arithmetic that puts steps in the time of a GPU.

namespace tandem::core {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

// A phase of GPU 0 between two microseconds. The host runs ahead.
GpuPhase phase(std::uint64_t number, Phase which, int began, int ended) {
  const auto at = [](int us) { return Span::Clock::time_point(std::chrono::microseconds(us)); };
  return {.number = number, .phase = which, .began = at(began), .ended = at(ended)};
}

// Two steps after the first one. A `reduce` lies inside each backward pass.
std::vector<GpuPhase> steps() {
  return {phase(1, Phase::forward, 0, 10),    phase(2, Phase::optimizer, 10, 20),
          phase(3, Phase::forward, 20, 50),   phase(4, Phase::backward, 50, 110),
          phase(5, Phase::reduce, 90, 110),   phase(6, Phase::optimizer, 110, 120),
          phase(7, Phase::forward, 125, 150), phase(8, Phase::backward, 150, 200),
          phase(9, Phase::reduce, 170, 200),  phase(10, Phase::optimizer, 200, 220)};
}
const std::vector<std::uint64_t> kEnds{3, 7, 11};

// The sums that the host has of ten steps.
StepSums of_host() {
  StepSums sums{.count = 10, .longest = 1, .elapsed = 2};
  sums.phases.fill(0.1);
  sums.waits = {0.5};
  sums.facts[static_cast<std::size_t>(Fact::gpu)] = 1;
  sums.efforts.fill({.count = 3, .seconds = 0.2, .bytes = 5});
  return sums;
}

double of(const StepSums& sums, Phase which) { return 1e6 * sums.phases[static_cast<std::size_t>(which)]; }

TEST(GpuSteps, ArePhasesWithoutThoseInsideThem) {
  StepSums sums = of_host();
  tell_in_gpu_time(sums, steps(), kEnds);
  EXPECT_TRUE(sums.is_gpu_time);
  EXPECT_EQ(sums.count, 2) << "the host counted ten steps, two of which are known";
  EXPECT_NEAR(1e6 * sums.elapsed, 200, 1e-6) << "from 20 to 220";
  EXPECT_NEAR(1e6 * sums.longest, 100, 1e-6);
  EXPECT_NEAR(of(sums, Phase::forward), 55, 1e-6);
  EXPECT_NEAR(of(sums, Phase::backward), 60, 1e-6);
  EXPECT_NEAR(of(sums, Phase::reduce), 50, 1e-6);
  EXPECT_NEAR(of(sums, Phase::optimizer), 30, 1e-6);
  EXPECT_EQ(of(sums, Phase::input), 0);
  EXPECT_THAT(sums.waits, ElementsAre(DoubleNear(20e-6, 1e-12), DoubleNear(30e-6, 1e-12)));
}

TEST(GpuSteps, CostNothingWhereTheHostWaitsForThem) {
  StepSums sums = of_host();
  tell_in_gpu_time(sums, steps(), kEnds);
  const EffortSum& read = sums.efforts[static_cast<std::size_t>(Effort::read)];
  EXPECT_EQ(read.seconds, 0);
  EXPECT_DOUBLE_EQ(read.count, 0.6) << "3 in ten steps";
  EXPECT_DOUBLE_EQ(sums.efforts[static_cast<std::size_t>(Effort::exchange)].seconds, 0.04)
      << "the host's exchange takes as long as it takes";
}

TEST(GpuSteps, MayHaveLostTheEarliestPhases) {
  const std::vector<GpuPhase> all = steps();
  StepSums sums = of_host();
  tell_in_gpu_time(sums, {all.begin() + 2, all.end()}, kEnds);
  EXPECT_EQ(sums.count, 1);
  EXPECT_NEAR(1e6 * sums.elapsed, 100, 1e-6) << "the last step, from 120 to 220";
}

TEST(GpuSteps, LeaveOutPhasesOnOtherGpus) {
  std::vector<GpuPhase> phases = steps();
  phases[4].gpu = 1;
  StepSums sums = of_host();
  tell_in_gpu_time(sums, phases, kEnds);
  EXPECT_EQ(sums.count, 2);
  EXPECT_NEAR(of(sums, Phase::backward), 80, 1e-6);
}

TEST(GpuSteps, AreThoseOfTheHostUnlessItTrainsOnOneGpu) {
  const auto expect_host = [](const std::vector<GpuPhase>& phases, Fact fact, double value) {
    StepSums sums = of_host();
    sums.facts[static_cast<std::size_t>(fact)] = value;
    tell_in_gpu_time(sums, phases, kEnds);
    EXPECT_FALSE(sums.is_gpu_time);
    EXPECT_EQ(sums.elapsed, 2);
    EXPECT_EQ(sums.efforts[0].seconds, 0.2);
  };
  expect_host({}, Fact::gpu, 1);
  expect_host({phase(10, Phase::optimizer, 200, 220)}, Fact::gpu, 1);  // no step before it
  expect_host(steps(), Fact::gpu, 0);  // the parameters are on a CPU, though the thread has used a GPU
  expect_host(steps(), Fact::gpu, 2);
  expect_host(steps(), Fact::devices, 2);
  expect_host(steps(), Fact::idle, 0.5);  // of a pipeline over devices
}

// CUDA's resolution is half a microsecond: a phase may begin when the one around it does, and take no time.
TEST(GpuSteps, MayHavePhasesThatBeginTogether) {
  StepSums sums = of_host();
  tell_in_gpu_time(sums,
                   {phase(1, Phase::optimizer, 0, 0), phase(2, Phase::backward, 0, 10), phase(3, Phase::reduce, 0, 0),
                    phase(4, Phase::reduce, 0, 4), phase(5, Phase::optimizer, 10, 10)},
                   {2, 6});
  EXPECT_NEAR(of(sums, Phase::backward), 6, 1e-6);
  EXPECT_NEAR(of(sums, Phase::reduce), 4, 1e-6);
  EXPECT_NEAR(1e6 * sums.elapsed, 10, 1e-6);
}

}  // namespace
}  // namespace tandem::core
