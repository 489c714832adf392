#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::DistributedOptions;
using parallel::ProcessGroup;

constexpr int kSteps = 50;

/// The rank's rows of the batch that a single device would process.
Batch part_of(const Batch& whole, const ProcessGroup& group) {
  const std::int64_t rows = whole.x.size(0) / group.size();
  return {whole.x.narrow(0, group.rank() * rows, rows), whole.y.narrow(0, group.rank() * rows, rows)};
}

template <class Net, class Step>
void train(Net& net, const Batch& batch, Step& step) {
  for (int i = 0; i < kSteps; ++i) {
    step.zero_grad();
    nn::cross_entropy(net(batch.x), batch.y).backward();
    step.step();
  }
}

std::vector<Tensor> values_of(const Mlp& model) {
  std::vector<Tensor> values;
  for (const Tensor& parameter : model.parameters()) {
    values.push_back(parameter.detach().to("cpu:0").clone());
  }
  return values;
}

std::vector<Tensor> trained_alone(DType dtype) {
  Mlp model = seeded<Mlp>(dtype);
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  train(model, batch_of(16, dtype), adam);
  return values_of(model);
}

std::vector<std::vector<Tensor>> trained_by(int ranks, DType dtype, const DistributedOptions& options = {},
                                            const parallel::CommHook& hook = nullptr) {
  std::vector<std::vector<Tensor>> results(static_cast<std::size_t>(ranks));
  as_ranks(ranks, [&](ProcessGroup& group) {
    manual_seed(static_cast<std::uint64_t>(group.rank()));  // different weights on each rank: rank 0's win
    Mlp model = group.rank() == 0 ? seeded<Mlp>(dtype) : Mlp();
    model.to(dtype);
    DistributedDataParallel ddp(model, options);
    if (hook) {
      ddp.register_comm_hook(hook);
    }
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    train(ddp, part_of(batch_of(16, dtype), group), adam);
    results[static_cast<std::size_t>(group.rank())] = values_of(model);
  });
  return results;
}

void expect_equal_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].to_vector<double>(), b[i].to_vector<double>());
  }
}

class DdpRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DdpRanks, testing::Values(1, 2, 4));

TEST_P(DdpRanks, TrainAsOneDeviceWithTheWholeBatch) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const std::vector<Tensor> alone = trained_alone(dtype);
    const auto together = trained_by(GetParam(), dtype);
    for (const std::vector<Tensor>& rank : together) {
      expect_equal_bits(rank, together.front());
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_LE(difference(rank[i], alone[i]), dtype == DType::f64 ? 1e-12 : 1e-5);
      }
    }
    if (GetParam() == 1) {
      expect_equal_bits(together.front(), alone);
    }
  }
}

TEST_P(DdpRanks, GiveTheSameBitsWithAnyBucketSize) {
  const auto expected = trained_by(GetParam(), DType::f32);
  for (const double mb : {1e-6, 2e-4, 1.0}) {
    const auto got = trained_by(GetParam(), DType::f32, {.bucket_cap_mb = mb});
    expect_equal_bits(got.front(), expected.front());
  }
}

TEST_P(DdpRanks, GiveTheSameBitsInFixedOrder) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const auto expected = trained_by(GetParam(), dtype);
    for (const double mb : {2e-4, 1.0}) {
      const auto got = trained_by(GetParam(), dtype, {.bucket_cap_mb = mb}, parallel::fixed_order_hook());
      for (const std::vector<Tensor>& rank : got) {
        expect_equal_bits(rank, expected.front());
      }
    }
  }
}

TEST(Ddp, ReducesTheSumOfWhatNoSyncLeft) {
  std::vector<std::vector<Tensor>> accumulated(2);
  as_ranks(2, [&](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model);
    const Batch mine = part_of(batch_of(16), group);
    {
      const auto local = ddp.no_sync();
      nn::cross_entropy(ddp(mine.x.narrow(0, 0, 4)), mine.y.narrow(0, 0, 4)).backward();
    }
    nn::cross_entropy(ddp(mine.x.narrow(0, 4, 4)), mine.y.narrow(0, 4, 4)).backward();
    for (const Tensor& parameter : model.parameters()) {
      accumulated[static_cast<std::size_t>(group.rank())].push_back(parameter.grad().to("cpu:0").clone());
    }
  });
  Mlp model = seeded<Mlp>();
  const Batch whole = batch_of(16);
  (nn::cross_entropy(model(whole.x), whole.y) * 2.0).backward();
  expect_equal_bits(accumulated[0], accumulated[1]);
  std::size_t i = 0;
  for (const Tensor& parameter : model.parameters()) {
    EXPECT_LE(difference(accumulated[0][i++], parameter.grad()), 1e-12);
  }
}

TEST(Ddp, KeepsGradientsOfNoSyncLocal) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    const auto local = ddp.no_sync();
    ddp(full({1, 1}, group.rank() + 1.0)).sum().backward();
    EXPECT_EQ(layer.weight.grad().item<double>(), group.rank() + 1.0);
  });
}

TEST(Ddp, TakesTwoForwardPassesInOneBackward) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    const float rank = static_cast<float>(group.rank());
    (ddp(full({1, 1}, 1.0F + rank)) + ddp(full({1, 1}, 10.0F * rank))).sum().backward();
    EXPECT_EQ(layer.weight.grad().item<float>(), (1.0F + 2.0F + 10.0F) / 2);
  });
}

TEST(Ddp, SyncsAPassOfWhichOnePartIsSynced) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    const float rank = static_cast<float>(group.rank());
    Tensor kept;
    {
      const auto local = ddp.no_sync();
      kept = ddp(full({1, 1}, 1.0F + rank));
    }
    (kept + ddp(full({1, 1}, 10.0F * rank))).sum().backward();
    EXPECT_EQ(layer.weight.grad().item<float>(), (1.0F + 2.0F + 10.0F) / 2);
  });
}

TEST(Ddp, AddsASecondBackwardOfTheSameGraph) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    const Tensor loss = ddp(full({1, 1}, group.rank() + 1.0)).sum();
    loss.backward({}, true);
    EXPECT_EQ(layer.weight.grad().item<float>(), 1.5F);
    loss.backward();
    EXPECT_EQ(layer.weight.grad().item<float>(), 3.0F);
  });
}

struct BodyAndTwoHeads : nn::Module<BodyAndTwoHeads> {
  nn::Linear body = child("body", nn::Linear(2, 2));
  nn::Linear left = child("left", nn::Linear(2, 1));
  nn::Linear right = child("right", nn::Linear(2, 1));
  std::tuple<Tensor, Tensor> forward(const Tensor& x) const {
    const Tensor h = body(x);
    return {left(h), right(h)};
  }
};

TEST(Ddp, TakesAStructureOfOutputs) {
  as_ranks(2, [&](ProcessGroup& group) {
    BodyAndTwoHeads model;
    DistributedDataParallel ddp(model);
    const auto [left, right] = ddp(full({1, 2}, group.rank() + 1.0));
    (left + right).sum().backward();
    Tensor sum = model.left.weight.grad().clone();
    group.all_reduce(sum, parallel::ReduceOp::avg);
    EXPECT_EQ(sum.to_vector<float>(), model.left.weight.grad().to_vector<float>());
  });
}

TEST(Ddp, HandlesParametersThatAreUnusedOnSomeRanks) {
  // Every subset of heads on each rank.
  for (int used = 1; used < 16; ++used) {
    as_ranks(2, [&](ProcessGroup& group) {
      manual_seed(3);
      BodyAndTwoHeads model;
      DistributedDataParallel ddp(model, {.find_unused_parameters = true});
      const int mine = used >> (2 * group.rank()) & 3;
      const auto [left, right] = ddp(full({1, 2}, 1.0));
      Tensor loss = zeros({}, {.requires_grad = true}) * 1.0;
      loss = (mine & 1) != 0 ? loss + left.sum() : loss;
      loss = (mine & 2) != 0 ? loss + right.sum() : loss;
      if (mine == 0) {
        loss = loss + left.sum() * 0.0;  // an input that takes part in nothing has no backward pass
      }
      loss.backward();
      const int all = (used & 3) | used >> 2;
      const bool left_used = (all & 1) != 0 || (used & 3) == 0 || used >> 2 == 0;
      EXPECT_EQ(model.left.bias.grad().defined(), left_used) << used;
      EXPECT_EQ(model.right.bias.grad().defined(), (all & 2) != 0) << used;
      const int rights = ((used & 2) != 0 ? 1 : 0) + ((used & 8) != 0 ? 1 : 0);
      if (rights > 0) {
        EXPECT_EQ(model.right.bias.grad().item<float>(), static_cast<float>(rights) / 2) << used;
      }
    });
  }
}

TEST(Ddp, LeavesOldGradientsOfAParameterThatNobodyUses) {
  as_ranks(2, [&](ProcessGroup&) {
    BodyAndTwoHeads model;
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    const Tensor x = full({1, 2}, 1.0);
    const auto [left, right] = ddp(x);
    (left + right).sum().backward();
    model.left.zero_grad();
    const auto [again, unused] = ddp(x);
    again.sum().backward();
    EXPECT_EQ(model.right.bias.grad().item<float>(), 1.0F);
    model.zero_grad();
    std::get<0>(ddp(x)).sum().backward();
    EXPECT_FALSE(model.right.bias.grad().defined());
  });
}

TEST(Ddp, MakesBuffersThoseOfRankZero) {
  as_ranks(3, [&](ProcessGroup& group) {
    nn::BatchNorm1d norm(2);
    DistributedDataParallel ddp(norm);
    for (int step = 0; step < 3; ++step) {
      ddp(full({4, 2}, 5.0 * group.rank()) + randn({4, 2})).sum().backward();
    }
    const Tensor mine = norm.get_buffer("running_mean").clone();
    Tensor of_zero = mine.clone();
    group.broadcast(of_zero, 0);
    EXPECT_EQ(mine.to_vector<float>(), of_zero.to_vector<float>());
    norm.eval();
    if (group.rank() == 0) {  // rank 0 alone
      const NoGradGuard no_grad;
      ddp(ones({4, 2}));
    }
  });
}

TEST(Ddp, TrainsOverASubGroup) {
  as_ranks(3, [&](ProcessGroup& group) {
    const auto pair = group.new_group({0, 2});
    nn::Linear layer(1, 1);
    if (pair == nullptr) {
      return;
    }
    DistributedDataParallel ddp(layer, {.process_group = pair.get()});
    ddp(full({1, 1}, group.rank() + 0.0)).sum().backward();
    EXPECT_EQ(layer.weight.grad().item<float>(), 1.0F);
  });
}

TEST(Ddp, CanBeWrappedAgain) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    {
      DistributedDataParallel first(layer);
    }
    DistributedDataParallel second(layer);
    second(full({1, 1}, group.rank() + 0.0)).sum().backward();
    EXPECT_EQ(layer.weight.grad().item<float>(), 0.5F);
  });
}

TEST(Ddp, SendsHalfTheBytesWithACompressHook) {
  for (const auto& hook : {parallel::bf16_compress_hook(), parallel::fp16_compress_hook()}) {
    as_ranks(2, [&](ProcessGroup& group) {
      Mlp model = seeded<Mlp>(DType::f32);
      DistributedDataParallel ddp(model, {.bucket_cap_mb = 1e-4});
      ddp.register_comm_hook(hook);
      const Batch mine = part_of(batch_of(16, DType::f32), group);
      nn::cross_entropy(ddp(mine.x), mine.y).backward();
      Mlp alone = seeded<Mlp>(DType::f32);
      const Batch whole = batch_of(16, DType::f32);
      nn::cross_entropy(alone(whole.x), whole.y).backward();
      EXPECT_LE(difference(model.fc1.weight.grad(), alone.fc1.weight.grad()), 1e-2);
      EXPECT_NE(model.fc1.weight.grad().to_vector<float>(), alone.fc1.weight.grad().to_vector<float>());
    });
  }
}

TEST(Ddp, GivesEachBucketToAHookInOrder) {
  as_ranks(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.bucket_cap_mb = 1e-6});
    std::vector<std::size_t> started;
    std::vector<std::size_t> finished;
    ddp.register_comm_hook([&](ProcessGroup& group, const parallel::GradBucket& bucket) -> std::function<void()> {
      EXPECT_EQ(bucket.count, 6U);
      started.push_back(bucket.index);
      parallel::Work work = group.all_reduce(bucket.gradients, parallel::ReduceOp::avg, true);
      return [&finished, work, index = bucket.index]() mutable {
        work.wait();
        finished.push_back(index);
      };
    });
    const Batch batch = batch_of(8);
    nn::cross_entropy(ddp(batch.x), batch.y).backward();
    EXPECT_EQ(started, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(finished, started);
    Mlp alone = seeded<Mlp>();
    nn::cross_entropy(alone(batch.x), batch.y).backward();
    EXPECT_LE(difference(model.fc1.weight.grad(), alone.fc1.weight.grad()), 1e-12);
  });
}

TEST(Ddp, HasTheModulesParametersAndModes) {
  as_ranks(1, [](ProcessGroup&) {
    Mlp model = seeded();
    DistributedDataParallel ddp(model);
    EXPECT_EQ(ddp.parameters().size(), model.parameters().size());
    ddp.eval();
    EXPECT_FALSE(model.fc3.is_training());
    ddp.train();
    EXPECT_TRUE(model.fc3.is_training());
  });
}

}  // namespace
}  // namespace tandem::test
