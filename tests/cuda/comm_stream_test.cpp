#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/tandem.h>

#include "cuda/gpu_test.h"
#include "parallel/ranks.h"

// Tests of process groups and streams: their order, and the life of memory.

namespace tandem::parallel {
namespace {

using std::chrono::milliseconds;
using test::all_are;
using test::as_ranks_of;
using test::Carrier;
using test::message_of;

constexpr std::int64_t kCount = 10000;

class GroupsOnGpus : public ::testing::TestWithParam<Carrier> {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_GPUS(1);
    core::thread_state().device = "cuda:0";
    if (const std::string why = test::why_not(GetParam(), 2); !why.empty()) {
      GTEST_SKIP() << why;
    }
  }
  void TearDown() override { core::thread_state().device = Device(); }

  template <class Body>
  void as_ranks(const Body& body, milliseconds timeout = std::chrono::seconds(30)) const {
    as_ranks_of(GetParam(), 2, body, timeout);
  }
};
INSTANTIATE_TEST_SUITE_P(Carriers, GroupsOnGpus,
                         ::testing::Values(Carrier::local, Carrier::local_of_gpus, Carrier::staged, Carrier::nccl),
                         [](const auto& test) { return std::string(test::to_string(test.param)); });

// A tensor of `value` that the current stream takes a while to compute.
Tensor late(double value) {
  Tensor tensor = full({kCount}, value - 50);
  for (int i = 0; i < 50; ++i) {
    tensor.add_(1);
  }
  return tensor;
}

TEST_P(GroupsOnGpus, ACallIsAfterItsCallersStreamAndThatAfterIts) {
  as_ranks([](ProcessGroup& group) {
    const cuda::StreamScope scope(cuda::Stream(core::thread_state().device));
    for (const bool async_op : {false, true, true}) {
      const Tensor tensor = late(group.rank() + 1);
      Work work = group.all_reduce(tensor, ReduceOp::sum, async_op);
      const Tensor next = full({kCount}, 1);
      work.wait();
      const Tensor after = tensor * next;
      EXPECT_TRUE(all_are(after, 3));
    }
  });
}

TEST_P(GroupsOnGpus, TheStreamThatWaitsNeedNotBeTheCallers) {
  as_ranks([](ProcessGroup& group) {
    const Device device = core::thread_state().device;
    const cuda::Stream other(device);
    std::optional<Work> work;
    Tensor tensor;
    {
      const cuda::StreamScope scope((cuda::Stream(device)));
      tensor = late(group.rank() + 1);
      work = group.broadcast(tensor, 1, true);
    }
    const cuda::StreamScope scope(other);
    work->wait();
    EXPECT_TRUE(all_are(tensor * 2, 4));
  });
}

TEST_P(GroupsOnGpus, ACallIsDoneWhenTheGpuHasDoneIt) {
  as_ranks([](ProcessGroup& group) {
    const Tensor tensor = late(group.rank() + 1);
    const Work work = group.all_reduce(tensor, ReduceOp::sum, true);
    while (!work.done()) {
      std::this_thread::yield();
    }
    const cuda::StreamScope elsewhere(cuda::Stream(core::thread_state().device));  // ordered after no other stream
    EXPECT_TRUE(all_are(tensor, 3));
  });
}

TEST_P(GroupsOnGpus, TheHostWaitsForAllOfThem) {
  as_ranks([](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < 5; ++i) {
      tensors.push_back(late(group.rank() + i));
      group.all_reduce(tensors.back(), ReduceOp::max, true);
    }
    group.wait_all();
    const cuda::StreamScope elsewhere(cuda::Stream(core::thread_state().device));
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(all_are(tensors[static_cast<std::size_t>(i)], 1 + i));
    }
  });
}

TEST_P(GroupsOnGpus, MemoryThatIsLetGoIsNotUsedAgainTooEarly) {
  as_ranks([](ProcessGroup& group) {
    const cuda::StreamScope scope(cuda::Stream(core::thread_state().device));
    Tensor sum = zeros({kCount});
    std::vector<Work> works;
    for (int i = 1; i <= 5; ++i) {
      const std::vector<Tensor> all{empty({kCount}), empty({kCount})};
      works.push_back(group.all_gather(all, late(group.rank() + i), true));
      works.back().wait();
      full({kCount}, -1);  // would take late()'s memory if that were free
      sum.add_(all[0]).add_(all[1]);
    }
    EXPECT_TRUE(all_are(sum, 2 * (1 + 2 + 3 + 4 + 5) + 5));
  });
}

TEST_P(GroupsOnGpus, MessagesArePassedInTheOrderOfStreams) {
  as_ranks([](ProcessGroup& group) {
    const cuda::StreamScope scope(cuda::Stream(core::thread_state().device));
    const int other = 1 - group.rank();
    for (int i = 0; i < 3; ++i) {
      group.send(late(group.rank() + i), other, i);
    }
    for (const int tag : {2, 0, 1}) {
      const Tensor tensor = empty({kCount});
      group.recv(tensor, other, tag);
      EXPECT_TRUE(all_are(tensor, other + tag));
    }
  });
}

TEST_P(GroupsOnGpus, ACapturedStepRefusesThem) {
  as_ranks([](ProcessGroup& group) {
    const Tensor tensor = ones({4});
    PlannedCollective plan = group.plan_all_reduce(tensor.raw());
    const auto refusal_of = [](const auto& step) {
      return message_of<CaptureError>([&] { graph::capture([&] { step(); })(); });
    };
    EXPECT_NE(refusal_of([&] { group.all_reduce(tensor); }).find("all_reduce"), std::string::npos);
    EXPECT_NE(refusal_of([&] { plan.start(); }).find("PlannedCollective::start"), std::string::npos);
    group.all_reduce(tensor);
    EXPECT_TRUE(all_are(tensor, 2));
  });
}

TEST_P(GroupsOnGpus, AGpuIsNotComparedWithACpu) {
  as_ranks([](ProcessGroup& group) {
    const Tensor tensor = ones({4}, {.device = group.rank() == 0 ? core::thread_state().device : Device()});
    const std::string text = message_of<CommError>([&] { group.all_reduce(tensor); });
    EXPECT_NE(text.find("made different calls"), std::string::npos) << text;
    EXPECT_TRUE(all_are(tensor, 1));
  });
}

TEST_P(GroupsOnGpus, ARankThatIsLostEndsTheCallsOfOthers) {
  as_ranks([](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) {
      group.abort("the user pressed stop");
    }
    const Tensor tensor = late(1);
    const std::string text = message_of<CommError>([&] {
      for (;;) {
        group.all_reduce(tensor);
      }
    });
    EXPECT_NE(text.find("aborted by rank 1: the user pressed stop"), std::string::npos) << text;
    const Tensor mine = late(5);  // the GPU still works
    EXPECT_TRUE(all_are(mine, 5));
  });
}

TEST_P(GroupsOnGpus, ARankThatDoesNotComeIsNamed) {
  as_ranks(
      [](ProcessGroup& group) {
        if (group.rank() == 1) {
          std::this_thread::sleep_for(milliseconds(1500));
        } else {
          const std::string text = message_of<CommError>([&] { group.all_reduce(late(1)); });
          EXPECT_NE(text.find("rank 1 has not come within 0.5 s"), std::string::npos) << text;
        }
      },
      milliseconds(500));
}

// Blocks a stream until open() is called.
class Barrage {
 public:
  explicit Barrage(const cuda::Stream& stream) {
    cudaLaunchHostFunc(
        stream.handle(),
        [](void* flag) {
          while (!static_cast<std::atomic<bool>*>(flag)->load()) {
            std::this_thread::sleep_for(milliseconds(1));
          }
        },
        &open_);
  }
  ~Barrage() { open_.store(true); }
  Barrage(const Barrage&) = delete;
  Barrage& operator=(const Barrage&) = delete;
  void open() { open_.store(true); }

 private:
  std::atomic<bool> open_{false};
};

TEST(StagedGroups, AGpuThatIsLateIsNamed) {
  TANDEM_NEEDS_GPUS(1);
  core::thread_state().device = "cuda:0";
  as_ranks_of(
      Carrier::staged, 2,
      [](ProcessGroup& group) {
        const cuda::Stream stream("cuda:0");
        const cuda::StreamScope scope(stream);
        const Tensor tensor = ones({4});
        Barrage barrage(stream);
        if (group.rank() == 0) {
          barrage.open();
        }
        const std::string text = message_of<CommError>([&] { group.all_reduce(tensor); });
        EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
        EXPECT_NE(text.find("within 0.3 s"), std::string::npos) << text;
        barrage.open();
        stream.synchronize();
      },
      milliseconds(300));
  core::thread_state().device = Device();
}

TEST(StagedGroups, WhatWaitsForAGpuHearsOfAnAbort) {
  TANDEM_NEEDS_GPUS(1);
  core::thread_state().device = "cuda:0";
  as_ranks_of(Carrier::staged, 2, [](ProcessGroup& group) {
    const cuda::Stream stream("cuda:0");
    const cuda::StreamScope scope(stream);
    const Tensor tensor = ones({4});
    Barrage barrage(stream);
    const auto begin = std::chrono::steady_clock::now();
    Work work = group.all_reduce(tensor, ReduceOp::sum, true);
    if (group.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      group.abort("enough");
    }
    EXPECT_NE(message_of<CommError>([&] { work.wait(); }).find("enough"), std::string::npos);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    barrage.open();
    stream.synchronize();
  });
  core::thread_state().device = Device();
}

TEST(LocalGroups, NoMoreRanksThanAKernelTakesShareGpus) {
  std::vector<int> members(65);
  std::iota(members.begin(), members.end(), 0);
  const auto shared = std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(65), members);
  const LocalBackend backend(shared, 0);
  const Collective on_gpu{.kind = CollectiveKind::broadcast, .device = DeviceType::cuda};
  EXPECT_EQ(
      backend.refusal(on_gpu),
      "no more than 64 ranks of one process exchange tensors on GPUs, and these are 65; move them to the CPU with "
      ".to(\"cpu\"), or run each rank as a process");
  EXPECT_EQ(backend.refusal({.kind = CollectiveKind::broadcast}), "");
}

}  // namespace
}  // namespace tandem::parallel
