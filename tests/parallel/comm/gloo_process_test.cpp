#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/distributed/ddp_training.h"

// Ranks that are processes, and die. Each process runs gloo_rank.

extern char** environ;

namespace tandem::parallel {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

struct End {
  int status = -1;
  std::string text;  // the whole output
  std::string fault = {};
  int rank = -1;  // the blamed rank
  Clock::time_point when = {};
  Clock::time_point hears_since = {};
};

class RankOf {
 public:
  RankOf(int port, int rank, int size, const char* mode) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    std::string words[] = {TANDEM_GLOO_RANK, std::to_string(port), std::to_string(rank), std::to_string(size), mode};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments, environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    out_ = ends[0];
  }
  ~RankOf() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(out_);
  }
  RankOf(const RankOf&) = delete;
  RankOf& operator=(const RankOf&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  // Waits until the output contains `text`.
  void wait_for(const std::string& text) {
    while (said_.find(text) == std::string::npos && read_more()) {
    }
  }
  End end() {
    while (read_more()) {
    }
    End end{.text = said_};
    ::waitpid(std::exchange(pid_, -1), &end.status, 0);
    const auto line = said_.find("error ");
    char fault[32] = {};
    long long when = 0;
    long long since = 0;
    if (line != std::string::npos &&
        std::sscanf(said_.c_str() + line, "error %31s %d %lld %lld", fault, &end.rank, &when, &since) == 4) {
      end.fault = fault;
      end.when = Clock::time_point(Clock::duration(when));
      end.hears_since = Clock::time_point(Clock::duration(since));
    }
    return end;
  }

 private:
  bool read_more() {
    char bytes[512];
    const ssize_t got = ::read(out_, bytes, sizeof bytes);
    said_.append(bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return got > 0;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  std::string said_;
};

// Acts as the launcher and starts the ranks.
class GlooJob : public ::testing::Test {
 protected:
  void start(int size, const char* mode, std::chrono::milliseconds limit = 10s) {
    ranks_.clear();
    server_ = std::make_unique<StoreServer>(StoreServerOptions{.heartbeat_limit = limit});
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<RankOf>(server_->port(), rank, size, mode));
    }
  }
  void wait_until_connected() {
    for (const auto& rank : ranks_) {
      rank->wait_for("connected");
    }
  }
  // Expects every other rank to end by itself, to blame the victim, and to do so in time. The time counts from the
  // moment the rank could hear of the failure.
  void expect_blamed(int victim, Clock::time_point since, double seconds, const char* fault = "peer_lost") {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (static_cast<int>(r) == victim) {
        continue;
      }
      const End end = ranks_[r]->end();
      EXPECT_EQ(end.status, 0) << "rank " << r << ": " << end.text;
      EXPECT_EQ(end.fault, fault) << "rank " << r << ": " << end.text;
      EXPECT_EQ(end.rank, victim) << "rank " << r << ": " << end.text;
      const auto begin = std::max(since, end.hears_since);
      EXPECT_LT(std::chrono::duration<double>(end.when - begin).count(), seconds) << "rank " << r << ": " << end.text;
    }
  }

  std::unique_ptr<StoreServer> server_;
  std::vector<std::unique_ptr<RankOf>> ranks_;
};

TEST_F(GlooJob, NamesARankThatIsKilledAtAnyMoment) {
  const char* many = std::getenv("TANDEM_CHAOS_ROUNDS");
  const int rounds = many == nullptr ? 20 : std::atoi(many);
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const int size = 2 + round % 3;
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    const auto moment = std::chrono::microseconds(random() % 200'000);  // from before the rendezvous on
    constexpr const char* kModes[] = {"long", "small", "hosts"};
    const char* mode = kModes[(round + round / 3) % 3];
    SCOPED_TRACE(fmt::format("round {}: rank {} of {} after {} us, {}", round, victim, size, moment.count(), mode));
    start(size, mode);
    std::this_thread::sleep_for(moment);
    const RankOf& killed = *ranks_[static_cast<std::size_t>(victim)];
    const auto since = Clock::now();
    killed.signal(SIGKILL);
    server_->publish_verdict(fmt::format("rank {} (pid {}) was killed by signal 9", victim, killed.pid()));
    expect_blamed(victim, since, 1.0);
  }
}

// No parent reports the death: only the server and the connections show it.
TEST_F(GlooJob, NamesARankThatIsKilledWhileItReduces) {
  for (const int victim : {0, 1, 2}) {
    start(3, victim == 1 ? "small" : "long");
    wait_until_connected();
    std::this_thread::sleep_for(50ms);
    const auto since = Clock::now();
    ranks_[static_cast<std::size_t>(victim)]->signal(SIGKILL);
    expect_blamed(victim, since, 1.0);
  }
}

TEST_F(GlooJob, NamesARankThatIsStopped) {
  start(3, "long", 2s);
  wait_until_connected();
  std::this_thread::sleep_for(100ms);
  const auto since = Clock::now();
  ranks_[1]->signal(SIGSTOP);
  expect_blamed(1, since, 2.5);
}

// Two hosts of two ranks each.
TEST_F(GlooJob, NamesARankOfAnyHostThatIsKilledOrStoppedWhileHostsReduce) {
  for (const int victim : {0, 1, 2, 3}) {
    start(4, "hosts");
    wait_until_connected();
    std::this_thread::sleep_for(50ms);
    const auto killed = Clock::now();
    ranks_[static_cast<std::size_t>(victim)]->signal(SIGKILL);
    expect_blamed(victim, killed, 1.0);

    // Only the deadline ends the wait. The rank stops between two calls: within a call, a rank may wait for one that
    // waits for the stopped one, and has no way to know.
    start(4, "hosts-late", 30s);
    wait_until_connected();
    std::this_thread::sleep_for(50ms);
    const auto stopped = Clock::now();
    ranks_[static_cast<std::size_t>(victim)]->signal(SIGUSR1);
    expect_blamed(victim, stopped, 9.0, "timeout");
  }
}

TEST_F(GlooJob, GoesOnWhenAStoppedRankWakesInTime) {
  start(2, "brief", 10s);
  wait_until_connected();
  ranks_[0]->signal(SIGSTOP);
  std::this_thread::sleep_for(1s);
  ranks_[0]->signal(SIGCONT);
  for (const auto& rank : ranks_) {
    EXPECT_THAT(rank->end().text, HasSubstr("done"));
  }
}

TEST_F(GlooJob, NamesWhoForgotACollective) {
  start(3, "forget");
  for (const auto& rank : ranks_) {
    const End end = rank->end();
    EXPECT_EQ(end.status, 0);
    EXPECT_EQ(end.fault, "timeout") << end.text;
    EXPECT_EQ(end.rank, 0) << end.text;
    EXPECT_THAT(end.text, HasSubstr("rank 0 has not come within 0.5 s; its last call in this group was barrier (#0)"));
  }
}

TEST_F(GlooJob, TrainsToTheBitsOfRanksThatAreThreads) {
  for (const int size : {1, 2, 3, 4}) {
    std::vector<std::string> of_threads(static_cast<std::size_t>(size));
    spawn(size, [&](ProcessGroup& group) {
      of_threads[static_cast<std::size_t>(group.rank())] = test::trained_bits(group, 25);
    });
    for (const char* mode : {"train 1e-6", "train 25"}) {  // one bucket for each parameter, or one bucket for all
      start(size, mode);
      for (const auto& rank : ranks_) {
        EXPECT_THAT(rank->end().text, HasSubstr("weights " + of_threads.front() + "\ndone")) << mode;
      }
    }
    EXPECT_THAT(of_threads, ::testing::Each(of_threads.front()));
  }
}

}  // namespace
}  // namespace tandem::parallel
