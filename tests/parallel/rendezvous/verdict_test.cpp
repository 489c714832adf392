#include <atomic>
#include <future>
#include <thread>

#include <fmt/format.h>

#include "parallel/rendezvous/stores.h"
#include "support/message.h"

// How ranks learn that the job is over.

namespace tandem::test {
namespace {

using parallel::LostRank;
using parallel::StoreServer;
using parallel::StoreServerOptions;
using parallel::TcpStore;

TEST(Verdict, EndsEveryWaitWithItsText) {
  StoreServer server;
  constexpr int kRanks = 6;
  std::vector<std::unique_ptr<TcpStore>> stores;
  std::vector<std::future<std::string>> waits;
  for (int rank = 0; rank < kRanks; ++rank) {
    stores.push_back(std::make_unique<TcpStore>(client_of(server, {}, rank)));
    waits.push_back(std::async(std::launch::async, [&store = *stores.back()] {
      return message_of<StoreError>([&] { store.get("never", 60s); });
    }));
  }
  std::this_thread::sleep_for(50ms);
  const double took = seconds([&] {
    server.publish_verdict("rank 2 (pid 4711) was killed by signal 9");
    for (auto& wait : waits) {
      EXPECT_EQ(wait.get(), "rank 2 (pid 4711) was killed by signal 9");
    }
  });
  EXPECT_LT(took, 1.0);
  EXPECT_EQ(kind_of([&] { stores[0]->set("a", "b"); }), StoreError::Kind::verdict);
}

TEST(Verdict, IsToldToTheServersProcessWhoeverGaveIt) {
  std::promise<std::string> heard;
  StoreServer server({.on_verdict = [&](const std::string& text) { heard.set_value(text); }});
  TcpStore store(client_of(server, {}, 0));
  store.announce_verdict("rank 0 threw");
  auto text = heard.get_future();
  ASSERT_EQ(text.wait_for(1s), std::future_status::ready);
  EXPECT_EQ(text.get(), "rank 0 threw");
  server.publish_verdict("another");  // has no effect: a second callback would throw
}

TEST(Verdict, ReachesARankThatComputes) {
  StoreServer server;
  std::promise<std::string> heard;
  auto options = client_of(server, {}, 0);
  options.on_verdict = [&](const std::string& text) { heard.set_value(text); };
  options.on_lost = [](const std::string&) { ADD_FAILURE() << "the server was there all the time"; };
  TcpStore store(options);
  server.publish_verdict("over");
  auto text = heard.get_future();
  ASSERT_EQ(text.wait_for(1s), std::future_status::ready);
  EXPECT_EQ(text.get(), "over");
}

TEST(Verdict, TheFirstOneStaysAndLatecomersHearIt) {
  StoreServer server;
  server.publish_verdict("first");
  server.publish_verdict("second");
  EXPECT_EQ(server.verdict(), "first");
  std::atomic<bool> heard = false;
  auto options = client_of(server, {}, 5);
  options.on_verdict = [&](const std::string& text) { heard = text == "first"; };
  TcpStore store(options);
  EXPECT_TRUE(eventually([&] { return heard.load(); }));
  EXPECT_EQ(message_of<StoreError>([&] { store.try_get("x"); }), "first");
}

TEST(Verdict, ARankMayAnnounceIt) {
  StoreServer server;
  TcpStore first(client_of(server, {}, 0));
  TcpStore second(client_of(server, {}, 1));
  auto wait = std::async(std::launch::async, [&] { return message_of<StoreError>([&] { second.get("never", 30s); }); });
  first.announce_verdict("rank 0: the loss is NaN");
  EXPECT_EQ(wait.get(), "rank 0: the loss is NaN");
  EXPECT_EQ(server.verdict(), "rank 0: the loss is NaN");
  EXPECT_EQ(message_of<ConfigError>([&] { second.announce_verdict(""); }),
            "TcpStore: expected a verdict of 1 to 4096 bytes, got 0");
}

TEST(Verdict, ALongOneIsCut) {
  StoreServer server;
  server.publish_verdict(std::string(10'000, 'x'));
  TcpStore store(client_of(server, {}, 0));
  EXPECT_TRUE(eventually([&] {
    try {
      store.try_get("a");
      return false;
    } catch (const StoreError& error) {
      return std::string(error.what()) == std::string(4096, 'x');
    }
  }));
}

TEST(ServerLoss, EndsEveryWait) {
  auto server = std::make_unique<StoreServer>();
  const std::uint16_t port = server->port();
  std::atomic<int> told = 0;
  std::vector<std::unique_ptr<TcpStore>> stores;
  std::vector<std::future<std::string>> waits;
  for (int rank = 0; rank < 4; ++rank) {
    auto options = client_of(*server, {}, rank);
    options.on_lost = [&](const std::string&) { ++told; };
    stores.push_back(std::make_unique<TcpStore>(options));
    waits.push_back(std::async(std::launch::async, [&store = *stores.back()] {
      return message_of<StoreError>([&] { store.get("never", 60s); });
    }));
  }
  std::this_thread::sleep_for(50ms);
  const std::string text = fmt::format(
      "the rendezvous server at 127.0.0.1:{} is gone (it closed the connection): the launcher, or rank 0, "
      "ended",
      port);
  const double took = seconds([&] {
    server.reset();
    for (auto& wait : waits) {
      EXPECT_EQ(wait.get(), text);
    }
  });
  EXPECT_LT(took, 1.0);
  EXPECT_EQ(kind_of([&] { stores[0]->add("n", 1); }), StoreError::Kind::lost);
  EXPECT_TRUE(eventually([&] { return told == 4; }));
}

TEST(LostRanks, AreDescribed) {
  EXPECT_EQ(describe(LostRank{{2, 4711, "node7"}, LostRank::Sign::closed, 3ms}),
            "rank 2 (pid 4711 on node7) is gone: its connection closed without a goodbye");
  EXPECT_EQ(describe(LostRank{{2, 4711, "node7"}, LostRank::Sign::closed, 3ms, 3 << 8}),
            "rank 2 (pid 4711 on node7) ended with exit code 3 in the middle of its job");
  EXPECT_EQ(describe(LostRank{{2, 4711, "node7"}, LostRank::Sign::silent, 2040ms}),
            "rank 2 (pid 4711 on node7) has sent no heartbeat for 2.0 s: it is stopped, or its machine is cut off");
}

// A rank that waits or computes for a long time is alive: only its heartbeat counts.
TEST(Heartbeats, KeepARankAliveThatAsksForNothing) {
  StoreServer server(StoreServerOptions{.heartbeat_limit = 1s});
  auto options = client_of(server, {}, 0);
  options.heartbeat_interval = 40ms;
  options.heartbeat_limit = 5s;
  TcpStore store(options);
  std::this_thread::sleep_for(2500ms);
  EXPECT_EQ(server.verdict(), "");
  EXPECT_EQ(store.add("n", 1), 1);
}

}  // namespace
}  // namespace tandem::test
