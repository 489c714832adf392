#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/ranks.h"

namespace tandem::parallel {
namespace {

using test::as_ranks;
using test::message_of;
using ::testing::HasSubstr;

TEST(ProcessGroup, SaysWhatItIs) {
  as_ranks(3, [](ProcessGroup& group) {
    EXPECT_EQ(group.size(), 3);
    EXPECT_EQ(group.backend(), test::tested_backend().substr(0, test::tested_backend().find('-')));
    EXPECT_EQ(group.rank(), get_rank());
    EXPECT_EQ(&group, &default_group());
  });
}

TEST(ProcessGroup, DoesAsyncCallsInTheirOrder) {
  as_ranks(3, [](ProcessGroup& group) {
    const Tensor tensor = full({1000}, 1.0 * group.rank());
    const Tensor doubled = zeros({1000});
    std::vector<Work> works;
    for (int i = 0; i < 14; ++i) {
      works.push_back(group.all_reduce(tensor, ReduceOp::sum, true));
      works.push_back(group.broadcast(tensor, 2, true));
      works.push_back(group.all_reduce(tensor, ReduceOp::avg, true));
    }
    group.reduce(tensor, 0, ReduceOp::max);  // runs after all of them, though it is not async
    for (const Work& work : works) {
      EXPECT_TRUE(work.done());
    }
    EXPECT_EQ(tensor[0].item(), std::pow(3.0, 14));
  });
}

TEST(ProcessGroup, ProgressesWhatNobodyWaitsFor) {
  as_ranks(2, [](ProcessGroup& group) {
    const Tensor tensor = ones({100});
    const Work work = group.all_reduce(tensor, ReduceOp::sum, true);
    while (!work.done()) {
      std::this_thread::yield();
    }
    EXPECT_EQ(tensor[99].item(), 2);
  });
}

TEST(ProcessGroup, KeepsTheTensorsOfADroppedWorkAlive) {
  as_ranks(2, [](ProcessGroup& group) {
    for (int i = 0; i < 20; ++i) {
      group.all_reduce(ones({5000}), ReduceOp::sum, true);
      group.broadcast(ones({50, 100}).t(), 0, true);
    }
    group.wait_all();
  });
}

TEST(Messages, AreSentAlthoughARecvWasCalledBefore) {
  as_ranks(2, [](ProcessGroup& group) {
    const int other = 1 - group.rank();
    for (const std::int64_t numel : {std::int64_t{2}, std::int64_t{400'000}}) {
      for (const int pause : {0, 1, 2}) {  // with and without a recv that waits already
        const Tensor in[] = {zeros({numel}), zeros({numel})};
        Work first = group.irecv(in[0], other, 1);
        Work second = group.irecv(in[1], other, 1);
        if (pause == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        Work sent = group.isend(full({numel}, 1.0 + other), other, 1);
        group.send(full({numel}, 3.0 + other), other, 1);
        pause == 2 ? sent.wait() : second.wait();
        second.wait();
        first.wait();
        sent.wait();
        EXPECT_EQ(in[0][numel - 1].item(), 1.0 + group.rank());
        EXPECT_EQ(in[1][numel - 1].item(), 3.0 + group.rank());
      }
    }
  });
}

TEST(Messages, AreSentAndReceivedByTwoThreads) {
  as_ranks(2, [](ProcessGroup& group) {
    const int other = 1 - group.rank();
    for (int i = 0; i < 300; ++i) {
      const Tensor in = zeros({10});
      std::thread receiver([&] { group.recv(in, other); });
      if (i % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
      group.send(full({10}, i + 0.5), other);
      receiver.join();
      EXPECT_EQ(in[9].item(), i + 0.5);
    }
  });
}

TEST(Messages, StayBehindTheCollectivesBeforeThem) {
  as_ranks(2, [](ProcessGroup& group) {
    const int other = 1 - group.rank();
    const Tensor sum = ones({3});
    const Tensor in = zeros({3});
    Work reduced = group.all_reduce(sum, ReduceOp::sum, true);
    Work received = group.irecv(in, other);
    Work sent = group.isend(ones({3}), other);
    sent.wait();
    EXPECT_TRUE(reduced.done());
    received.wait();
    EXPECT_EQ(sum[0].item(), 2.0);
  });
}

TEST(Subgroups, NumberTheirRanksInAscendingOrder) {
  as_ranks(4, [](ProcessGroup& group) {
    const auto upper = group.new_group({3, 1});
    const auto all = group.new_group({0, 1, 2, 3});
    ASSERT_EQ(upper != nullptr, group.rank() % 2 == 1);
    if (upper) {
      EXPECT_EQ(upper->size(), 2);
      EXPECT_EQ(upper->rank(), group.rank() / 2);
      EXPECT_EQ(upper->timeout(), group.timeout());
      const Tensor tensor = full({3}, 1.0 * group.rank());
      upper->all_reduce(tensor);
      EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(3, 4));
      const auto alone = upper->new_group({1});
      EXPECT_EQ(alone != nullptr, group.rank() == 3);
      if (alone) {
        alone->barrier();
      }
    }
    all->barrier();
  });
}

TEST(Subgroups, WorkAtTheSameTime) {
  as_ranks(4, [](ProcessGroup& group) {
    // Every pair of ranks forms a group, so each rank is in three groups at once.
    std::vector<std::unique_ptr<ProcessGroup>> pairs;
    for (int a = 0; a < 4; ++a) {
      for (int b = a + 1; b < 4; ++b) {
        pairs.push_back(group.new_group({a, b}));
      }
    }
    for (int round = 0; round < 50; ++round) {
      std::vector<Tensor> tensors;
      std::vector<Work> works;
      for (const auto& pair : pairs) {
        if (pair) {
          tensors.push_back(full({100}, 1.0 * group.rank()));
          works.push_back(pair->all_reduce(tensors.back(), ReduceOp::sum, true));
        }
      }
      ASSERT_EQ(works.size(), 3U);
      for (Work& work : works) {
        work.wait();
      }
      double sum = 0;
      for (const Tensor& tensor : tensors) {
        sum += tensor[99].item();
      }
      EXPECT_EQ(sum, 6 + 2 * group.rank());  // each other rank's value once, this rank's three times
    }
  });
}

TEST(Plans, ReduceTheSameMemoryAgainAndAgain) {
  as_ranks(2, [](ProcessGroup& group) {
    std::vector<Tensor> buckets;
    std::vector<PlannedCollective> plans;
    for (const std::int64_t numel : {1000, 3, 0, 70000}) {
      buckets.push_back(zeros({numel}));
      plans.push_back(group.plan_all_reduce(buckets.back().raw(), ReduceOp::avg));
    }
    for (int step = 0; step < 200; ++step) {
      for (std::size_t b = 0; b < plans.size(); ++b) {
        buckets[b].fill_(step + 4 * group.rank());
        plans[b].start();
      }
      for (std::size_t b = 0; b < plans.size(); ++b) {
        plans[b].wait();
        ASSERT_EQ(buckets[b].sum().item(), static_cast<double>(buckets[b].numel() * (step + 2)));
      }
    }
    buckets[0].fill_(group.rank());
    plans[0].run();
    EXPECT_EQ(buckets[0][0].item(), 0.5);
    plans[0].wait();  // nothing to wait for
  });
}

bool are_equal(const Tensor& a, const Tensor& b) { return a.numel() == 0 || (a == b).all().item<bool>(); }

// Small whole numbers, which differ from place to place.
Tensor pattern(std::int64_t first, std::int64_t last) {
  const Tensor numbers = arange(first, last).to(DType::f64);
  return numbers - floor(numbers / 13.0) * 13.0;
}

TEST(Plans, ScatterAndGatherPartsInPlace) {
  for (const int ranks : {1, 2, 3, 4}) {
    as_ranks(ranks, [](ProcessGroup& group) {
      const std::int64_t size = group.size();
      for (const std::int64_t part : {0, 1, 5, 1000, 87'000, 400'000}) {
        for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) {
          if (part > 1000 && dtype != DType::f32) {
            continue;
          }
          SCOPED_TRACE(testing::Message() << size << " ranks, parts of " << part << " " << dtype);
          Tensor whole = zeros({size * part}, {.dtype = dtype});
          const Tensor own = whole.narrow(0, group.rank() * part, part);
          PlannedCollective scatter = group.plan_reduce_scatter(whole.raw());
          PlannedCollective gather = group.plan_all_gather(whole.raw());
          PlannedCollective send = group.plan_broadcast(whole.raw(), group.size() - 1);
          for (int step = 0; step < 3; ++step) {
            whole.copy_((pattern(0, size * part) + (step + group.rank())).to(dtype));
            const Tensor before = whole.clone();
            const auto expected = [&](std::int64_t rank) {  // of all ranks' values
              const Tensor base = pattern(rank * part, (rank + 1) * part);
              return (base * static_cast<double>(size) + static_cast<double>(step * size + size * (size - 1) / 2))
                  .to(dtype);
            };
            scatter.start();
            scatter.wait();
            ASSERT_TRUE(are_equal(own, expected(group.rank())));
            for (std::int64_t r = 0; r < size; ++r) {
              ASSERT_TRUE(r == group.rank() ||
                          are_equal(whole.narrow(0, r * part, part), before.narrow(0, r * part, part)));
            }
            gather.run();
            for (std::int64_t r = 0; r < size; ++r) {
              ASSERT_TRUE(are_equal(whole.narrow(0, r * part, part), expected(r)));
            }
            whole.fill_(static_cast<double>(group.rank()));
            send.run();
            ASSERT_TRUE(are_equal(whole, full({size * part}, static_cast<double>(size - 1), {.dtype = dtype})));
          }
        }
      }
      EXPECT_THROW(group.plan_all_gather(ones({2, size}).raw()), ShapeError);
      if (size > 1) {
        EXPECT_EQ(message_of<ShapeError>([&] { group.plan_reduce_scatter(ones({size + 1}).raw()); }),
                  fmt::format("plan_reduce_scatter: the memory [{}] does not go into {} equal parts, one for each rank",
                              size + 1, size));
      }
    });
  }
}

TEST(Plans, CoverRangesOfAParameterStore) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(30, 20);
    ParameterStore::ensure(layer.parameters());
    const auto store = ParameterStore::find(layer.parameters()[0]).store;
    PlannedCollective plan = group.plan_all_reduce(store->gradients(), ReduceOp::avg);
    (layer(ones({4, 30})) * static_cast<double>(group.rank() + 1)).sum().backward();
    plan.run();
    for (const Tensor& parameter : layer.parameters()) {
      EXPECT_EQ(parameter.grad().to_vector<float>(),
                std::vector<float>(static_cast<std::size_t>(parameter.numel()), 6));
    }
  });
}

TEST(Plans, AreNotStartedTwice) {
  std::atomic<bool> tried{false};
  as_ranks(2, [&](ProcessGroup& group) {
    const Tensor memory = ones({4});
    PlannedCollective plan = group.plan_all_reduce(memory.raw());
    if (group.rank() == 0) {
      plan.start();
      EXPECT_EQ(message_of<ConfigError>([&] { plan.start(); }),
                "planned all_reduce f32 [4] sum of plan #0 (#1): started again before it was waited for");
      tried = true;
    } else {
      while (!tried) {
        std::this_thread::yield();
      }
      plan.start();
    }
    plan.wait();
    EXPECT_EQ(memory[3].item(), 2);
    EXPECT_THROW(group.plan_all_reduce(ones({2, 3}).t().raw()), ShapeError);
  });
}

TEST(CommAutograd, NoticesWhatOtherRanksWrote) {
  as_ranks(2, [](ProcessGroup& group) {
    Tensor w = ones({3});
    w.requires_grad_();
    const Tensor factor = full({3}, 2.0);
    const Tensor loss = (w * factor).sum();
    group.all_reduce(factor);
    EXPECT_THAT(message_of<AutogradError>([&] { loss.backward(); }), HasSubstr("changed in place"));
    const Tensor other = full({3}, 2.0);
    const Tensor sum = (w * other).sum();
    group.reduce(other, 0);  // written on rank 0 only
    if (group.rank() == 0) {
      EXPECT_THROW(sum.backward(), AutogradError);
    } else {
      sum.backward();
    }
  });
}

TEST(CommAutograd, WritesLeavesButNoResults) {
  as_ranks(2, [](ProcessGroup& group) {
    Tensor w = full({3}, 1.0 * group.rank());
    w.requires_grad_();
    group.broadcast(w, 1);
    EXPECT_EQ(w.to_vector<float>(), std::vector<float>(3, 1));
    EXPECT_TRUE(w.is_leaf());
    const Tensor result = w * 2;
    EXPECT_EQ(
        message_of<AutogradError>([&] { group.all_reduce(result); }),
        "all_reduce: the tensor [3] is the result of recorded ops, and what other ranks send has no gradient; give "
        "its detach(), or call under NoGradGuard");
    const Tensor all = zeros({2, 3});
    group.all_gather_into_tensor(all, result);  // only read
    EXPECT_FALSE(all.requires_grad());
    const NoGradGuard no_grad;
    group.all_reduce(result);
    EXPECT_EQ(result.to_vector<float>(), std::vector<float>(3, 4));
  });
}

TEST(CommCapture, SaysThatACapturedStepCannot) {
  as_ranks(1, [](ProcessGroup& group) {
    const Tensor tensor = ones({2});
    auto step = graph::capture([&] { group.all_reduce(tensor); });
    EXPECT_THROW(step(), CaptureError);
  });
}

// Many random calls, equal on all ranks, some of them on the group's thread.
TEST(CommSoak, ThousandsOfMixedCallsGiveWhatTheyShould) {
  constexpr int kCalls = 4000;
  as_ranks(3, [](ProcessGroup& group) {
    std::mt19937 random(99);
    std::vector<Work> works;
    std::vector<Tensor> sums;
    const auto check_sums = [&] {
      for (Work& work : works) {
        work.wait();
      }
      for (const Tensor& sum : sums) {
        ASSERT_EQ(sum.sum().item(), static_cast<double>(3 * sum.numel()));
      }
      works.clear();
      sums.clear();
    };
    for (int call = 0; call < kCalls; ++call) {
      const auto numel = static_cast<std::int64_t>(random() % 600);
      const int root = static_cast<int>(random() % 3);
      switch (random() % 6) {
        case 0: group.barrier(); break;
        case 1: check_sums(); break;
        case 2: {
          const Tensor tensor = full({numel}, 1.0 * group.rank());
          group.broadcast(tensor, root);
          ASSERT_EQ(tensor.sum().item(), static_cast<double>(root * numel));
          break;
        }
        case 3: {
          const Tensor all = zeros({3, numel});
          group.all_gather_into_tensor(all, full({numel}, 1.0 * group.rank()));
          ASSERT_EQ(all.sum().item(), static_cast<double>(3 * numel));
          break;
        }
        default:
          sums.push_back(full({numel}, 1.0 * group.rank()));
          works.push_back(group.all_reduce(sums.back(), ReduceOp::sum, true));
      }
    }
    check_sums();
  });
}

}  // namespace
}  // namespace tandem::parallel
