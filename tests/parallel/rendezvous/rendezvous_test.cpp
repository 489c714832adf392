#include <tandem/parallel/rendezvous/rendezvous.h>

#include <atomic>
#include <thread>

#include "parallel/rendezvous/stores.h"
#include "support/message.h"
#include "support/reserved_port.h"

// A rank's membership in its job, with each init method.

namespace tandem::test {
namespace {

using parallel::InitMethod;
using parallel::Rendezvous;
using parallel::RendezvousOptions;
using parallel::StoreServer;
using parallel::WorldInfo;

// Runs each rank on a thread: all ranks meet, count themselves, and leave at different times.
void meet(const InitMethod& method, int ranks, const RendezvousOptions& options, const WorldInfo& like) {
  std::atomic<int> lost = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      WorldInfo world = like;
      world.rank = rank;
      world.world_size = ranks;
      RendezvousOptions mine = options;
      mine.on_lost = [&](const std::string&) { ++lost; };
      mine.on_verdict = mine.on_lost;
      Rendezvous rendezvous(method, world, mine);
      EXPECT_EQ(rendezvous.server() != nullptr,
                rank == 0 && method.kind == InitMethod::Kind::tcp && !world.store_is_hosted);
      rendezvous.store()->add("here", 1);
      while (rendezvous.store()->get("here") != std::to_string(ranks)) {
        std::this_thread::sleep_for(1ms);
      }
      std::this_thread::sleep_for(30ms * rank);
      EXPECT_EQ(rendezvous.store()->get("here", 5s), std::to_string(ranks));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(lost, 0);
}

TEST(Rendezvous, RankZeroHasTheServerAndLeavesLast) {
  const ReservedPort port;
  const InitMethod method{InitMethod::Kind::tcp, "127.0.0.1", port.number(), ""};
  meet(method, 4, {.token = parallel::JobToken::generate(), .connect_timeout = 10s},
       {.address = method.host, .port = method.port});
}

TEST(Rendezvous, UsesTheLaunchersServer) {
  StoreServer launcher;
  const InitMethod method{InitMethod::Kind::tcp, launcher.host(), launcher.port(), ""};
  meet(method, 3, {.connect_timeout = 10s}, {.address = method.host, .port = method.port, .store_is_hosted = true});
  EXPECT_TRUE(launcher.wait_until_left(5s));
  EXPECT_EQ(launcher.verdict(), "");
}

TEST(Rendezvous, MeetsInAFolder) {
  const TempDir folder;
  meet({InitMethod::Kind::file, "", 0, folder.file("job")}, 3, {}, {});
}

TEST(Rendezvous, OneProcessNeedsNobody) {
  Rendezvous rendezvous({}, WorldInfo{});
  rendezvous.store()->set("a", "b");
  EXPECT_EQ(rendezvous.store()->get("a"), "b");
  EXPECT_EQ(rendezvous.server(), nullptr);
}

TEST(Rendezvous, RankZeroDoesNotWaitForEverForARankThatStays) {
  StoreServer server;
  const parallel::TcpStore stays(client_of(server, {}, 1));
  EXPECT_FALSE(server.wait_until_left(50ms));
  server.publish_verdict("over");
  EXPECT_LT(seconds([&] { EXPECT_FALSE(server.wait_until_left(30s)); }), 5.0);
}

}  // namespace
}  // namespace tandem::test
