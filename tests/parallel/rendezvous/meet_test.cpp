#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/rendezvous/meet.h>
#include <tandem/parallel/rendezvous/memory_store.h>

namespace tandem::parallel {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;
using Kind = Meeting::Kind;

Meeting meeting_of(int rank, int size, Kind kind, std::chrono::milliseconds time = 20s) {
  return {.prefix = "here we",
          .rank = rank,
          .size = size,
          .value = fmt::format("value of {}", rank),
          .kind = kind,
          .deadline = Clock::now() + time};
}

void at_once(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(body, rank);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Meet, EveryoneLearnsAllValues) {
  for (const Kind kind : {Kind::again, Kind::once, Kind::passing}) {
    MemoryStore store;
    at_once(3, [&](int rank) {
      EXPECT_THAT(meet(store, meeting_of(rank, 3, kind)).values, ElementsAre("value of 0", "value of 1", "value of 2"));
    });
  }
}

TEST(Meet, ValuesAreAnyBytes) {
  MemoryStore store;
  const std::string bytes("a b 7 \0\n 0123456789abcdef 3 xyz", 31);
  at_once(2, [&](int rank) {
    Meeting meeting = meeting_of(rank, 2, Kind::passing);
    meeting.value = rank == 0 ? "" : bytes;
    EXPECT_THAT(meet(store, meeting).values, ElementsAre("", bytes));
  });
}

TEST(Meet, NamesWhoIsMissing) {
  for (const int rank : {0, 1}) {
    MemoryStore store;
    const Met met = meet(store, meeting_of(rank, 3, Kind::again, 50ms));
    EXPECT_THAT(met.values, IsEmpty());
    EXPECT_THAT(met.missing, ElementsAre(1 - rank, 2));
  }
}

TEST(Meet, ATryThatFailedIsInNobodysWay) {
  MemoryStore store;
  for (const int rank : {1, 0, 1}) {
    EXPECT_THAT(meet(store, meeting_of(rank, 2, Kind::again, 20ms)).missing, ElementsAre(1 - rank));
  }
  for (int i = 0; i < 20; ++i) {
    at_once(2, [&](int rank) { EXPECT_EQ(meet(store, meeting_of(rank, 2, Kind::again)).values.size(), 2U); });
  }
}

TEST(Meet, WhoGivesUpAndComesBackIsAwaited) {
  MemoryStore store;
  at_once(3, [&](int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(200ms);
    }
    if (rank == 1) {
      EXPECT_THAT(meet(store, meeting_of(rank, 3, Kind::again, 60ms)).missing, ElementsAre(2));
    }
    EXPECT_EQ(meet(store, meeting_of(rank, 3, Kind::again)).values.size(), 3U);
  });
}

TEST(Meet, RefusesASecondClaimantNowAndLater) {
  MemoryStore store;
  at_once(2, [&](int rank) {
    if (rank == 0) {
      while (!store.try_get("here we/here/1")) {
        std::this_thread::sleep_for(1ms);
      }
      EXPECT_TRUE(meet(store, meeting_of(1, 2, Kind::once)).is_taken);
    }
    EXPECT_EQ(meet(store, meeting_of(rank, 2, Kind::once)).values.size(), 2U);
  });
  EXPECT_TRUE(meet(store, meeting_of(1, 2, Kind::once)).is_taken);
  EXPECT_EQ(store.try_get("here we/claim/0"), "1");
}

TEST(Meet, ValuesAreComparedAsSoonAsTheyAreThere) {
  MemoryStore store;
  at_once(2, [&](int rank) {
    Meeting meeting = meeting_of(rank, 3, Kind::passing);  // rank 2 never comes
    meeting.check = [](int other, const std::string& value) {
      throw std::runtime_error(fmt::format("{} has {}", other, value));
    };
    try {
      meet(store, meeting);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()), fmt::format("{0} has value of {0}", 1 - rank));
    }
  });
}

TEST(Meet, CanBeStopped) {
  MemoryStore store;
  Meeting meeting = meeting_of(1, 2, Kind::passing);
  int asked = 0;
  meeting.goes_on = [&] { return ++asked < 3; };
  const auto begin = Clock::now();
  const Met met = meet(store, meeting);
  EXPECT_THAT(met.values, IsEmpty());
  EXPECT_THAT(met.missing, IsEmpty());
  EXPECT_LT(Clock::now() - begin, 10s);
}

}  // namespace
}  // namespace tandem::parallel
