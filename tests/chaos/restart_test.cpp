#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/checkpoint/generations.h>
#include <tandem/core/failpoint.h>

#include "chaos/job.h"
#include "support/temp_dir.h"

// A training is killed at a random moment and restarted by `tandem run --max-restarts`. It ends with the bits of one
// that was left alone: weights, optimiser, random numbers and the log, which has each step once.

namespace tandem::test {
namespace {

using namespace std::chrono_literals;
using checkpoint::Generations;

constexpr unsigned kAtOnce = 4;  // a job that waits to be restarted needs no core

struct Result {
  std::string state;
  std::string log;
};

Result result_of(const Job& job) {
  const std::string run = job.folder() / "run";
  const std::vector<std::int64_t> steps = Generations::steps_in(run + "/checkpoints");
  return {steps.empty() ? "" : read_text(Generations::path_in(run + "/checkpoints", steps.front())),
          read_text(run + "/metrics.jsonl")};
}

// An uninterrupted run, and the time that it took.
std::pair<Result, std::chrono::nanoseconds> whole_run(int ranks) {
  const std::int64_t start = monotonic_ns();
  Job job(ranks, {}, "", CHAOS_TRAINING);
  const auto status = job.wait(60s * kSlowness);
  EXPECT_EQ(status.value_or(-1), 0) << job.story();
  return {result_of(job), std::chrono::nanoseconds(monotonic_ns() - start)};
}

using WholeRuns = std::map<int, std::pair<Result, std::chrono::nanoseconds>>;

// Whether the job ended well and with the bits of `expected`. Returns what is wrong, or an empty text.
std::string what_is_wrong(Job& job, const Result& expected, const std::string& story) {
  const auto status = job.wait(120s * kSlowness);
  const Result result = result_of(job);
  const std::string wrong = !status                          ? "it hangs"
                            : *status != 0                   ? fmt::format("its status is {}", *status)
                            : result.state != expected.state ? "the state differs"
                            : result.log != expected.log     ? "the log differs"
                                                             : "";
  return wrong.empty() ? wrong : fmt::format("{}: {}\n{}", story, wrong, job.story());
}

// Kills one rank at a moment that the seed decides, and counts those that were still there.
std::string run_killed(unsigned seed, const WholeRuns& whole, std::atomic<int>& killed) {
  std::mt19937 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 3);
  const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
  const auto& [expected, duration] = whole.at(ranks);
  const double part = 1.05 * static_cast<double>(random()) / static_cast<double>(std::mt19937::max());
  const auto pause = std::chrono::duration_cast<std::chrono::microseconds>(part * duration);
  Job job(ranks, {"--max-restarts", "3"}, "", CHAOS_TRAINING);
  std::this_thread::sleep_for(pause);
  const auto pids = job.ranks();
  if (const auto found = pids.find(victim); found != pids.end()) {
    ::kill(found->second, SIGKILL);
    ++killed;
  }
  return what_is_wrong(job, expected,
                       fmt::format("TANDEM_CHAOS_SEED={} TANDEM_CHAOS_ROUNDS=1, rank {} of {} was killed after {} us",
                                   seed, victim, ranks, pause.count()));
}

// Runs so many of these, some at once, until one is wrong.
void run_all(int count, const std::function<std::string(int number)>& run) {
  std::atomic<int> next{0};
  std::mutex mutex;
  std::vector<std::string> failures;
  std::vector<std::thread> workers;
  for (unsigned worker = 0; worker < kAtOnce; ++worker) {
    workers.emplace_back([&] {
      for (int number = next++; number < count; number = next++) {
        if (std::string wrong = run(number); !wrong.empty()) {
          const std::lock_guard lock(mutex);
          failures.push_back(std::move(wrong));
          next = count;
        }
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  for (const std::string& failure : failures) {
    ADD_FAILURE() << failure;
  }
}

TEST(Restart, OfARunThatWasKilledAnywhereGivesTheBitsOfOneThatWasNot) {
  WholeRuns whole;
  for (const int ranks : {2, 3, 4}) {
    whole[ranks] = whole_run(ranks);
    ASSERT_NE(whole[ranks].first.state, "");
    EXPECT_GT(std::count(whole[ranks].first.log.begin(), whole[ranks].first.log.end(), '\n'), 200);
  }
  const int first = number_from_environment("TANDEM_CHAOS_SEED", 1);
  const int rounds = number_from_environment("TANDEM_CHAOS_ROUNDS", 20);
  std::atomic<int> killed{0};
  run_all(rounds, [&](int round) { return run_killed(static_cast<unsigned>(first + round), whole, killed); });
  EXPECT_GE(killed, rounds / 2) << "most find their rank alive";
}

TEST(Restart, OfARankThatEndsAtAnyFailpointGivesTheBitsToo) {
  const Result expected = whole_run(2).first;
  const auto count = static_cast<int>(core::kFailpoints.size());
  const int ranks = number_from_environment("TANDEM_CHAOS_ROUNDS", 20) < 20 ? 1 : 2;
  run_all(ranks * count, [&](int number) {
    const std::string name = core::kFailpoints[static_cast<std::size_t>(number % count)];
    const int victim = number / count;
    const std::string plan = fmt::format("{}={}:{}", victim, name, name == "leave" ? 1 : 3);
    Job job(2, {"--max-restarts", "1"}, plan, CHAOS_TRAINING);
    std::string wrong = what_is_wrong(job, expected, plan);
    const bool visits = victim == 0 || !name.starts_with("save.");  // rank 0 writes
    const bool was_killed = job.narration().find("was killed by signal 9") != std::string::npos;
    return !wrong.empty() || was_killed == visits ? wrong : fmt::format("{}: killed: {}", plan, was_killed);
  });
}

}  // namespace
}  // namespace tandem::test
