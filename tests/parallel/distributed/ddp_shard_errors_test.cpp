#include <chrono>

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

}  // namespace
}  // namespace tandem::test
