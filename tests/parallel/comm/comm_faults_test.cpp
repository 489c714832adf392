#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/ranks.h"
#include "support/count_down.h"

namespace tandem::parallel {
namespace {

using test::as_ranks;
using test::comm_errors;
using test::message_of;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Much longer than an error takes to arrive, much shorter than a deadline.
constexpr auto kSoon = 20s;

// Only one rank has a short deadline. The late rank is the lowest missing one, whenever the third rank comes.
TEST(CommDeadline, NamesTheRankThatDidNotComeOnEveryRank) {
  std::latch missed(2);
  const auto errors = comm_errors(3, [&](ProcessGroup& group) {
    const test::CountDown at_the_end(missed, group.rank() == 1 ? 0 : 1);
    group.barrier();
    if (group.rank() == 0) {
      group.set_timeout(200ms);
    }
    if (group.rank() == 1) {
      missed.wait();
    }
    group.all_reduce(ones({8}));
  });
  for (const int r : {0, 2}) {
    const CommError& error = errors[static_cast<std::size_t>(r)];
    EXPECT_STREQ(
        error.what(),
        "all_reduce f32 [8] sum (#1): rank 1 has not come within 0.2 s; its last call in this group was barrier "
        "(#0). If it is only slow, give the group a longer timeout (ProcessGroupOptions::timeout) [TDM-E617]");
    EXPECT_EQ(error.details().fault, CommFault::timeout);
    EXPECT_EQ(error.details().rank, 1);
    EXPECT_GE(error.details().elapsed, 0.2);
    EXPECT_LT(error.details().elapsed, 20);  // not the other ranks' 30
  }
  EXPECT_EQ(errors[1].details().fault, CommFault::timeout);  // the late rank learns why no other rank is present
}

TEST(CommDeadline, HoldsForARecvToo) {
  std::latch missed(1);
  const auto errors = comm_errors(
      2,
      [&](ProcessGroup& group) {
        if (group.rank() == 1) {
          missed.wait();
        } else {
          const test::CountDown at_the_end(missed);
          group.recv(ones({2}), 1, 7);
        }
      },
      100ms);
  EXPECT_STREQ(errors[0].what(),
               "recv f32 [2] from 1, tag 7: rank 1 has not come within 0.1 s; it has made no collective call in this "
               "group yet. If "
               "it is only slow, give the group a longer timeout (ProcessGroupOptions::timeout) [TDM-E617]");
}

TEST(CommDeadline, IsMoreThanNothing) {
  EXPECT_EQ(message_of<ConfigError>([] { local_groups(1, {.timeout = 0ms}); }),
            "process group: a timeout of 0 ms; it must be more than 0, since no wait is without an end");
  const auto groups = local_groups(1);
  EXPECT_EQ(groups[0]->timeout(), 10min);
  groups[0]->set_timeout(5s);
  EXPECT_EQ(groups[0]->timeout(), 5s);
  const auto before = Clock::now();
  const Work work = groups[0]->barrier();
  EXPECT_GE(work.deadline(), before + 5s);
  EXPECT_LE(work.deadline(), Clock::now() + 5s);
  EXPECT_THROW(groups[0]->set_timeout(-1ms), ConfigError);
}

TEST(CommAbort, WakesEveryRankFromAnotherThread) {
  std::atomic<int> waiting{0};
  const auto start = Clock::now();
  const auto errors = comm_errors(3, [&](ProcessGroup& group) {
    ++waiting;
    if (group.rank() == 2) {
      std::thread([&] {
        while (waiting < 3) {
          std::this_thread::yield();
        }
        std::this_thread::sleep_for(20ms);
        group.abort("the user pressed stop");
      }).join();
    }
    group.barrier();
  });
  EXPECT_LT(Clock::now() - start, kSoon);
  EXPECT_STREQ(errors[0].what(), "process group: aborted by rank 2: the user pressed stop");
  EXPECT_EQ(errors[0].details().fault, CommFault::aborted);
  EXPECT_EQ(errors[0].details().rank, 2);
  EXPECT_STREQ(errors[1].what(), errors[0].what());
  EXPECT_STREQ(errors[2].what(),
               "barrier (#0): the process group can no longer be used, since this happened: process group: aborted by "
               "rank 2: the user pressed stop");
}

TEST(CommDeath, IsForEver) {
  as_ranks(2, [](ProcessGroup& group) {
    EXPECT_THROW(group.all_reduce(ones({2 + group.rank()})), CommError);
    const auto start = Clock::now();
    const std::string text = message_of<CommError>([&] { group.barrier(true).wait(); });
    EXPECT_THAT(text, HasSubstr("barrier (#1): the process group can no longer be used, since this happened: process "
                                "group: its ranks made different calls"));
    EXPECT_EQ(message_of<CommError>([&] { group.barrier(); }), text);
    EXPECT_THROW(group.new_group({0}), CommError);
    EXPECT_LT(Clock::now() - start, kSoon);
  });
}

TEST(CommDeath, OfARankThatHasEndedIsNoticedAtOnce) {
  for (const int ranks : {2, 3, 4}) {
    const auto start = Clock::now();
    const auto errors = comm_errors(ranks, [&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() != 1) {
        group.all_reduce(ones({3}));
      }
    });
    EXPECT_LT(Clock::now() - start, kSoon);
    for (int r = 0; r < ranks; ++r) {
      if (r != 1) {
        const CommError& error = errors[static_cast<std::size_t>(r)];
        EXPECT_STREQ(error.what(), "all_reduce f32 [3] sum (#1): rank 1 is lost: its function ended [TDM-E618]");
        EXPECT_EQ(error.details().fault, CommFault::peer_lost);
        EXPECT_EQ(error.details().rank, 1);
      }
    }
  }
}

TEST(CommDeath, OfARankThatThrewSaysWhat) {
  std::mutex mutex;
  std::vector<std::string> texts;
  const std::string thrown = message_of<ValueError>([&] {
    as_ranks(3, [&](ProcessGroup& group) {
      if (group.rank() == 2) {
        throw ValueError("the loss is not finite");
      }
      try {
        group.rank() == 0 ? group.recv(ones({1}), 2) : static_cast<void>(group.barrier());
      } catch (const CommError& error) {
        const std::lock_guard lock(mutex);
        texts.emplace_back(error.what());
        throw;
      }
    });
  });
  EXPECT_EQ(thrown, "the loss is not finite\n  in rank 2 of 3");
  ASSERT_EQ(texts.size(), 2U);
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("rank 2 is lost: its function threw: the loss is not finite"));
  }
}

TEST(CommDeath, OfARankIsThatOfItsSubgroupsToo) {
  const auto errors = comm_errors(3, [](ProcessGroup& group) {
    const auto pair = group.new_group({1, 2});
    if (group.rank() == 1) {
      pair->barrier();
    }
    if (group.rank() == 2) {
      throw CommError("its own", {});
    }
  });
  EXPECT_THAT(errors[1].what(), HasSubstr("rank 2 is lost: "));
  EXPECT_EQ(errors[1].details().rank, 2);
}

TEST(CommDeath, OfADestroyedGroupIsNoticed) {
  auto groups = local_groups(2, {.timeout = 30s});
  std::thread other([&] { groups[1].reset(); });
  EXPECT_EQ(message_of<CommError>([&] { groups[0]->barrier(); }),
            "barrier (#0): rank 1 is lost: it destroyed its process group");
  other.join();
}

TEST(CommDeath, OfAPeerEndsWhatWasLeftToTheGroupsThread) {
  std::latch left(1);
  const auto errors = comm_errors(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      left.wait();
    } else {
      Work work = group.barrier(true);
      Work later = group.all_reduce(ones({2}), ReduceOp::sum, true);
      left.count_down();
      EXPECT_THROW(later.wait(), CommError);
      EXPECT_TRUE(work.done());
      work.wait();
    }
  });
  EXPECT_STREQ(errors[0].what(), "barrier (#0): rank 1 is lost: its function ended [TDM-E618]");
}

TEST(CommErrorOfADroppedWork, IsThrownByTheNextCall) {
  const auto errors = comm_errors(2, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      group.barrier(true);
      for (;;) {
        group.send(ones({1}), 1);
        std::this_thread::sleep_for(1ms);
      }
    }
  });
  EXPECT_THAT(errors[0].what(), HasSubstr("rank 1 is lost: its function ended [TDM-E618]"));
}

TEST(CommErrorOfADroppedWork, IsWarnedOfWithoutANextCall) {
  std::mutex mutex;
  std::vector<std::string> warnings;
  set_warning_handler([&](const std::string& text) {
    const std::lock_guard lock(mutex);
    warnings.push_back(text);
  });
  {
    auto groups = local_groups(2);
    groups[0]->barrier(true);
    groups[1].reset();
  }
  set_warning_handler({});
  EXPECT_EQ(warnings, std::vector<std::string>{
                          "a process group of rank 0 was destroyed, and nobody had waited for the call that failed: "
                          "barrier (#0): rank 1 is lost: it destroyed its process group [TDM-E618]"});
}

TEST(CommErrorOfADroppedWork, IsThrownBySpawn) {
  const auto body = [](ProcessGroup& group) {
    if (group.rank() == 0) {
      group.barrier(true);
    }
  };
  EXPECT_EQ(message_of<CommError>([&] { as_ranks(2, body); }),
            "barrier (#0): rank 1 is lost: its function ended\n  in rank 0 of 2");
}

TEST(CommMistake, InOwnArgumentsLeavesTheGroupAsItIs) {
  as_ranks(2, [](ProcessGroup& group) {
    const Tensor floats = ones({4});
    const Tensor whole = ones({4}, {.dtype = DType::i64});
    EXPECT_EQ(message_of<DTypeError>([&] { group.all_reduce(whole, ReduceOp::avg); }),
              "all_reduce: an average of i64 need not be one; use ReduceOp::sum, or convert with .to(DType::f32)");
    EXPECT_EQ(message_of<ConfigError>([&] { group.broadcast(floats, 2); }),
              "broadcast: src is 2, but the group's ranks are 0 to 1");
    EXPECT_EQ(message_of<ConfigError>([&] { group.send(floats, group.rank()); }),
              "send: dst is " + std::to_string(group.rank()) + ", this rank itself");
    EXPECT_EQ(message_of<ConfigError>([&] { group.all_gather({floats}, floats); }),
              "all_gather: tensor_list has 1 tensors; expected 2, one for each rank");
    EXPECT_EQ(message_of<ShapeError>([&] { group.all_gather_into_tensor(ones({3, 4}), floats); }),
              "all_gather_into_tensor: the output is [3, 4]; expected [2, 4] or [8]: a part [4] for each of 2 ranks");
    EXPECT_EQ(message_of<DTypeError>([&] { group.reduce_scatter(floats, {whole, whole}); }),
              "reduce_scatter: the input_list is i64, and the other tensors are f32");
    EXPECT_EQ(message_of<ShapeError>([&] { group.all_to_all_single(ones({3}), ones({3})); }),
              "all_to_all_single: the first dimension of [3] does not go into 2 equal parts, one for each rank");
    EXPECT_EQ(
        message_of<ConfigError>([&] { group.all_to_all_single(floats, floats); }),
        "all_to_all_single: input and output share memory; only this rank's own part of the larger one may be the "
        "other");
    EXPECT_EQ(message_of<ConfigError>([&] { group.all_reduce({}); }), "all_reduce: the tensor is undefined");
    EXPECT_THROW(group.all_reduce(ones({1}).expand({4})), ShapeError);
    EXPECT_EQ(message_of<ConfigError>([&] { group.new_group({0, 5}); }),
              "new_group: expected some of the ranks 0 to 1");
    EXPECT_EQ(message_of<ConfigError>([&] { group.new_group({1, 1}); }), "new_group: a rank is named twice");
    group.all_reduce(floats);
    EXPECT_EQ(floats.to_vector<float>(), std::vector<float>(4, 2));
  });
}

TEST(NcclBackend, SaysWhatWouldWorkInABuildWithout) {
  if (cuda::is_available()) {
    GTEST_SKIP() << "there is a GPU";
  }
  EXPECT_FALSE(why_nccl_is_unavailable().empty());
  const auto message = [] {
    const auto shared = std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(1), std::vector<int>{0});
    try {
      nccl_backend(std::make_unique<LocalBackend>(shared, 0), "cuda:0");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  }();
  EXPECT_NE(message.find("no CUDA"), std::string::npos) << message;
}

// For the sanitizers: no rank may read memory of a rank whose call has failed and that has freed the memory.
TEST(CommAbort, AtAnyMomentLeavesNoMemoryInUse) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const auto moment = std::chrono::microseconds(random() % 3000);
    as_ranks(3, [&](ProcessGroup& group) {
      std::thread aborts;
      if (group.rank() == 1) {
        aborts = std::thread([&] {
          std::this_thread::sleep_for(moment);
          group.abort("at any moment");
        });
      }
      try {
        for (;;) {
          std::vector<float> memory(200000, 1.0F);
          const Tensor tensor = from_blob(memory.data(), {200000});
          group.all_reduce(tensor, ReduceOp::avg);
          ASSERT_EQ(tensor[199999].item(), 1);
          group.broadcast(tensor, 2);
        }
      } catch (const CommError& error) {
        EXPECT_EQ(error.details().fault, CommFault::aborted) << error.what();
      }
      if (aborts.joinable()) {
        aborts.join();
      }
    });
  }
}

TEST(CommFaults, ARankWhoseGroupIsGoneIsLostWhateverOutlivesIt) {
  for (const CommError& error : comm_errors(2, [](ProcessGroup& group) {
         std::unique_ptr<ProcessGroup> both = group.new_group({0, 1});
         const Work kept = both->barrier(true);
         Work(kept).wait();
         if (group.rank() == 1) {
           both.reset();
           group.barrier();
           throw CommError("as the other", {.fault = CommFault::peer_lost});
         }
         const std::unique_ptr<ProcessGroup> last = std::move(both);
         try {
           last->barrier();
         } catch (const CommError&) {
           group.barrier();
           throw;
         }
       })) {
    EXPECT_EQ(error.details().fault, CommFault::peer_lost) << error.what();
  }
}

// A broadcast leaves off when the group fails. A rank that then ends the call without an error must have all data.
TEST(CommFaults, ACallThatFailedHalfwaySucceedsOnNoRankWithHalfTheData) {
  constexpr std::int64_t kNumel = 1'000'000;
  std::vector<Tensor> tensors(3);
  for (int round = 0; round < 30; ++round) {
    auto groups = local_groups(3, {.timeout = 30s});
    std::vector<std::thread> ranks;
    for (std::size_t r = 0; r < 3; ++r) {
      tensors[r] = r == 0 ? ones({kNumel}) : zeros({kNumel});
      ranks.emplace_back([&, r] {
        try {
          groups[r]->broadcast(tensors[r], 0);
          EXPECT_EQ(tensors[r].sum().item<double>(), kNumel) << "rank " << r << ", round " << round;
        } catch (const CommError&) {
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
    groups[0]->abort("in the middle");
    for (std::thread& rank : ranks) {
      rank.join();
    }
  }
}

// A rank may fail right after a call, while another one still looks whether all have come to it, or whether a message
// has. (The moment is so short for messages that an error there is seldom caught.)
TEST(CommFaults, ACallToWhichAllRanksCameSucceedsOnAllOfThem) {
  constexpr int kRounds = 2000;
  std::atomic<int> made{0};
  const auto fails_after = [&](ProcessGroup& world, const std::vector<int>& members, const auto& call) {
    try {
      const std::unique_ptr<ProcessGroup> group = world.new_group(members);
      if (group) {
        call(*group);
        ++made;
        throw ValueError("gone");
      }
    } catch (const ValueError&) {
    }
  };
  spawn(3, [&](ProcessGroup& world) {
    const Tensor x = ones({3});
    for (int round = 0; round < kRounds; ++round) {
      fails_after(world, {0, 1, 2}, [&](ProcessGroup& group) { group.all_reduce(x); });
      fails_after(world, {0, 1},
                  [&](ProcessGroup& pair) { pair.rank() == 0 ? pair.send(x, 1) : static_cast<void>(pair.recv(x, 0)); });
    }
  });
  EXPECT_EQ(made, kRounds * 5);
}

}  // namespace
}  // namespace tandem::parallel
