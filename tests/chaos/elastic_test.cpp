#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/checkpoint/generations.h>

#include "chaos/job.h"
#include "support/temp_dir.h"

// Ranks of `tandem run --elastic` are lost at random moments. The others go on, and no sample of an epoch is lost or
// used twice. TANDEM_CHAOS_ROUNDS sets the number of rounds (`./dev chaos`: 500), and TANDEM_CHAOS_SEED the seed.

namespace tandem::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

struct StepTime {
  std::int64_t at_ns;
  int ranks;  // that made the step together
  auto operator<=>(const StepTime&) const = default;
};

// The steps of all ranks in the order of their times.
std::vector<StepTime> steps_of(const Job& job) {
  std::vector<StepTime> steps;
  for (int rank = 0; rank < 4; ++rank) {
    std::istringstream lines(read_text(job.folder() / fmt::format("rank{}", rank)));
    StepTime step{};
    for (std::string word; lines >> word >> step.at_ns >> step.ranks;) {
      steps.push_back(step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Seconds from a moment to the next step that so many ranks have made; -1: there is none.
double seconds_to_step(const std::vector<StepTime>& steps, std::int64_t from_ns, int ranks) {
  for (const StepTime& step : steps) {
    if (step.at_ns > from_ns && step.ranks == ranks) {
      return static_cast<double>(step.at_ns - from_ns) * 1e-9;
    }
  }
  return -1;
}

// Says what is wrong with the end of a run of 4 epochs; an empty text: nothing is.
std::string what_is_wrong_with(const Job& job) {
  const std::string folder = job.folder() / "run";
  const checkpoint::Generation last =
      checkpoint::Generations::newest_whole(folder + "/checkpoints", [](const std::string&) {});
  if (last.path.empty()) {
    return "there is no checkpoint";
  }
  for (const double uses : last.state.at("model.uses.weight").to_vector<double>()) {
    if (std::abs(uses + 4) > 1e-12) {
      return fmt::format("a sample was used {} times in 4 epochs", -uses);
    }
  }
  std::string expected;
  std::istringstream log(read_text(folder + "/metrics.jsonl"));
  int step = 0;
  int epoch = 0;
  for (std::string line; std::getline(log, line);) {
    if (line == fmt::format("{{\"step\":{}}}", step + 1)) {
      ++step;
    } else if (line == fmt::format("{{\"epoch\":{}}}", epoch)) {
      ++epoch;
    } else {
      return fmt::format("after step {} and epoch {} the log has the line {}", step, epoch, line);
    }
  }
  return epoch == 4 && step >= 80 ? "" : fmt::format("the log ends at step {} and epoch {}", step, epoch);
}

// Waits until so many steps have been made.
bool has_steps(const Job& job, std::size_t count) {
  for (const std::int64_t end = monotonic_ns() + 60'000'000'000; monotonic_ns() < end;) {
    if (steps_of(job).size() >= 4 * count) {
      return true;
    }
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

Job elastic_job(const std::vector<std::string>& options, const std::string& plan) {
  std::vector<std::string> all{"--elastic", "2"};
  all.insert(all.end(), options.begin(), options.end());
  return Job(4, all, plan, CHAOS_ELASTIC);
}

TEST(Elastic, OneOfFourRanksLostAtAnyMomentLosesNoSampleAndLessThanTwoSeconds) {
  std::vector<double> seconds;
  const int rounds = number_from_environment("TANDEM_CHAOS_ROUNDS", 20);
  for (int round = 0; round < rounds; ++round) {
    const auto seed = static_cast<unsigned>(number_from_environment("TANDEM_CHAOS_SEED", 1) + round);
    std::mt19937 random(seed);
    const int victim = static_cast<int>(random() % 4);
    const auto pause = std::chrono::microseconds(random() % 600'000);
    const Job job = elastic_job({}, "5000");
    std::this_thread::sleep_for(pause);
    const auto pids = job.ranks();
    const auto found = pids.find(victim);
    const std::int64_t killed = monotonic_ns();
    if (found != pids.end()) {
      ::kill(found->second, SIGKILL);
    }
    const auto status = const_cast<Job&>(job).wait(60s * kSlowness);
    const auto story = [&] {
      return fmt::format("TANDEM_CHAOS_SEED={} TANDEM_CHAOS_ROUNDS=1: rank {} was killed after {} us\n{}", seed, victim,
                         pause.count(), job.story());
    };
    ASSERT_EQ(what_is_wrong_with(job), "") << story();
    // Rank 0 may die when the others have ended, and then nobody shows the results.
    const bool is_late = victim == 0 && job.narration().find("go on") == std::string::npos;
    ASSERT_TRUE(status == 0 || (is_late && status && WEXITSTATUS(*status) == 128 + SIGKILL)) << story();
    const std::vector<StepTime> steps = steps_of(job);
    const double gap = seconds_to_step(steps, killed, 3);
    if (gap >= 0 && !steps.empty() && steps.front().at_ns < killed) {
      EXPECT_LE(gap, 2.0 * kSlowness) << story();
      seconds.push_back(gap);
    }
  }
  if (rounds >= 20) {
    ASSERT_GE(seconds.size(), static_cast<std::size_t>(rounds) / 10) << "some are lost between two steps";
  }
  if (seconds.empty()) {
    return;
  }
  std::sort(seconds.begin(), seconds.end());
  fmt::print("from the loss of a rank to the next step, {} times: median {:.2f} s, at most {:.2f} s\n", seconds.size(),
             seconds[seconds.size() / 2], seconds.back());
}

TEST(Elastic, RanksThatAreLostOneAfterAnotherLoseNoSample) {
  for (const auto& [first, second] : {std::pair(0, 1), std::pair(3, 0)}) {
    Job job = elastic_job({}, "5000");
    ASSERT_TRUE(has_steps(job, 12)) << job.story();
    ::kill(job.ranks().at(first), SIGKILL);
    std::this_thread::sleep_for(100ms);  // the others may still be meeting
    ::kill(job.ranks().at(second), SIGKILL);
    ASSERT_EQ(job.wait(60s * kSlowness).value_or(-1), 0) << job.story();
    EXPECT_THAT(job.narration(), HasSubstr("3 of 4 ranks go on"));
    EXPECT_THAT(job.narration(), HasSubstr("2 of 4 ranks go on"));
    EXPECT_GT(seconds_to_step(steps_of(job), 0, 2), 0) << job.story();
  }
}

TEST(Elastic, ThreeRanksThatAreLostAtOnceLeaveOneThatGoesOn) {
  Job job(4, {"--elastic", "1"}, "5000", CHAOS_ELASTIC);
  ASSERT_TRUE(has_steps(job, 12)) << job.story();
  const std::int64_t killed = monotonic_ns();
  for (const auto& [rank, pid] : job.ranks()) {
    if (rank != 2) {
      ::kill(pid, SIGKILL);
    }
  }
  ASSERT_EQ(job.wait(60s * kSlowness).value_or(-1), 0) << job.story();
  const double gap = seconds_to_step(steps_of(job), killed, 1);
  EXPECT_GT(gap, 0) << job.story();
  EXPECT_LE(gap, 2.0 * kSlowness) << job.story();
}

TEST(Elastic, AStopIsHeardWhereARankIsLostInTheSameStep) {
  Job job = elastic_job({}, "100000");
  ASSERT_TRUE(has_steps(job, 3)) << job.story();
  const auto pids = job.ranks();
  ::kill(pids.at(0), SIGTERM);
  ::kill(pids.at(2), SIGKILL);
  const auto status = job.wait(60s * kSlowness);
  ASSERT_TRUE(status && WIFEXITED(*status)) << job.story();
  EXPECT_THAT(job.narration(), HasSubstr("SIGTERM")) << job.story();
  const std::string checkpoints = job.folder() / "run/checkpoints";
  ASSERT_FALSE(checkpoint::Generations::steps_in(checkpoints).empty()) << job.story();
  EXPECT_LT(checkpoint::Generations::steps_in(checkpoints).front(), 20) << job.story();
}

TEST(Elastic, ARankThatComesBackJoinsAtTheEndOfAnEpochWithTheStateOfTheOthers) {
  Job job = elastic_job({"--max-restarts", "1"}, "100000");
  ASSERT_TRUE(has_steps(job, 3)) << job.story();
  const std::int64_t killed = monotonic_ns();
  ::kill(job.ranks().at(0), SIGKILL);  // whose place another rank takes
  ASSERT_EQ(job.wait(60s * kSlowness).value_or(-1), 0) << job.story();
  EXPECT_EQ(what_is_wrong_with(job), "") << job.story();
  EXPECT_THAT(job.narration(), HasSubstr("rank 0 starts again, and joins the others at the end of an epoch"));
  EXPECT_THAT(job.narration(), HasSubstr("rank 0 is back: 4 go on"));
  const std::vector<StepTime> steps = steps_of(job);
  const double alone = seconds_to_step(steps, killed, 3);
  ASSERT_GT(alone, 0) << job.story();
  EXPECT_GT(seconds_to_step(steps, killed + static_cast<std::int64_t>(alone * 1e9), 4), 0.5) << job.story();
}

TEST(Elastic, ARankThatThrowsIsLeftBehindWithItsError) {
  Job job = elastic_job({}, "3000throws");
  ASSERT_EQ(job.wait(60s * kSlowness).value_or(-1), 0) << job.story();
  EXPECT_EQ(what_is_wrong_with(job), "") << job.story();
  EXPECT_THAT(job.narration(), HasSubstr("[1] error: this rank has had enough"));
  EXPECT_THAT(job.narration(), HasSubstr("3 of 4 ranks go on"));
}

TEST(Elastic, ASilentRankIsKilledBeforeTheOthersGoOn) {
  Job job = elastic_job({"--heartbeat-limit", "2"}, "3000");
  ASSERT_TRUE(has_steps(job, 10)) << job.story();
  const pid_t stopped = job.ranks().at(1);
  ::kill(stopped, SIGSTOP);
  ASSERT_EQ(job.wait(60s * kSlowness).value_or(-1), 0) << job.story();
  EXPECT_EQ(what_is_wrong_with(job), "") << job.story();
  EXPECT_THAT(job.narration(), HasSubstr("it is stopped, or its machine is cut off; 3 of 4 ranks go on"));
  EXPECT_NE(::kill(stopped, 0), 0);
}

TEST(Elastic, TheJobFailsWhereTooFewAreLeft) {
  Job job = elastic_job({}, "5000");
  ASSERT_TRUE(has_steps(job, 10)) << job.story();
  for (const auto& [rank, pid] : job.ranks()) {
    if (rank < 3) {
      ::kill(pid, SIGKILL);
    }
  }
  const auto status = job.wait(60s * kSlowness);
  ASSERT_TRUE(status && WIFEXITED(*status)) << job.story();
  EXPECT_EQ(WEXITSTATUS(*status), 128 + SIGKILL) << job.story();
  EXPECT_THAT(job.narration(), HasSubstr("1 of 4 ranks are left, and --elastic asks for 2"));
}

// Its ranks would not hear of a loss while they meet, and wait for the lost one to the end of their timeout.
TEST(Elastic, AProgramWithoutRunElasticIsRefusedBeforeItsRanksMeet) {
  Job job(3, {"--elastic", "2"}, "", CHAOS_TRAINING);
  const std::optional<int> status = job.wait(60s * kSlowness);
  ASSERT_TRUE(status && WIFEXITED(*status)) << job.story();
  EXPECT_EQ(WEXITSTATUS(*status), 1) << job.story();
  EXPECT_THAT(job.narration(), HasSubstr("under --elastic a program calls parallel::run_elastic()"));
}

}  // namespace
}  // namespace tandem::test
