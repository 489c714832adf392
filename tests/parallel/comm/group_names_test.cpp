#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/comm/group_names.h>
#include <tandem/tandem.h>

#include "parallel/ranks.h"
#include "support/message.h"
#include "support/warnings.h"

// Errors and lines have names for ranks and calls, which these tests check.

namespace tandem::parallel {
namespace {

using namespace std::chrono_literals;
using test::as_ranks;
using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = CollectiveKind;

TEST(GroupNames, AreThoseOfTheJob) {
  const GroupNames names({3, 5, 8});
  EXPECT_EQ(names.rank(1), 5);
  EXPECT_EQ(names.rank(-1), -1);
  EXPECT_THAT(names.ranks(std::array{0, 2}), ElementsAre(3, 8));
  EXPECT_EQ(names.members(), "ranks 3, 5, 8");
  EXPECT_EQ(GroupNames().members(), "");
  EXPECT_EQ(GroupNames().rank(2), 2);
  EXPECT_EQ(names.call({.kind = Kind::broadcast, .root = 1, .shape = {2}}), "broadcast f32 [2] from 5");
  EXPECT_EQ(names.call({.kind = Kind::send, .root = 2, .tag = 7, .shape = {2}}), "send f32 [2] to 8, tag 7");
  EXPECT_EQ(names.call({.kind = Kind::new_group, .root = 2, .shape = {0, 2}}), "new_group of 2 ranks: 3, 8");
  const Collective barrier;
  const Collective gather{.kind = Kind::gather, .root = 0, .shape = {}};
  EXPECT_EQ(names.calls(std::array{barrier, gather, barrier}), "ranks 3, 8: barrier; rank 5: gather f32 [] to 3");
}

TEST(GroupNames, OfManyRanksFitOnALine) {
  std::vector<int> ranks(100);
  for (int i = 0; i < 100; ++i) {
    ranks[static_cast<std::size_t>(i)] = 2 * i;
  }
  EXPECT_EQ(GroupNames(ranks).members(), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 and 84 more");
}

TEST(GroupNames, TellThePurposeOfAPlanAndItsAdviceOnce) {
  GroupNames names;
  names.note_plan(4, {.purpose = "the first bucket", .advice = "Use a Join"});
  names.note_plan(5, {.purpose = "the second bucket", .advice = "Use a Join"});
  const auto plan = [](int number) {
    return Collective{.kind = Kind::all_reduce, .planned = true, .tag = number, .sequence = 9, .shape = {3}};
  };
  EXPECT_EQ(names.call(plan(4)), "all_reduce f32 [3] sum (#9), the first bucket");
  EXPECT_EQ(names.call(plan(6)), "planned all_reduce f32 [3] sum of plan #6 (#9)");
  EXPECT_EQ(names.advice(std::array{plan(4), plan(5), plan(6), Collective()}), "Use a Join");
  EXPECT_EQ(names.advice(std::array{Collective()}), "");
}

// Ranks 1 and 3 are ranks 0 and 1 of the group.
template <class Body>
std::vector<std::string> texts_of_upper(const Body& body, std::chrono::milliseconds timeout = 30s) {
  std::vector<std::string> texts(4);
  as_ranks(
      4,
      [&](ProcessGroup& group) {
        const auto upper = group.new_group({1, 3});
        if (upper != nullptr) {
          texts[static_cast<std::size_t>(group.rank())] = message_of<CommError>([&] {
            body(*upper);
            upper->barrier();
          });
        }
      },
      timeout);
  return texts;
}

TEST(ErrorsOfASubGroup, NameTheRanksOfTheJob) {
  const auto mismatch = texts_of_upper(
      [](ProcessGroup& upper) { upper.rank() == 0 ? upper.broadcast(ones({2}), 1) : upper.reduce(ones({2}), 0); });
  for (const int r : {1, 3}) {
    EXPECT_THAT(mismatch[static_cast<std::size_t>(r)],
                HasSubstr("process group of ranks 1, 3: its ranks made different calls, and none was carried out: "
                          "rank 1: broadcast f32 [2] from 3 (#0); rank 3: reduce f32 [2] sum to 1 (#0)"));
  }
  const auto aborted = texts_of_upper([](ProcessGroup& upper) {
    if (upper.rank() == 1) {
      upper.abort("enough");
    }
  });
  EXPECT_THAT(aborted[1], HasSubstr("aborted by rank 3: enough"));
  EXPECT_THAT(aborted[3],
              HasSubstr("barrier (#0) in the group of ranks 1, 3: the process group can no longer be used"));
}

TEST(ErrorsOfASubGroup, NameTheRankThatIsLost) {
  std::vector<CommError> errors(4, CommError("nothing was thrown", {}));
  as_ranks(4, [&](ProcessGroup& group) {
    auto upper = group.new_group({1, 3});
    if (group.rank() == 3) {
      upper.reset();
    } else if (group.rank() == 1) {
      try {
        upper->barrier();
      } catch (const CommError& error) {
        errors[1] = error;
      }
    }
    group.barrier();  // nobody leaves before
  });
  EXPECT_THAT(errors[1].what(),
              HasSubstr("in the group of ranks 1, 3: rank 3 is lost: it destroyed its process group"));
  EXPECT_EQ(errors[1].details().rank, 3);
}

// After 5 s, and not before: a line about each of the calls, while the late rank computes for 5.6 s.
TEST(ALongWait, GetsALineThatSaysWhoWaitsForWhom) {
  test::Warnings warnings;
  as_ranks(2, [&](ProcessGroup& group) {
    const auto pair = group.new_group({0, 1});
    const Tensor x = ones({2});
    group.all_reduce(x);
    if (group.rank() == 1) {
      std::this_thread::sleep_for(7s);
      group.send(x, 0, 3);
      pair->barrier();
    } else {
      std::thread other([&] { pair->barrier(); });
      group.recv(x, 1, 3);
      other.join();
    }
  });
  const std::vector<std::string> texts = warnings.texts();
  ASSERT_EQ(texts.size(), 2U) << testing::PrintToString(texts);
  EXPECT_THAT(texts, testing::UnorderedElementsAre(AllOf(testing::ContainsRegex("rank 0 has waited [5-7]"),
                                                         HasSubstr(" s for rank 1 in recv f32 [2] from 1, tag 3: "
                                                                   "its last call in this group was "),
                                                         HasSubstr("It gives up after 30 s")),
                                                   AllOf(testing::ContainsRegex("rank 0 has waited [5-7]"),
                                                         HasSubstr(" s for rank 1 in barrier (#0)"))));
}

}  // namespace
}  // namespace tandem::parallel
