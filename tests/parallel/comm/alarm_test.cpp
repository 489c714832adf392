#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include <tandem/parallel/comm/alarm.h>
#include <tandem/parallel/comm/faults.h>

using namespace tandem;
using namespace std::chrono_literals;
using parallel::Alarm;
using parallel::verdict_error;
using parallel::verdict_text;

namespace {

CommError lost(int rank) { return CommError("rank is lost", {.fault = CommFault::peer_lost, .rank = rank}); }

TEST(Alarm, RingsOnceForTheFirstCause) {
  Alarm alarm;
  int calls = 0;
  const auto listening = alarm.listen([&](const CommError& cause) { calls += cause.details().rank; });
  EXPECT_FALSE(alarm.cause());
  alarm.ring(lost(3));
  alarm.ring(lost(5));
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(alarm.cause()->details().rank, 3);
}

TEST(Alarm, TellsWhoListensLate) {
  Alarm alarm;
  alarm.ring(lost(2));
  int rank = -1;
  const auto listening = alarm.listen([&](const CommError& cause) { rank = cause.details().rank; });
  EXPECT_EQ(rank, 2);
}

TEST(Alarm, TellsNobodyWhoHasStoppedListening) {
  Alarm alarm;
  int calls = 0;
  {
    const auto listening = alarm.listen([&](const CommError&) { ++calls; });
  }
  alarm.ring(lost(1));
  EXPECT_EQ(calls, 0);
}

TEST(Alarm, WakesWhoWaitsForTheCause) {
  Alarm alarm;
  EXPECT_FALSE(alarm.wait_for(1ms));
  std::thread other([&] { alarm.ring(lost(4)); });
  EXPECT_EQ(alarm.wait_for(10s)->details().rank, 4);
  other.join();
}

TEST(Alarm, StopsListeningOnlyWhenTheListenerIsDone) {
  for (int round = 0; round < 200; ++round) {
    Alarm alarm;
    bool alive = true;
    std::optional<Alarm::Subscription> listening(alarm.listen([&](const CommError&) { EXPECT_TRUE(alive); }));
    std::thread other([&] { alarm.ring(lost(1)); });
    listening.reset();
    alive = false;
    other.join();
  }
}

// A second thread that rings for the same failure must not wait for the first one's listeners: they may wait for it.
TEST(Alarm, DoesNotHoldUpASecondCall) {
  Alarm alarm;
  const auto listening = alarm.listen([&](const CommError&) {
    std::thread second([&] { alarm.ring(lost(2)); });
    second.join();
  });
  alarm.ring(lost(1));
  EXPECT_EQ(alarm.cause()->details().rank, 1);
}

TEST(Verdict, OfALauncherNamesTheRank) {
  const CommError error = verdict_error("rank 12 (pid 4711 on node7) was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(error.details().fault, CommFault::peer_lost);
  EXPECT_EQ(error.details().rank, 12);
  EXPECT_STREQ(error.what(), "rank 12 (pid 4711 on node7) was killed by signal 9 (SIGKILL)");
}

TEST(Verdict, CarriesAnErrorToTheOtherRanks) {
  for (const CommFault fault :
       {CommFault::peer_lost, CommFault::timeout, CommFault::mismatch, CommFault::aborted, CommFault::init}) {
    for (const int rank : {-1, 0, 7}) {
      const CommError error = verdict_error(verdict_text(CommError("all: of it", {.fault = fault, .rank = rank})));
      EXPECT_EQ(error.details().fault, fault);
      EXPECT_EQ(error.details().rank, rank);
      EXPECT_STREQ(error.what(), "all: of it");
    }
  }
}

TEST(Verdict, OfAnotherFormBlamesNobody) {
  for (const char* text : {"", "rank", "rank ", "rank x", "rank -1 died", "rank 5", "rank 99999999999999999999 died",
                           "timeout", "timeout by rank : x", "timeout by rank 3", "the user pressed stop"}) {
    const CommError error = verdict_error(text);
    EXPECT_EQ(error.details().fault, CommFault::aborted) << text;
    EXPECT_EQ(error.details().rank, -1) << text;
    EXPECT_STREQ(error.what(), text);
  }
}

}  // namespace
