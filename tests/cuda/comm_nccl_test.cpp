#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/tandem.h>

#include "cuda/gpu_test.h"
#include "parallel/ranks.h"

// Tests of the calls that a group over NCCL accepts and refuses.

namespace tandem::parallel {
namespace {

using test::all_are;
using test::message_of;
using ::testing::HasSubstr;
using ::testing::Not;

// Calls body(rank, backend of ranks as threads) on each of two ranks.
template <class Body>
void as_two(const Body& body) {
  const auto shared = std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(2), std::vector<int>{0, 1});
  spawn(2, [&](int rank) { body(rank, std::make_unique<LocalBackend>(shared, rank)); });
}

class NcclGroups : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_GPUS(1);
    if (!why_nccl_is_unavailable().empty()) {
      GTEST_SKIP() << why_nccl_is_unavailable();
    }
  }
};

TEST_F(NcclGroups, TwoRanksOnOneGpuAreToldWhatWorks) {
  as_two([](int rank, std::unique_ptr<Backend> base) {
    EXPECT_EQ(message_of<ConfigError>([&] { nccl_backend(std::move(base), "cuda:0"); }),
              "nccl_backend: ranks 0 and 1 are both on cuda:0 of one machine, and NCCL takes one rank of a group per "
              "GPU; give each rank a GPU of its own, or take Gloo, whose ranks may share one")
        << rank;
  });
}

TEST_F(NcclGroups, ACpuHasNone) {
  as_two([](int, std::unique_ptr<Backend> base) {
    EXPECT_EQ(message_of<DeviceError>([&] { nccl_backend(std::move(base), Device()); }),
              "nccl_backend: cpu:0 is not a GPU");
  });
}

TEST_F(NcclGroups, ATensorOfAnotherGpuIsRefused) {
  TANDEM_NEEDS_GPUS(2);
  as_two([](int rank, std::unique_ptr<Backend> base) {
    const Device own(DeviceType::cuda, rank);
    ProcessGroup group(nccl_backend(std::move(base), own));
    EXPECT_EQ(group.backend(), "nccl");
    const Device other(DeviceType::cuda, 1 - rank);
    const std::string text = message_of<DeviceError>([&] { group.all_reduce(ones({3}, {.device = other})); });
    EXPECT_EQ(text, "all_reduce: the tensor is on " + to_string(other) +
                        ", and this rank's part of the group was made "
                        "for " +
                        to_string(own) + "; move it there with .to(\"" + to_string(own) + "\")");
    const Tensor tensor = ones({3}, {.device = own});
    group.all_reduce(tensor);
    EXPECT_TRUE(all_are(tensor, 2));
  });
}

TEST_F(NcclGroups, TensorsOfACpuAndMessagesGoByTheBase) {
  TANDEM_NEEDS_GPUS(2);
  as_two([](int rank, std::unique_ptr<Backend> base) {
    const Device own(DeviceType::cuda, rank);
    ProcessGroup group(nccl_backend(std::move(base), own));
    const double value = rank;
    const Tensor host = full({5}, value);
    group.broadcast(host, 1);
    EXPECT_TRUE(all_are(host, 1));
    const Tensor sent = full({5}, value, {.device = own});
    group.send(sent, 1 - rank, 7);
    const Tensor received = zeros({5}, {.device = own});
    group.recv(received, 1 - rank, 7);
    EXPECT_TRUE(all_are(received, 1 - rank));
    group.barrier();
  });
}

// A captured step is GPU graphs, between which the host starts the reductions and waits for them.
TEST_F(NcclGroups, CapturedStepsAreGraphsBetweenTheReductions) {
  TANDEM_NEEDS_GPUS(2);
  const core::DeviceScope on_gpus("cuda:0");
  const auto train = [](bool captures) {
    std::vector<Tensor> trained(2);
    test::as_ranks_of(test::Carrier::nccl, 2, [&](ProcessGroup& group) {
      Generator generator(static_cast<std::uint64_t>(group.rank()));
      const GeneratorScope draws(generator);
      nn::Sequential model(nn::Linear(32, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(), nn::Linear(64, 64),
                           nn::Tanh(), nn::Linear(64, 4));
      DistributedDataParallel ddp(model, {.process_group = &group, .bucket_cap_mb = 0.02});
      optim::Adam adam(model.parameters(), {.lr = 0.01});
      const auto step = [&](const Tensor& x) {
        adam.zero_grad();
        Tensor loss = (ddp(x) * ddp(x * 0.5)).mean();
        loss.backward();
        adam.step();
        return loss;
      };
      auto replay = graph::capture(step);
      for (int i = 0; i < 8; ++i) {
        const Tensor x = randn({8, 32});
        captures ? replay(x) : step(x);
      }
      if (captures) {
        EXPECT_GE(replay.stats().replayed, 5u);
        // Up to the end of the first bucket, and of the second. Each other gradient would leave fewer than four
        // launches.
        EXPECT_EQ(replay.stats().gpu_graphs, 2u);
      }
      std::vector<Tensor> flat;
      for (const Tensor& parameter : model.parameters()) {
        flat.push_back(parameter.detach().flatten());
      }
      trained[static_cast<std::size_t>(group.rank())] = cat(flat).to("cpu");
    });
    EXPECT_TRUE(test::same_bits(trained[0], trained[1]));
    return trained[0];
  };
  EXPECT_TRUE(test::same_bits(train(true), train(false)));
}

// The ranks look at their first steps after 256 passes; how long NCCL takes, the host does not know.
TEST_F(NcclGroups, TellEachOtherOfStepsInTheTimeOfTheirGpus) {
  TANDEM_NEEDS_GPUS(2);
  const core::DeviceScope on_gpus("cuda:0");
  test::as_ranks_of(test::Carrier::nccl, 2, [](ProcessGroup& group) {
    nn::Linear model(6, 4);
    DistributedDataParallel ddp(model, {.process_group = &group});
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    const Tensor x = ones({8, 6});
    const StepTimes times;
    for (int step = 0; step < 260; ++step) {
      sgd.zero_grad();
      ddp(x).mean().backward();
      sgd.step();
    }
    const std::string text = diagnose(times, group);
    EXPECT_THAT(text, HasSubstr(" on each of 2 ranks, "));
    EXPECT_THAT(text, HasSubstr(" us each in the time of the GPU:\n"));
    EXPECT_THAT(text, Not(HasSubstr("exchange takes")));
  });
}

}  // namespace
}  // namespace tandem::parallel
