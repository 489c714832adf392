#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"
#include "support/message.h"

// DistributedDataParallel refuses some uses while it shares out the optimiser's updates (shard).

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using parallel::Shard;
using testing::HasSubstr;

TEST(DdpShardErrors, SayWhatTheOptionLeavesOut) {
  as_ranks(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
    EXPECT_THAT(message_of<ConfigError>([&] { ddp.register_comm_hook(parallel::bf16_compress_hook()); }),
                HasSubstr("leave one of them out"));
    const Batch batch = batch_of(4);
    const auto backward = [&] { nn::cross_entropy(ddp(batch.x), batch.y).backward(); };
    {
      const auto local = ddp.no_sync();
      backward();
      EXPECT_TRUE(model.fc1.weight.grad().defined());  // all of it is this rank's
    }
    backward();
    EXPECT_THAT(message_of<AutogradError>([&] { static_cast<void>(model.fc1.weight.grad()); }),
                HasSubstr("'fc1.weight' [8, 6], and no others: DistributedDataParallel #0 shares out the updates"));
  });
}

TEST(DdpShardErrors, RefuseToAddToPartsOfGradients) {
  comm_errors(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
    const Batch batch = batch_of(4);
    nn::cross_entropy(ddp(batch.x), batch.y).backward();
    const Tensor loss = nn::cross_entropy(ddp(batch.x), batch.y);
    EXPECT_THAT(message_of<AutogradError>([&] { loss.backward(); }), HasSubstr("call zero_grad() before backward()"));
    nn::cross_entropy(ddp(batch.x), batch.y).backward();
  });
}

TEST(DdpShardErrors, AreThoseOfAPartAfterReplaysToo) {
  for (const bool clears_within : {true, false}) {
    comm_errors(2, [&](ProcessGroup&) {
      Mlp model = seeded<Mlp>();
      DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
      optim::Adam adam(model.parameters());
      const Batch batch = batch_of(4);
      auto step = graph::capture([&](const Tensor& x, const Tensor& y) {
        if (clears_within) {
          adam.zero_grad();
        }
        nn::cross_entropy(ddp(x), y).backward();
        adam.step();
      });
      for (int i = 0; i < 4; ++i) {
        if (!clears_within) {
          adam.zero_grad();
        }
        step(batch.x, batch.y);
      }
      EXPECT_GT(step.stats().replayed, 0U);
      EXPECT_THAT(message_of<AutogradError>([&] { static_cast<void>(model.fc1.weight.grad()); }),
                  HasSubstr("and no others"));
      const Tensor loss = nn::cross_entropy(ddp(batch.x), batch.y);
      EXPECT_THAT(message_of<AutogradError>([&] { loss.backward(); }), HasSubstr("call zero_grad() before backward()"));
    });
  }
}

TEST(DdpShardErrors, RefuseGradientsOfOneRankAlone) {
  as_ranks(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
    optim::Adam adam(model.parameters());
    const auto local = ddp.no_sync();
    const Batch batch = batch_of(4);
    nn::cross_entropy(ddp(batch.x), batch.y).backward();
    EXPECT_THAT(message_of<AutogradError>([&] { optim::clip_grad_norm_(model.parameters(), 1); }),
                HasSubstr("outside of no_sync()"));
    EXPECT_THAT(message_of<AutogradError>([&] { adam.step(); }), HasSubstr("outside of no_sync()"));
  });
}

TEST(DdpShardErrors, RefuseHooksOfParameters) {
  comm_errors(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
    model.fc1.weight.register_post_accumulate_grad_hook([](const Tensor&) {});
    const Batch batch = batch_of(4);
    const Tensor loss = nn::cross_entropy(ddp(batch.x), batch.y);
    EXPECT_THAT(message_of<AutogradError>([&] { loss.backward(); }), HasSubstr("waits for its whole gradient"));
  });
}

// A rank that does not step leaves the others waiting, and the error says for what.
TEST(DdpShardErrors, NameTheStepThatOneRankLeavesOut) {
  const auto errors = comm_errors(
      2,
      [&](ProcessGroup& group) {
        Mlp model = seeded<Mlp>();
        DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
        optim::SGD sgd(model.parameters(), {.lr = 0.1});
        const Batch batch = batch_of(4);
        nn::cross_entropy(ddp(batch.x), batch.y).backward();
        if (group.rank() == 0) {
          sgd.step();
          model(batch.x);  // where parts come late
        } else {
          group.barrier();
        }
      },
      std::chrono::seconds(5));
  EXPECT_THAT(errors.front().what(), HasSubstr("the updated parameters of bucket 0 of 1"));
  EXPECT_THAT(errors.front().what(), HasSubstr("All ranks step the same optimisers"));
}

TEST(DdpShardErrors, SayThatAllRanksTakeTheState) {
  const auto errors = comm_errors(2, [&](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
    optim::Adam adam(model.parameters());
    const Batch batch = batch_of(4);
    nn::cross_entropy(ddp(batch.x), batch.y).backward();
    adam.step();
    if (group.rank() == 0) {
      adam.state_dict();
    } else {
      group.barrier();
    }
  });
  EXPECT_THAT(errors.front().what(), HasSubstr("all ranks call it, also where one of them saves"));
}

// All ranks hear what one rank does alone, with the call and what to do about it.
void expect_that_all_ranks_hear(const std::function<void(Mlp& model, DistributedDataParallel<Mlp>& ddp)>& alone) {
  const auto errors = comm_errors(
      2,
      [&](ProcessGroup& group) {
        Mlp model = seeded<Mlp>();
        DistributedDataParallel ddp(model, {.shard = Shard::parameters});
        if (group.rank() == 0) {
          alone(model, ddp);
        }
        group.barrier();
      },
      std::chrono::seconds(5));
  EXPECT_THAT(errors.front().what(), HasSubstr("the parameters of bucket 0 of 1"));
  EXPECT_THAT(errors.front().what(), HasSubstr("What one rank does alone belongs into a scope of whole_parameters()"));
  EXPECT_THAT(errors.back().what(), HasSubstr("the parameters of bucket 0 of 1"));
}

TEST(DdpParametersErrors, NameTheUseThatOneRankMakesAlone) {
  expect_that_all_ranks_hear([](Mlp& model, auto&) { model.state_dict(); });
  expect_that_all_ranks_hear([](Mlp&, auto& ddp) { static_cast<void>(ddp.whole_parameters()); });
  expect_that_all_ranks_hear([](Mlp& model, auto&) { model.load_state_dict(seeded<Mlp>().state_dict()); });
  expect_that_all_ranks_hear([](Mlp&, auto& ddp) { ddp(batch_of(4).x); });
}

TEST(DdpParametersErrors, RefuseUsesOutsideOfPasses) {
  as_ranks(2, [&](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    const Tensor handle = model.fc2.bias.detach();
    optim::Adam adam(model.parameters());
    DistributedDataParallel ddp(model, {.shard = Shard::parameters});
    const Tensor later = model.fc2.bias.detach().narrow(0, 0, 2);
    const Batch batch = batch_of(4);
    EXPECT_EQ(
        message_of<ConfigError>([&] { static_cast<void>(model.fc1.weight.to_vector<double>()); }),
        "DistributedDataParallel #0: parameter 'fc1.weight' was used outside of a pass through the wrapper, where "
        "rank " +
            std::to_string(group.rank()) +
            " has only its part (shard = parameters). Call ddp(x) in place of the module; to read or write "
            "parameters, let all ranks open a scope, `const auto whole = ddp.whole_parameters();`, or take "
            "state_dict()");
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(message_of<ConfigError>([&] { model(batch.x); }), HasSubstr("Call ddp(x) in place of the module"));
      EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(later.sum()); }), HasSubstr("'fc2.bias'"));
      EXPECT_THAT(message_of<ConfigError>([&] { model.fc3.weight.detach().fill_(1); }), HasSubstr("'fc3.weight'"));
      EXPECT_THAT(message_of<ConfigError>([&] { optim::EMA ema(model.parameters()); }),
                  HasSubstr("whole_parameters()"));
      EXPECT_THAT(message_of<ConfigError>([&] { model.to(DType::f32); }), HasSubstr("whole_parameters()"));
      nn::cross_entropy(ddp(batch.x), batch.y).backward();
      adam.step();
      adam.zero_grad();
      static_cast<void>(ddp(batch.x));  // keeps the last bucket
    }
    EXPECT_EQ(handle.numel(), 5);
  });
}

TEST(DdpParametersErrors, SayThatTheWrapperIsGone) {
  as_ranks(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    {
      DistributedDataParallel ddp(model, {.shard = Shard::parameters});
    }
    for (const auto& use : std::vector<std::function<void()>>{
             [&] { static_cast<void>(model.fc1.weight.sum()); }, [&] { model(batch_of(4).x); },
             [&] { model.state_dict().clone(); }, [&] { DistributedDataParallel again(model); }}) {
      EXPECT_THAT(message_of<ConfigError>(use), HasSubstr("(shard = parameters) is gone. Make the module anew"));
    }
  });
}

TEST(DdpParametersErrors, SayWhatTheOptionLeavesOut) {
  as_ranks(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    EXPECT_THAT(message_of<ConfigError>([&] {
                  DistributedDataParallel ddp(model, {.find_unused_parameters = true, .shard = Shard::parameters});
                }),
                HasSubstr("ranks may use different parameters"));
    DistributedDataParallel ddp(model, {.shard = Shard::parameters});
    EXPECT_THAT(message_of<ConfigError>([&] { parallel::Join join(ddp); }), HasSubstr("equal numbers of batches"));
    EXPECT_THAT(message_of<ConfigError>([&] { ddp.register_comm_hook(parallel::bf16_compress_hook()); }),
                HasSubstr("leave one of them out"));
    const Batch batch = batch_of(4);
    auto step = graph::capture([&](const Tensor& x, const Tensor& y) { nn::cross_entropy(ddp(x), y).backward(); });
    EXPECT_THAT(message_of<CaptureError>([&] { step(batch.x, batch.y); }),
                HasSubstr("a captured step cannot have shard = parameters"));
    nn::cross_entropy(ddp(batch.x), batch.y).backward();
  });
}

TEST(DdpParametersErrors, RefuseModelsOverSeveralDevices) {
  as_ranks(2, [&](ProcessGroup&) {
    nn::Linear here(3, 4);
    nn::Linear there(4, 5);
    there.to(Device(DeviceType::cpu, 7));
    nn::Sequential model(std::move(here), std::move(there));
    EXPECT_THAT(message_of<ConfigError>([&] { DistributedDataParallel ddp(model, {.shard = Shard::parameters}); }),
                HasSubstr("shard = parameters gathers on one device, and there are parameters on cpu:"));
  });
}

TEST(DdpParametersErrors, RefuseReplicas) {
  struct Halves : nn::Module<Halves> {
    Mlp body = child("body", seeded<Mlp>());
    std::vector<Device> devices;
    Tensor forward(const Tensor& x) const { return parallel::data_parallel(body, x, devices); }
  };
  as_ranks(2, [&](ProcessGroup& group) {
    Halves model;
    model.devices = {model.body.fc1.weight.device(), Device(DeviceType::cpu, 2 + group.rank())};
    DistributedDataParallel ddp(model, {.shard = Shard::parameters});
    EXPECT_THAT(message_of<ConfigError>([&] { ddp(batch_of(4).x); }), HasSubstr("was used by a replica, or"));
  });
}

TEST(DdpParametersErrors, RefuseUsesByOtherThreads) {
  struct Spread : nn::Module<Spread> {
    nn::Linear fc = child("fc", nn::Linear(6, 3));
    Tensor forward(const Tensor& x) const {
      std::string text;
      std::thread([&] { text = message_of<ConfigError>([&] { static_cast<void>(fc.weight.sum()); }); }).join();
      EXPECT_THAT(text, HasSubstr("by a thread that is not the one of the pass"));
      return fc(x);
    }
  };
  as_ranks(2, [&](ProcessGroup&) {
    Spread model;
    DistributedDataParallel ddp(model, {.shard = Shard::parameters});
    ddp(ones({2, 6})).sum().backward();
  });
}

}  // namespace
}  // namespace tandem::test
