#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <tandem/graph/trace.h>

namespace tandem::graph {
namespace {

Event make(std::size_t bytes) { return {.kind = Event::Kind::allocate, .number = bytes}; }
Event let_go(std::size_t index) { return {.kind = Event::Kind::free, .number = index}; }

TEST(Plan, TensorsThatAreNeverInUseTogetherShareMemory) {
  const Plan plan = make_plan({.events = {make(100), let_go(0), make(100), let_go(1), make(70)}});
  EXPECT_EQ(plan.bytes, 128u);
  EXPECT_EQ(plan.requested, 384u);
  EXPECT_EQ(plan.offsets, (std::vector<std::size_t>{0, 0, 0}));
}

TEST(Plan, WhatIsNeverLetGoKeepsItsPlace) {
  const Plan plan = make_plan({.events = {make(64), make(64), let_go(1), make(64)}});
  EXPECT_EQ(plan.bytes, 128u);
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
  EXPECT_EQ(plan.offsets[2], plan.offsets[1]);
}

TEST(Plan, NothingNeedsNoMemory) { EXPECT_EQ(make_plan({}).bytes, 0u); }

Event lane(std::size_t number) { return {.kind = Event::Kind::lane, .number = number}; }
Event use(std::size_t index) { return {.kind = Event::Kind::use, .number = index}; }
Event join() { return {.kind = Event::Kind::join}; }

TEST(Plan, LanesShareNoMemory) {
  const Plan plan = make_plan({.events = {lane(0), make(64), let_go(0), lane(1), make(64), let_go(1), join()}});
  EXPECT_EQ(plan.bytes, 128u);
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
}

TEST(Plan, ALaneUsesItsMemoryAgain) {
  const Plan plan = make_plan({.events = {lane(0), make(64), let_go(0), make(64), let_go(1), join()}});
  EXPECT_EQ(plan.bytes, 64u);
}

TEST(Plan, MemoryOfALaneIsFreeAfterTheJoin) {
  const Plan plan = make_plan({.events = {lane(0), make(64), let_go(0), lane(1), join(), lane(0), lane(1), make(64)}});
  EXPECT_EQ(plan.bytes, 64u);
}

TEST(Plan, MemoryFromBeforeTheLanesIsFreeForTheLaneThatLetItGo) {
  const Plan plan = make_plan({.events = {make(64), lane(0), use(0), let_go(0), make(64), lane(1), make(64), join()}});
  EXPECT_EQ(plan.offsets[1], plan.offsets[0]);
  EXPECT_NE(plan.offsets[2], plan.offsets[0]);
}

TEST(Plan, MemoryThatSeveralLanesUseIsFreeAfterTheJoin) {
  const Plan plan =
      make_plan({.events = {make(64), lane(0), use(0), lane(1), use(0), let_go(0), make(64), join(), make(64)}});
  EXPECT_NE(plan.offsets[1], plan.offsets[0]);
  EXPECT_EQ(plan.offsets[2], plan.offsets[0]);
}

TEST(Plan, MemoryThatAnotherLaneLetGoIsFreeAfterTheJoin) {
  const Plan plan = make_plan({.events = {make(64), lane(0), use(0), lane(1), let_go(0), make(64), join(), make(64)}});
  EXPECT_NE(plan.offsets[1], plan.offsets[0]);
  EXPECT_EQ(plan.offsets[2], plan.offsets[0]);
}

TEST(Plan, UsesInEarlierLanesAreOver) {
  const Plan plan = make_plan(
      {.events = {make(64), lane(0), use(0), lane(1), use(0), join(), lane(0), use(0), let_go(0), make(64), join()}});
  EXPECT_EQ(plan.offsets[1], plan.offsets[0]);
}

TEST(Plan, NoTwoThatLiveTogetherOverlap) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    struct Block {
      std::size_t bytes, from, to = std::numeric_limits<std::size_t>::max();
    };
    std::vector<Block> blocks;
    std::vector<std::size_t> live;
    Trace trace;
    std::size_t now = 0;
    std::size_t most = 0;
    for (int i = 0; i < 60; ++i) {
      if (!live.empty() && random() % 2 == 0) {
        const std::size_t which = random() % live.size();
        blocks[live[which]].to = trace.events.size();
        now -= blocks[live[which]].bytes;
        trace.events.push_back(let_go(live[which]));
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
      } else {
        const std::size_t bytes = 64 * (random() % 9 + 1);
        live.push_back(blocks.size());
        blocks.push_back({bytes, trace.events.size()});
        trace.events.push_back(make(bytes));
        most = std::max(most, now += bytes);
      }
    }
    const Plan plan = make_plan(trace);
    ASSERT_GE(plan.bytes, most);
    for (std::size_t a = 0; a < blocks.size(); ++a) {
      ASSERT_EQ(plan.offsets[a] % Plan::kAlignment, 0u);
      ASSERT_LE(plan.offsets[a] + blocks[a].bytes, plan.bytes);
      for (std::size_t b = 0; b < a; ++b) {
        const bool together = blocks[a].from < blocks[b].to && blocks[b].from < blocks[a].to;
        const bool overlap =
            plan.offsets[a] < plan.offsets[b] + blocks[b].bytes && plan.offsets[b] < plan.offsets[a] + blocks[a].bytes;
        ASSERT_FALSE(together && overlap) << a << " and " << b << " in round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::graph
