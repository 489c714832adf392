#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "chaos/job.h"

// Ranks under `tandem run` are killed, stopped and woken at random moments, from their start to their end. Only a few
// rounds run by default; TANDEM_CHAOS_ROUNDS sets the number (`./dev chaos`: 200), and TANDEM_CHAOS_SEED the seed.

namespace tandem::test {
namespace {

using namespace std::chrono_literals;

int rounds() { return number_from_environment("TANDEM_CHAOS_ROUNDS", 20); }

// Each round has its own seed, so that one round can be repeated alone.
unsigned seed_of(int round) { return static_cast<unsigned>(number_from_environment("TANDEM_CHAOS_SEED", 1) + round); }

// Waits until the rank's process exists.
pid_t pid_of(const Job& job, int rank) {
  for (const std::int64_t end = monotonic_ns() + 60'000'000'000; monotonic_ns() < end;) {
    const auto ranks = job.ranks();
    if (const auto found = ranks.find(rank); found != ranks.end()) {
      return found->second;
    }
    std::this_thread::sleep_for(1ms);
  }
  return -1;
}

// Waits until the rank has joined the group.
bool joins(const Job& job, int rank) {
  for (const std::int64_t end = monotonic_ns() + 60'000'000'000; monotonic_ns() < end;) {
    if (job.report(rank).joined) {
      return true;
    }
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

// A zombie does not run: the process that inherits orphans may be slow to wait for them.
bool is_running(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string stat;
  std::getline(file, stat);
  const std::size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

TEST(Chaos, SurvivorsOfAKilledRankNameIt) {
  for (int round = 0; round < rounds(); ++round) {
    std::mt19937 random(seed_of(round));
    const int ranks = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const auto pause = std::chrono::microseconds(random() % 500'000);
    Job job(ranks);
    const pid_t pid = pid_of(job, victim);
    ASSERT_GT(pid, 0) << job.story();
    std::this_thread::sleep_for(pause);
    const std::int64_t killed = monotonic_ns();
    ::kill(pid, SIGKILL);
    const auto status = job.wait(15s * kSlowness);
    const auto story = [&] {
      return fmt::format("TANDEM_CHAOS_SEED={} TANDEM_CHAOS_ROUNDS=1: rank {} of {}, pid {}, killed after {} us\n{}",
                         seed_of(round), victim, ranks, pid, pause.count(), job.story());
    };
    ASSERT_TRUE(status) << story();
    ASSERT_TRUE(WIFEXITED(*status)) << story();
    EXPECT_EQ(WEXITSTATUS(*status), 128 + SIGKILL) << story();
    const std::string named = fmt::format("rank {} (pid {}", victim, pid);
    EXPECT_NE(job.narration().find(named), std::string::npos) << story();
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == victim) {
        continue;
      }
      const RankReport report = job.report(rank);
      if (!report.error_ns && (!report.started_ns || *report.started_ns > killed)) {
        continue;  // the rank started when the job was over, and got SIGTERM before it could join
      }
      ASSERT_TRUE(report.error_ns) << "rank " << rank << " says nothing\n" << story();
      if (report.blamed != -1) {  // -1: the failed sub-group does not contain the victim
        EXPECT_EQ(report.blamed, victim) << "by rank " << rank << "\n" << story();
      }
      EXPECT_NE(report.text.find(named), std::string::npos) << story();
      EXPECT_NE(report.text.find("signal 9"), std::string::npos) << story();
      const std::int64_t there = std::max(killed, *report.started_ns);
      EXPECT_LE(static_cast<double>(*report.error_ns - there) * 1e-9, 1.0 * kSlowness) << story();
    }
    if (HasFailure()) {
      return;
    }
  }
}

TEST(Chaos, AStoppedRankIsNamedWithinTheLimit) {
  Job job(3, {"--heartbeat-limit", "2"});
  const pid_t pid = pid_of(job, 1);
  for (const int rank : {0, 1, 2}) {
    ASSERT_TRUE(joins(job, rank)) << job.story();
  }
  std::this_thread::sleep_for(100ms);  // let the ranks work
  const std::int64_t stopped = monotonic_ns();
  ::kill(pid, SIGSTOP);
  ASSERT_TRUE(job.wait(15s * kSlowness)) << job.story();
  for (const int rank : {0, 2}) {
    const RankReport report = job.report(rank);
    ASSERT_TRUE(report.error_ns) << job.story();
    EXPECT_EQ(report.blamed, 1) << job.story();
    const double seconds = static_cast<double>(*report.error_ns - stopped) * 1e-9;
    EXPECT_LE(seconds, 2.5 * kSlowness) << job.story();
    // The message counts from the last heartbeat, which may be older than the stop.
    EXPECT_NE(report.text.find(" has sent no heartbeat for 2."), std::string::npos) << job.story();
  }
}

TEST(Chaos, AStoppedRankThatWakesInTimeGoesOn) {
  Job job(2, {"--heartbeat-limit", "4"}, "100");
  const pid_t pid = pid_of(job, 1);
  std::this_thread::sleep_for(100ms);
  for (int stop = 0; stop < 3; ++stop) {
    ::kill(pid, SIGSTOP);
    std::this_thread::sleep_for(700ms);
    ::kill(pid, SIGCONT);
    std::this_thread::sleep_for(50ms);
  }
  const auto status = job.wait(60s * kSlowness);
  ASSERT_TRUE(status) << job.story();
  EXPECT_EQ(*status, 0) << job.story();
  EXPECT_TRUE(job.report(0).done && job.report(1).done) << job.story();
}

TEST(Chaos, NothingIsLeftOfAJobWhoseLauncherIsKilled) {
  for (int round = 0; round < rounds(); ++round) {
    std::mt19937 random(seed_of(round));
    Job job(2 + static_cast<int>(random() % 3));
    const auto pause = std::chrono::microseconds(random() % 500'000);
    pid_of(job, 0);
    std::this_thread::sleep_for(pause);
    const auto ranks = job.ranks();
    ::kill(job.launcher(), SIGKILL);
    const std::int64_t killed = monotonic_ns();
    ASSERT_TRUE(job.wait(5s));
    for (const auto& [rank, pid] : ranks) {
      while (is_running(pid) && monotonic_ns() - killed < 1'000'000'000LL * kSlowness) {
        std::this_thread::sleep_for(2ms);
      }
      ASSERT_FALSE(is_running(pid)) << "rank " << rank << " is still there, seed " << seed_of(round) << "\n"
                                    << job.story();
    }
  }
}

}  // namespace
}  // namespace tandem::test
