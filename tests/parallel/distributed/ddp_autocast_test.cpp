#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

// Ranks that train in an AutocastScope.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using parallel::Shard;

Batch batch_of_step(int step, int part, int parts) {
  Generator generator(static_cast<std::uint64_t>(10 + step));
  const GeneratorScope draws(generator);
  const Tensor x = randn({16, 6});
  const Tensor y = randint(0, 3, {16});
  return {x.narrow(0, 16 / parts * part, 16 / parts), y.narrow(0, 16 / parts * part, 16 / parts)};
}

TEST(DdpAutocast, TrainsAsOneDeviceDoesUpToTheRoundingOf16Bits) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Mlp alone = seeded<Mlp>(DType::f32);
    optim::SGD sgd(alone.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int i = 0; i < 20; ++i) {
      sgd.zero_grad();
      const Batch batch = batch_of_step(i, 0, 1);
      const AutocastScope autocast(dtype);
      nn::cross_entropy(alone(batch.x), batch.y).backward();
      sgd.step();
    }
    for (const Shard shard : {Shard::none, Shard::optimizer, Shard::parameters}) {
      as_ranks(2, [&](ProcessGroup& group) {
        Mlp model = seeded<Mlp>(DType::f32);
        DistributedDataParallel ddp(model, {.process_group = &group, .shard = shard});
        optim::SGD own(model.parameters(), {.lr = 0.1, .momentum = 0.9});
        for (int i = 0; i < 20; ++i) {
          own.zero_grad();
          const Batch batch = batch_of_step(i, group.rank(), 2);
          const AutocastScope autocast(dtype);
          const Tensor output = ddp(batch.x);
          EXPECT_EQ(output.dtype(), dtype);
          nn::cross_entropy(output, batch.y).backward();
          own.step();
        }
        const auto whole = ddp.whole_parameters();
        for (std::size_t p = 0; p < alone.parameters().size(); ++p) {
          const Tensor parameter = model.parameters()[p].detach();
          EXPECT_EQ(parameter.dtype(), DType::f32);
          EXPECT_LT(difference(parameter, alone.parameters()[p]), 0.02);
          const Tensor others = parameter.clone();
          group.broadcast(others, 0);
          EXPECT_EQ(difference(parameter, others), 0);
        }
      });
    }
  }
}

TEST(DdpAutocast, AnOverflowOfOneRankLeavesTheStepOutOnAll) {
  as_ranks(2, [](ProcessGroup& group) {
    Mlp model = seeded<Mlp>(DType::f32);
    DistributedDataParallel ddp(model, {.process_group = &group});
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    optim::GradScaler scaler({.init_scale = 256});
    for (int i = 0; i < 3; ++i) {
      const std::vector<float> before = model.fc1.weight.to_vector<float>();
      sgd.zero_grad();
      Batch batch = batch_of_step(i, group.rank(), 2);
      if (i == 1 && group.rank() == 1) {
        batch.x = batch.x * 60000;  // beyond f16 in the first layer
      }
      const AutocastScope autocast(DType::f16);
      scaler.scale(nn::cross_entropy(ddp(batch.x), batch.y)).backward();
      scaler.step(sgd);
      scaler.update();
      EXPECT_EQ(model.fc1.weight.to_vector<float>() == before, i == 1);
      EXPECT_EQ(scaler.get_scale(), i == 0 ? 256 : 128);
    }
  });
}

TEST(PipelineAutocast, HasTheGradientsOfOneDevice) {
  const auto make = [] {
    manual_seed(5);
    return nn::Sequential(nn::Linear(6, 8), nn::ReLU(), nn::Linear(8, 5), nn::ReLU(), nn::Linear(5, 3));
  };
  const auto loss = [](const Tensor& output, const Tensor& y) { return nn::cross_entropy(output, y); };
  nn::Sequential alone = make();
  const Batch batch = batch_of_step(0, 0, 1);
  for (int m = 0; m < 4; ++m) {
    const AutocastScope autocast;
    (loss(alone(batch.x.narrow(0, 4 * m, 4)), batch.y.narrow(0, 4 * m, 4)) * 0.25).backward();
  }
  nn::Sequential model = make();
  parallel::Pipeline pipeline(model, cpus(2), {.microbatches = 4});
  {
    const AutocastScope autocast;
    pipeline.step(batch.x, batch.y, loss);
  }
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Sequential own = make();
    parallel::Pipeline ranked(own, group, {.microbatches = 4});
    const AutocastScope autocast;
    ranked.step(batch.x, batch.y, loss);
    for (const auto& [name, parameter] : own.named_parameters()) {
      const Tensor expected = alone.get_parameter(name).grad();
      EXPECT_EQ(difference(model.get_parameter(name).grad(), expected), 0) << name;
      if (parameter.grad().defined()) {
        EXPECT_EQ(difference(parameter.grad(), expected), 0) << name << " on rank " << group.rank();
      }
    }
  });
}

}  // namespace
}  // namespace tandem::test
