#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <future>
#include <random>
#include <set>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "parallel/rendezvous/stores.h"
#include "support/message.h"

// Ranks that are processes, and die.

namespace tandem::test {
namespace {

using parallel::JobToken;
using parallel::LostRank;
using parallel::StoreServer;
using parallel::StoreServerOptions;
using parallel::TcpStore;
using parallel::TcpStoreOptions;

/// A child process that runs `body`; the end of the scope kills it.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ == 0) {
      ::alarm(60);
      try {
        body();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        std::_Exit(1);
      }
      std::_Exit(0);
    }
  }
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  int wait() {
    int status = -1;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_;
};

/// Acts as a rank's process: connects, reports that it is ready, and waits forever.
void be_rank(TcpStoreOptions options) {
  options.heartbeat_interval = 100ms;
  TcpStore store(std::move(options));
  store.add("here", 1);
  store.get("never", 60s);
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// The children are forked before this process has threads. They learn the server's port through a pipe.
class Processes : public testing::Test {
 protected:
  /// `limit` is the server's heartbeat limit.
  void start(int ranks, std::chrono::milliseconds limit) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      children_.push_back(std::make_unique<Child>([this, rank, from = ends[0]] {
        std::uint16_t port = 0;
        if (::read(from, &port, sizeof port) != sizeof port) {
          std::_Exit(2);
        }
        be_rank({.port = port, .token = token_, .rank = rank});
      }));
    }
    server_ = std::make_unique<StoreServer>(StoreServerOptions{.token = token_, .heartbeat_limit = limit});
    for (int rank = 0; rank < ranks; ++rank) {
      const std::uint16_t port = server_->port();
      ASSERT_EQ(::write(ends[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    }
    ::close(ends[0]);
    ::close(ends[1]);
    observer_ = std::make_unique<TcpStore>(client_of(*server_, token_));
    ASSERT_TRUE(eventually([&] { return observer_->try_get("here") == std::to_string(ranks); }));
  }

  /// Seconds until a waiting client receives a verdict, which is stored in `text`.
  double time_to_verdict(std::string& text) {
    return seconds([&] { text = message_of<StoreError>([&] { observer_->get("never", 30s); }); });
  }

  JobToken token_ = JobToken::generate();
  std::vector<std::unique_ptr<Child>> children_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<TcpStore> observer_;
};

TEST_F(Processes, AKilledRankIsNamedAtOnce) {
  start(3, 10s);
  std::string text;
  children_[1]->signal(SIGKILL);
  EXPECT_LT(time_to_verdict(text), 3.0) << "without waiting for heartbeats";
  // Its parent, this process, has not waited for it, so nobody knows yet how it ended.
  EXPECT_EQ(text, fmt::format("rank 1 (pid {} on {}) is gone: its connection closed without a goodbye",
                              children_[1]->pid(), host_name()));
  // The other ranks heard the verdict too: get() threw, and they end by themselves.
  EXPECT_EQ(WEXITSTATUS(children_[0]->wait()), 1);
  EXPECT_EQ(WEXITSTATUS(children_[2]->wait()), 1);
}

bool system_keeps_how_a_process_ended() {
  utsname system{};
  int version = 0, patch = 0;
  return ::uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &version, &patch) == 2 &&
         std::pair(version, patch) >= std::pair(6, 15);
}

// As under mpirun or srun, where rank 0 hosts the store and is not the parent of the others.
TEST_F(Processes, AKilledRankIsNamedWithItsSignal) {
  if (!system_keeps_how_a_process_ended()) {
    GTEST_SKIP() << "Linux before 6.15 tells only the parent how a process ended";
  }
  start(2, 10s);
  std::string text;
  const pid_t pid = children_[1]->pid();
  children_[1]->signal(SIGKILL);
  children_[1]->wait();
  EXPECT_LT(time_to_verdict(text), 3.0) << "without waiting for heartbeats";
  EXPECT_EQ(text, fmt::format("rank 1 (pid {} on {}) was killed by signal 9 (SIGKILL)", pid, host_name()));
}

TEST_F(Processes, AStoppedRankIsNamedWithinTheLimit) {
  start(2, 2s);
  std::string text;
  children_[1]->signal(SIGSTOP);
  const double took = time_to_verdict(text);
  EXPECT_GE(took, 1.0);  // the rank may have been silent before it was stopped; the message gives the total time
  EXPECT_LE(took, 2.5);
  EXPECT_EQ(text.substr(0, text.find(" has sent no heartbeat for 2.")),
            fmt::format("rank 1 (pid {} on {})", children_[1]->pid(), host_name()));
  // A rank that wakes up hears the verdict about itself.
  children_[1]->signal(SIGCONT);
  EXPECT_EQ(WEXITSTATUS(children_[1]->wait()), 1);
}

TEST_F(Processes, ARankThatWakesInTimeGoesOn) {
  start(2, 2s);
  children_[1]->signal(SIGSTOP);
  std::this_thread::sleep_for(1200ms);
  children_[1]->signal(SIGCONT);
  std::this_thread::sleep_for(2s);
  EXPECT_EQ(server_->verdict(), "");
  EXPECT_EQ(server_->ranks().size(), 2U);
}

TEST_F(Processes, WhoKnowsMoreSaysIt) {
  std::promise<LostRank> lost;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Child child([&] {
    std::uint16_t port = 0;
    std::ignore = ::read(ends[0], &port, sizeof port);
    be_rank({.port = port, .rank = 4});
  });
  StoreServer server({.on_lost = [&](const LostRank& rank) { lost.set_value(rank); }});
  const std::uint16_t port = server.port();
  std::ignore = ::write(ends[1], &port, sizeof port);
  TcpStore observer(client_of(server));
  observer.wait(std::vector<std::string>{"here"}, 10s);
  child.signal(SIGKILL);
  const LostRank rank = lost.get_future().get();
  EXPECT_EQ(rank.process.rank, 4);
  EXPECT_EQ(rank.process.pid, child.pid());
  EXPECT_EQ(rank.sign, LostRank::Sign::closed);
  EXPECT_EQ(server.verdict(), "");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(ServerProcess, ItsDeathEndsEveryWait) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Child launcher([&] {
    const StoreServer server;
    const std::uint16_t port = server.port();
    std::ignore = ::write(ends[1], &port, sizeof port);
    ::pause();
  });
  std::uint16_t port = 0;
  ASSERT_EQ(::read(ends[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  TcpStore first({.port = port, .rank = 0});
  TcpStore second({.port = port, .rank = 1});
  auto wait = std::async(std::launch::async, [&] { return kind_of([&] { second.get("never", 60s); }); });
  std::this_thread::sleep_for(20ms);
  const double took = seconds([&] {
    launcher.signal(SIGKILL);
    EXPECT_EQ(kind_of([&] { first.get("never", 60s); }), StoreError::Kind::lost);
    EXPECT_EQ(wait.get(), StoreError::Kind::lost);
  });
  EXPECT_LT(took, 1.0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(ServerProcess, AStoppedOneIsLostAtTheClientsLimit) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Child launcher([&] {
    const StoreServer server;
    const std::uint16_t port = server.port();
    std::ignore = ::write(ends[1], &port, sizeof port);
    ::pause();
  });
  std::uint16_t port = 0;
  ASSERT_EQ(::read(ends[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  TcpStore store({.port = port, .rank = 0, .heartbeat_interval = 100ms, .heartbeat_limit = 2s});
  launcher.signal(SIGSTOP);
  const double took = seconds([&] {
    EXPECT_EQ(message_of<StoreError>([&] { store.get("never", 60s); }),
              fmt::format("the rendezvous server at 127.0.0.1:{} has not answered for 2000 ms: it is stopped, or the "
                          "network is cut",
                          port));
  });
  EXPECT_GE(took, 1.0);  // the rank may have been silent before it was stopped
  EXPECT_LT(took, 4.0);
  ::close(ends[0]);
  ::close(ends[1]);
}

// The process may be connecting, in the handshake, joining or waiting.
TEST(Kill, AtAnyMomentIsNamedOrLeavesNoTrace) {
  std::mt19937 random(20261122);
  for (int round = 0; round < 20; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    Child victim([&] {
      std::uint16_t port = 0;
      std::ignore = ::read(ends[0], &port, sizeof port);
      be_rank({.port = port, .rank = 1});
    });
    StoreServer server;
    TcpStore survivor(client_of(server, {}, 0));
    const std::uint16_t port = server.port();
    std::ignore = ::write(ends[1], &port, sizeof port);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 6000));
    victim.signal(SIGKILL);
    const std::string who = fmt::format("rank 1 (pid {} on {})", victim.pid(), host_name());
    victim.wait();
    EXPECT_TRUE(eventually([&] { return server.ranks().size() == 1; }));
    // Data that the process sent may still be on its way to the server: then the rank joins now, and is lost.
    try {
      EXPECT_GE(survivor.add("n", 1), 1);
    } catch (const StoreError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, who.size()), who);
      EXPECT_EQ(error.kind(), StoreError::Kind::verdict);
    }
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

// A rank's own children must keep neither its connection nor the server's port open.
TEST(Children, InheritNothing) {
  const auto open_files = [] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      names.insert(entry.path().filename().string());
    }
    return names;
  };
  const std::set<std::string> before = open_files();
  const StoreServer server;
  const TcpStore store(client_of(server, {}, 0));
  int more = 0;
  for (const std::string& name : open_files()) {
    const int flags = before.contains(name) ? -1 : ::fcntl(std::stoi(name), F_GETFD);
    if (flags >= 0) {
      ++more;
      EXPECT_NE(flags & FD_CLOEXEC, 0) << "descriptor " << name;
    }
  }
  EXPECT_GE(more, 3);  // the port, and both ends of a connection
}

// A forked child cannot use its parent's store, but the child can end.
TEST(ForkedChild, EndsWithTheStoresOfItsParent) {
  auto server = std::make_unique<StoreServer>();
  auto store = std::make_unique<TcpStore>(client_of(*server, {}, 0));
  Child child([&] {
    store.reset();
    server.reset();
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(store->add("n", 1), 1);
  EXPECT_EQ(server->verdict(), "");
}

}  // namespace
}  // namespace tandem::test
