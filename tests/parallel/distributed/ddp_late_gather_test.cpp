#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

// The gathers of a sharded update that travel while the ranks go on: between hosts. Elsewhere the same tests hold.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using parallel::Shard;

Batch rows_of(const ProcessGroup& group, int step) {
  manual_seed(static_cast<std::uint64_t>(1000 * step + group.rank()));
  return {randn({4, 6}, {.dtype = DType::f64}), randint(0, 3, {4})};
}

TEST(DdpLateGather, AStepEndsBeforeTheOtherRankMakesIt) {
  std::atomic<bool> has_stepped = false;
  as_ranks(2, [&](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
    optim::Adam adam(model.parameters());
    const Batch batch = rows_of(group, 0);
    nn::cross_entropy(ddp(batch.x), batch.y).backward();
    if (group.rank() == 0) {
      adam.step();
      has_stepped = true;
    } else {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (tested_backend() == "gloo-tcp" && !has_stepped && std::chrono::steady_clock::now() < limit) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_TRUE(has_stepped || tested_backend() != "gloo-tcp") << "rank 0 waits for rank 1 in step()";
      adam.step();
    }
  });
}

// A training whose body(ddp, model, optimizer, step) makes one step; returns rank 0's weights.
template <class Body>
std::vector<double> weights_after(Shard shard, const Body& body) {
  std::vector<double> weights;
  as_ranks(2, [&](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.bucket_cap_mb = 1e-4, .shard = shard});
    optim::Adam adam(model.parameters(), {.lr = 0.05});
    auto make_step = [&](const Tensor& x, const Tensor& y) {
      adam.zero_grad();
      nn::cross_entropy(ddp(x), y).backward();
      adam.step();
    };
    auto captured = graph::capture(make_step);
    for (int step = 0; step < 9; ++step) {
      const Batch batch = rows_of(group, step);
      body(step, model, adam, [&](bool replays) {
        replays ? static_cast<void>(captured(batch.x, batch.y)) : make_step(batch.x, batch.y);
      });
    }
    if (group.rank() == 0) {
      for (const Tensor& parameter : model.parameters()) {
        const std::vector<double> values = parameter.detach().to(DType::f64).to_vector<double>();
        weights.insert(weights.end(), values.begin(), values.end());
      }
    }
  });
  return weights;
}

template <class Body>
void expect_as_whole_updates(const Body& body) {
  EXPECT_EQ(weights_after(Shard::optimizer, body), weights_after(Shard::none, body));
}

TEST(DdpLateGather, StepsMayAlternateWithReplays) {
  expect_as_whole_updates([](int step, Mlp&, optim::Adam&, const auto& make) { make(step % 3 == 1); });
  expect_as_whole_updates([](int step, Mlp&, optim::Adam&, const auto& make) { make(step > 4); });
}

TEST(DdpLateGather, ASecondStepOfTheSameGradientsWaitsForTheFirst) {
  expect_as_whole_updates([](int, Mlp&, optim::Adam& adam, const auto& make) {
    make(false);
    adam.step();
    adam.step();
  });
}

TEST(DdpLateGather, WhoReadsOrWritesAParameterHasAllParts) {
  expect_as_whole_updates([](int step, Mlp& model, optim::Adam&, const auto& make) {
    make(false);
    const NoGradGuard no_grad;
    switch (step % 3) {
      case 0: model.fc2.weight.mul_(1 + model.fc1.weight.abs().max()); break;
      case 1: model.load_state_dict(model.state_dict()); break;
      default: model.fc1.bias.copy_(model.fc2.weight.flatten().narrow(0, 0, model.fc1.bias.numel())); break;
    }
  });
}

TEST(DdpLateGather, AveragesAreOfAllParts) {
  const auto averages = [](Shard shard) {
    std::vector<double> values;
    as_ranks(2, [&](ProcessGroup& group) {
      Mlp model = seeded<Mlp>();
      DistributedDataParallel ddp(model, {.shard = shard});
      optim::SGD sgd(model.parameters(), {.lr = 0.1});
      optim::EMA ema(model.parameters(), {.decay = 0.5});
      for (int step = 0; step < 4; ++step) {
        const Batch batch = rows_of(group, step);
        sgd.zero_grad();
        nn::cross_entropy(ddp(batch.x), batch.y).backward();
        sgd.step();
        ema.update();
      }
      if (group.rank() == 1) {
        const optim::EMA::Scope averaged(ema);
        values = model.fc1.weight.detach().to(DType::f64).to_vector<double>();
      }
    });
    return values;
  };
  EXPECT_EQ(averages(Shard::optimizer), averages(Shard::none));
}

TEST(DdpLateGather, ReplicasWithinARankHaveAllParts) {
  const auto trained = [](Shard shard) {
    std::vector<double> values;
    as_ranks(2, [&](ProcessGroup& group) {
      Mlp model = seeded<Mlp>();
      model.to(Device("cpu:0"));
      DistributedDataParallel ddp(model, {.shard = shard});
      optim::SGD sgd(model.parameters(), {.lr = 0.1});
      parallel::DataParallel replicas(model, {"cpu:0", "cpu:1"});
      for (int step = 0; step < 4; ++step) {
        const Batch batch = rows_of(group, step);
        sgd.zero_grad();
        nn::cross_entropy(ddp(batch.x.to("cpu:0")), batch.y.to("cpu:0")).backward();
        sgd.step();
        const NoGradGuard no_grad;
        const Tensor output = replicas(rows_of(group, 100).x.to("cpu:0"));
        if (group.rank() == 0) {
          values = output.to(DType::f64).to_vector<double>();
        }
      }
    });
    return values;
  };
  EXPECT_EQ(trained(Shard::optimizer), trained(Shard::none));
}

// Rank 1 leaves the last step out, and its work.
TEST(DdpLateGather, AStepThatIsNotWholeIsToldToAllWhoReadAParameter) {
  EXPECT_THROW(as_ranks(2,
                        [](ProcessGroup& group) {
                          Mlp model = seeded<Mlp>();
                          {
                            DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
                            optim::SGD sgd(model.parameters(), {.lr = 0.1});
                            const Batch batch = rows_of(group, 0);
                            nn::cross_entropy(ddp(batch.x), batch.y).backward();
                            if (group.rank() == 1) {
                              return;
                            }
                            const auto step_and_read = [&] {
                              sgd.step();
                              model.fc1.weight.sum();
                            };
                            EXPECT_THROW(step_and_read(), CommError);
                            if (tested_backend() != "gloo-tcp") {
                              throw ConfigError("");
                            }
                            EXPECT_THROW(model.fc2.weight.sum(), CommError);
                            EXPECT_THROW(model.fc1.bias.detach().to_vector<double>(), CommError);
                          }
                          model.fc1.weight.sum();  // the wrapper is gone
                        }),
               ConfigError);
}

TEST(DdpLateGather, ACallThatIsQueuedBeforeItDoesNotWaitForIt) {
  as_ranks(
      2,
      [](ProcessGroup& group) {
        Mlp model = seeded<Mlp>();
        DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
        optim::SGD sgd(model.fc1.parameters(), {.lr = 0.1});
        const Batch batch = rows_of(group, 0);
        nn::cross_entropy(ddp(batch.x), batch.y).backward();
        const Tensor weight = model.fc2.weight.detach();
        const Tensor before = weight.clone();
        // Packed by whoever runs the call, on a parameter of the bucket that is gathered.
        parallel::Work reduced = group.reduce(weight.t(), 0, parallel::ReduceOp::max, true);
        sgd.step();
        reduced.wait();
        EXPECT_EQ(difference(weight, before), 0);
      },
      std::chrono::seconds(20));
}

TEST(DdpLateGather, APlanOfAnotherGroupHasAllParts) {
  const auto trained = [](bool has_plan) {
    std::vector<double> weights;
    as_ranks(2, [&](ProcessGroup& group) {
      const auto other = group.new_group({0, 1});
      Generator generator(5);
      const GeneratorScope draws(generator);
      nn::Linear model(64, 512);
      DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
      optim::SGD sgd(model.parameters(), {.lr = 0.1});
      parallel::PlannedCollective plan =
          other->plan_all_reduce(model.weight.detach().narrow(0, 100, 400).raw(), parallel::ReduceOp::max);
      for (int i = 0; i < 5; ++i) {
        sgd.zero_grad();
        ddp(ones({4, 64}) * (1 + group.rank())).sum().backward();
        sgd.step();
        if (has_plan) {
          plan.run();
        }
      }
      if (group.rank() == 0) {
        weights = model.weight.detach().to(DType::f64).to_vector<double>();
      }
    });
    return weights;
  };
  EXPECT_EQ(trained(true), trained(false));
}

}  // namespace
}  // namespace tandem::test
