#include <future>
#include <set>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>

#include "parallel/rendezvous/stores.h"
#include "support/message.h"
#include "support/reserved_port.h"

// A StoreServer and its clients, in normal use and when the other side is absent.

namespace tandem::test {
namespace {

using parallel::JobToken;
using parallel::RankProcess;
using parallel::StoreServer;
using parallel::TcpStore;

TEST(StoreServer, ListensAtTheGivenAddressAndAFreePort) {
  const StoreServer server;
  EXPECT_EQ(server.host(), "127.0.0.1");
  EXPECT_NE(server.port(), 0);
  const StoreServer other({.host = "localhost"});
  EXPECT_NE(other.port(), server.port());
}

void expect_its_process_named(const StoreServer& server, const std::string& at) {
  const std::string text =
      message_of<IoError>([&] { StoreServer second({.host = server.host(), .port = server.port()}); });
  const std::string start = fmt::format("rendezvous server: cannot listen at {}:{}: Address already in use: pid {} (",
                                        at, server.port(), ::getpid());
  EXPECT_THAT(text, testing::StartsWith(start));
  EXPECT_THAT(text, testing::EndsWith(") listens there; choose another port, or 0 for one that is free"));
}

TEST(StoreServer, NamesTheProgramThatListensAtItsPort) { expect_its_process_named(StoreServer(), "127.0.0.1"); }

TEST(StoreServer, SpeaksOverIPv6) {
  std::unique_ptr<StoreServer> server;
  try {
    server = std::make_unique<StoreServer>(parallel::StoreServerOptions{.host = "::1"});
  } catch (const IoError& error) {
    GTEST_SKIP() << error.what();
  }
  TcpStore store(client_of(*server));
  EXPECT_EQ(store.add("n", 1), 1);
  expect_its_process_named(*server, "[::1]");
}

TEST(StoreServer, KnowsItsRanks) {
  StoreServer server;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  {
    TcpStore two(client_of(server, {}, 2));
    TcpStore nobody(client_of(server));
    TcpStore one(client_of(server, {}, 1));
    const std::vector<RankProcess> expected{{1, ::getpid(), host.data()}, {2, ::getpid(), host.data()}};
    EXPECT_EQ(server.ranks(), expected);
  }
  EXPECT_TRUE(eventually([&] { return server.ranks().empty(); }));
  EXPECT_EQ(server.verdict(), "");  // the clients said goodbye
  EXPECT_EQ(server.refused(), 0U);
}

TEST(StoreServer, TakesEachRankOnce) {
  StoreServer server;
  TcpStore one(client_of(server, {}, 1));
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  EXPECT_EQ(message_of<StoreError>([&] { TcpStore again(client_of(server, {}, 1)); }),
            fmt::format("the rendezvous server at 127.0.0.1:{} did not let us in: rank 1 (pid {} on {}) is connected "
                        "already: each rank runs once. Was the job started twice, or is an old one still there?",
                        server.port(), ::getpid(), host.data()));
  EXPECT_EQ(one.add("n", 1), 1);
}

TEST(StoreServer, RefusesAHeartbeatThatIsTooSeldom) {
  StoreServer server({.heartbeat_limit = 1s});
  auto options = client_of(server, {}, 0);
  options.heartbeat_interval = 600ms;
  EXPECT_EQ(message_of<StoreError>([&] { TcpStore store(options); }),
            fmt::format("the rendezvous server at 127.0.0.1:{} did not let us in: a heartbeat every 600 ms is too "
                        "seldom for a limit of 1000 ms: at most half of it",
                        server.port()));
}

TEST(StoreServer, NamesAddressesThatItDoesNotTake) {
  EXPECT_EQ(message_of<ConfigError>([] { StoreServer server({.host = "0.0.0.0"}); }),
            "rendezvous server: '0.0.0.0' stands for every address of this machine; name the one by which the other "
            "hosts reach it, or 127.0.0.1");
  EXPECT_EQ(message_of<ConfigError>([] { StoreServer server({.host = "::"}); }),
            "rendezvous server: '::' stands for every address of this machine; name the one by which the other hosts "
            "reach it, or 127.0.0.1");
  EXPECT_EQ(message_of<IoError>([] { StoreServer server({.host = "192.0.2.1", .token = JobToken::generate()}); }),
            "rendezvous server: cannot listen at 192.0.2.1:0: Cannot assign requested address: it is no address of "
            "this machine");
  EXPECT_EQ(message_of<ConfigError>([] { StoreServer bad({.heartbeat_limit = 1ms}); }),
            "rendezvous server: expected a heartbeat limit of 20 ms or more and a handshake limit of 1 ms or more, got "
            "1 ms and 10000 ms");
}

TEST(StoreServer, APostThatIsRefusedEndsTheCallsThatWait) {
  const StoreServer server;
  TcpStore store(client_of(server));
  const std::string value(parallel::kMaxStoreValue, 'v');
  for (int i = 0; i < 63; ++i) {
    store.set(fmt::format("k{}", i), value);
  }
  auto wait = std::async(std::launch::async,
                         [&] { return message_of<parallel::StoreError>([&] { store.get("never", 30s); }); });
  store.post_set("more", value);
  EXPECT_THAT(wait.get(), testing::StartsWith("store set: 'more' needs 1048708 bytes more"));
  store.set("k0", "");
}

TEST(StoreServer, AHundredAtOnceHaveTheirOwnPortsAndClients) {
  std::vector<JobToken> tokens;
  std::vector<std::unique_ptr<StoreServer>> servers;
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 100; ++i) {
    tokens.push_back(JobToken::generate());
    servers.push_back(std::make_unique<StoreServer>(parallel::StoreServerOptions{.token = tokens.back()}));
    ports.insert(servers.back()->port());
  }
  EXPECT_EQ(ports.size(), 100U);
  for (std::size_t i = 0; i < 100; ++i) {
    TcpStore store(client_of(*servers[i], tokens[i], 0));
    EXPECT_EQ(store.add("joined", 1), 1);
    EXPECT_EQ(kind_of([&] { TcpStore wrong(client_of(*servers[i], tokens[(i + 1) % 100])); }), StoreError::Kind::lost);
  }
}

TEST(TcpStore, WaitsForAServerThatStartsLater) {
  const ReservedPort port;
  std::unique_ptr<StoreServer> server;
  std::thread later([&] {
    std::this_thread::sleep_for(300ms);
    server = std::make_unique<StoreServer>(parallel::StoreServerOptions{.port = port.number()});
  });
  TcpStore store({.port = port.number(), .connect_timeout = 10s});
  later.join();
  EXPECT_EQ(store.add("n", 1), 1);
}

// The client may be in accept(), in the handshake or joining when the first server ends.
TEST(TcpStore, FindsTheServerThatFollowsOneThatEnds) {
  const ReservedPort port;
  const auto make_server = [&] {
    return std::make_unique<StoreServer>(parallel::StoreServerOptions{.port = port.number()});
  };
  for (int round = 0; round < 100; ++round) {
    auto server = make_server();
    auto joined = std::async(std::launch::async, [&] {
      return std::make_unique<TcpStore>(parallel::TcpStoreOptions{.port = port.number(), .connect_timeout = 30s});
    });
    std::this_thread::sleep_for(std::chrono::microseconds(37 * round));
    server.reset();
    server = make_server();
    EXPECT_NO_THROW(joined.get()) << round;
  }
}

TEST(TcpStore, NamesTheServerThatIsNotThere) {
  const ReservedPort port;
  EXPECT_EQ(message_of<StoreError>([&] { TcpStore store({.port = port.number(), .connect_timeout = 200ms}); }),
            fmt::format("no rendezvous server at 127.0.0.1:{} within 200 ms (Connection refused). Is the launcher, or "
                        "rank 0, running, and is this its address and port?",
                        port.number()));
}

TEST(TcpStore, NamesOptionsThatItDoesNotTake) {
  EXPECT_EQ(message_of<ConfigError>([] { TcpStore store({}); }),
            "TcpStore: expected a port of 1 to 65535, got 0: the server says which it is");
  EXPECT_EQ(message_of<ConfigError>([] { TcpStore store({.port = 1, .rank = -2}); }),
            "TcpStore: expected a rank, or -1 for none, got -2");
  EXPECT_EQ(
      message_of<ConfigError>([] { TcpStore store({.port = 1, .heartbeat_interval = 10s, .heartbeat_limit = 10s}); }),
      "TcpStore: expected times of 1 ms to a day and a heartbeat limit of two intervals at least, got "
      "connect_timeout 60000 ms, heartbeat_interval 10000 ms, heartbeat_limit 10000 ms");
}

TEST(TcpStore, MuchIsUnderWayAtOnce) {
  StoreServer server;
  TcpStore setting(client_of(server, {}, 0));
  std::vector<std::thread> waiting;
  const std::string large(parallel::kMaxStoreValue, 'x');
  for (int i = 1; i <= 12; ++i) {
    waiting.emplace_back([&, i] {
      TcpStore store(client_of(server, {}, i));
      for (int part = 0; part < 4; ++part) {
        EXPECT_EQ(store.get("large" + std::to_string(part), 30s), large);
      }
    });
  }
  for (int part = 0; part < 4; ++part) {
    setting.set("large" + std::to_string(part), large);
  }
  for (std::thread& thread : waiting) {
    thread.join();
  }
}

// A small request takes tens of microseconds, not the 40 ms of a delayed acknowledgement.
TEST(TcpStore, SmallRequestsAreNotDelayed) {
  StoreServer server;
  TcpStore store(client_of(server, {}, 0));
  const double took = seconds([&] {
    for (int i = 0; i < 200; ++i) {
      store.add("n", 1);
    }
  });
  EXPECT_LT(took, 4.0);
}

}  // namespace
}  // namespace tandem::test
