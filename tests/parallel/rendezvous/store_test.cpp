#include <atomic>
#include <filesystem>
#include <thread>

#include "parallel/rendezvous/stores.h"
#include "support/message.h"

// Behaviour that all kinds of store share.

namespace tandem::test {
namespace {

TEST_P(EveryStore, GivesBackWhatWasSet) {
  const auto store = job_->join(0);
  const std::string bytes("\0\xff\n{}", 5);
  store->set("a", bytes);
  EXPECT_EQ(store->get("a"), bytes);
  EXPECT_EQ(store->try_get("a"), bytes);
  store->set("a", "");
  EXPECT_EQ(store->get("a"), "");
  EXPECT_EQ(store->try_get("b"), std::nullopt);
}

TEST_P(EveryStore, TakesTheLongestKeyAndValueAndAnyByteInThem) {
  const auto store = job_->join(0);
  std::string key(parallel::kMaxStoreKey, '/');
  key[1] = '\0';
  const std::string value(parallel::kMaxStoreValue, '\x80');
  store->set(key, value);
  EXPECT_EQ(store->get(key), value);
  EXPECT_EQ(store->try_get(key.substr(1)), std::nullopt);
}

TEST_P(EveryStore, IsSharedByItsRanks) {
  const auto first = job_->join(0);
  const auto second = job_->join(1);
  first->set("x", "1");
  EXPECT_EQ(second->get("x"), "1");
  EXPECT_TRUE(second->erase("x"));
  EXPECT_FALSE(first->erase("x"));
  EXPECT_EQ(first->try_get("x"), std::nullopt);
}

TEST_P(EveryStore, GetWaitsUntilTheKeyIsThere) {
  const auto waiting = job_->join(0);
  const auto setting = job_->join(1);
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    setting->set("x", "late");
  });
  EXPECT_EQ(waiting->get("x", 10s), "late");
  later.join();
}

TEST_P(EveryStore, EveryChangeThatMakesAKeyWakesWhoWaits) {
  const auto waiting = job_->join(0);
  const auto setting = job_->join(1);
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    setting->add("counter", 3);
    setting->set("set", std::string(100'000, 'x'));
  });
  waiting->wait(std::vector<std::string>{"set", "counter"}, 10s);
  EXPECT_EQ(waiting->get("counter"), "3");
  EXPECT_EQ(waiting->get("set").size(), 100'000U);
  later.join();
}

TEST_P(EveryStore, WaitingEndsAtItsDeadline) {
  const auto store = job_->join(0);
  store->set("there", "");
  EXPECT_EQ(kind_of([&] { store->get("absent", 60ms); }), StoreError::Kind::timeout);
  const double took = seconds([&] {
    EXPECT_EQ(message_of<StoreError>([&] { store->wait(std::vector<std::string>{"there", "absent"}, 100ms); }),
              "store wait: the key 'absent' did not appear within 100 ms: who should set it has not come that far, or "
              "is gone");
  });
  EXPECT_GE(took, 0.1);
  EXPECT_LT(took, 10.0);
  // A wait that was given up leaves no trace.
  store->set("absent", "now");
  EXPECT_EQ(store->get("absent"), "now");
}

TEST_P(EveryStore, CountersStartAtZeroAndAreDecimalText) {
  const auto store = job_->join(0);
  EXPECT_EQ(store->add("n", 5), 5);
  EXPECT_EQ(store->add("n", -7), -2);
  EXPECT_EQ(store->get("n"), "-2");
  store->set("n", "40");
  EXPECT_EQ(store->add("n", 2), 42);
  EXPECT_EQ(store->add("n", 0), 42);
}

TEST_P(EveryStore, RefusesToCountWhatIsNoCounter) {
  const auto store = job_->join(0);
  store->set("n", "12x");
  EXPECT_EQ(message_of<StoreError>([&] { store->add("n", 1); }), "store add: the value of 'n' is no counter: '12x'");
  store->set("n", "9223372036854775807");
  EXPECT_EQ(message_of<StoreError>([&] { store->add("n", 1); }), "store add: the counter 'n' would leave 64 bits");
  EXPECT_EQ(kind_of([&] { store->add("n", 1); }), StoreError::Kind::refused);
  EXPECT_EQ(store->get("n"), "9223372036854775807");
}

TEST_P(EveryStore, OneOfManyWinsAndNoAddIsLost) {
  constexpr int kRanks = 4;
  constexpr int kRounds = 25;
  std::atomic<int> winners = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, store = job_->join(rank), rank] {
      for (int round = 0; round < kRounds; ++round) {
        store->add("sum", rank + 1);
        winners += store->add("round" + std::to_string(round), 1) == 1 ? 1 : 0;
      }
      // A barrier.
      store->add("done", 1);
      while (store->get("done") != std::to_string(kRanks)) {
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  EXPECT_EQ(winners, kRounds);
  EXPECT_EQ(job_->join(kRanks)->get("sum"), std::to_string(kRounds * kRanks * (kRanks + 1) / 2));
}

TEST_P(EveryStore, OneObjectServesSeveralThreads) {
  const auto store = job_->join(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const std::string mine = std::to_string(i);
      const std::string next = std::to_string((i + 1) % 8);
      for (int round = 0; round < 10; ++round) {
        store->set(mine + "." + std::to_string(round), mine);
        EXPECT_EQ(store->get(next + "." + std::to_string(round), 20s), next);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(FileStore, LocksNoFileToWhichSomebodyHasPutALink) {
  const TempDir folder;
  const std::string precious = folder.write("precious", "kept");
  std::filesystem::create_directory(folder.file("store"));
  std::filesystem::create_symlink(precious, folder.file("store/lock"));
  EXPECT_THAT(message_of<IoError>([&] { parallel::FileStore(folder.file("store"), 0).set("key", "value", 1s); }),
              testing::HasSubstr("this is a symbolic link"));
  EXPECT_EQ(read_text(precious), "kept");
}

INSTANTIATE_TEST_SUITE_P(Stores, EveryStore, testing::ValuesIn(kJobs),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace tandem::test
