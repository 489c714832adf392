#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "kernels/recorder.h"
#include "parallel/models.h"

// Tests of DataParallel on GPUs, where parameters are copied. Replicas work on the default streams of their GPUs.

namespace tandem::parallel {
namespace {

using test::batch_of;
using test::difference;
using test::Mlp;
using test::seeded;

class DataParallelOnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() < 2) {
      GTEST_SKIP() << "there are " << cuda::device_count() << " GPUs, this needs 2";
    }
  }
  const std::vector<Device> gpus_{"cuda:0", "cuda:1"};
};

TEST_F(DataParallelOnGpus, EqualsOneDevice) {
  for (const std::int64_t rows : {1, 2, 9}) {
    const test::Batch d = batch_of(rows);
    Mlp alone = seeded<Mlp>();
    nn::cross_entropy(alone(d.x), d.y).backward();
    Mlp model = seeded<Mlp>();
    model.to("cuda:0");
    DataParallel dp(model, gpus_);
    const Tensor out = dp(d.x);
    EXPECT_EQ(out.device(), Device("cuda:0"));
    nn::cross_entropy(out, d.y.to("cuda:0")).backward();
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
      EXPECT_LE(difference(model.parameters()[i].grad(), alone.parameters()[i].grad()), 1e-12);
    }
  }
}

TEST_F(DataParallelOnGpus, TrainsAsOneDevice) {
  const test::Batch d = batch_of(10);
  const auto train = [](Mlp& model, const auto& loss) {
    optim::Adam adam(model.parameters(), {.lr = 1e-2});
    for (int step = 0; step < 10; ++step) {
      adam.zero_grad();
      loss().backward();
      adam.step();
    }
  };
  Mlp alone = seeded<Mlp>();
  train(alone, [&] { return nn::cross_entropy(alone(d.x), d.y); });
  Mlp model = seeded<Mlp>();
  model.to("cuda:0");
  DataParallel dp(model, gpus_);
  const auto loss = [](const Tensor& out, const Tensor& y) { return nn::cross_entropy(out, y); };
  train(model, [&] { return dp.loss(loss, d.x, d.y); });
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    EXPECT_LE(difference(model.parameters()[i], alone.parameters()[i]), 1e-4);
  }
}

TEST_F(DataParallelOnGpus, ParametersAreCopiedWhenTheyChanged) {
  Mlp model = seeded<Mlp>();
  model.to("cuda:0");
  DataParallel dp(model, gpus_);
  const test::Batch d = batch_of(4);
  const NoGradGuard no_grad;
  dp(d.x);
  EXPECT_EQ(dp.bytes_copied(), model.num_bytes());
  dp(d.x);
  EXPECT_EQ(dp.bytes_copied(), model.num_bytes()) << "nothing changed";
  model.fc2.bias.fill_(1);
  EXPECT_LE(difference(dp(d.x), model(d.x.to("cuda:0"))), 1e-12);
  EXPECT_EQ(dp.bytes_copied(), model.num_bytes() + 5 * 8);
}

TEST_F(DataParallelOnGpus, WhatAnOptimiserChangedIsCopiedInOnePiece) {
  Mlp model = seeded<Mlp>();
  model.to("cuda:0");
  optim::SGD optimizer(model.parameters(), {.lr = 0.1});
  DataParallel dp(model, gpus_);
  Replicas replicas(model, gpus_);
  const test::Batch d = batch_of(4);
  for (int step = 0; step < 3; ++step) {
    test::Recorder recorder;
    {
      const test::ObserverScope observed(&recorder);
      replicas.update(2);
    }
    EXPECT_EQ(recorder.names().size(), 1) << ::testing::PrintToString(recorder.names());
    const std::int64_t before = dp.bytes_copied();
    dp(d.x).sum().backward();
    EXPECT_EQ(dp.bytes_copied() - before, model.num_bytes());
    EXPECT_LE(difference(dp(d.x), model(d.x.to("cuda:0"))), 1e-12);
    optimizer.step();
    optimizer.zero_grad();
  }
}

TEST_F(DataParallelOnGpus, OneGpuTwice) {
  const test::Batch d = batch_of(7);
  Mlp alone = seeded<Mlp>();
  alone(d.x).sum().backward();
  Mlp model = seeded<Mlp>();
  model.to("cuda:0");
  DataParallel dp(model, {"cuda:0", "cuda:0"}, {.allow_duplicate_devices = true});
  dp(d.x).sum().backward();
  EXPECT_LE(difference(model.fc1.weight.grad(), alone.fc1.weight.grad()), 1e-12);
}

struct Doubles : nn::Module<Doubles> {
  nn::Linear fc = child("fc", nn::Linear(4, 1));
  Tensor forward(const Tensor& x) const { return x * 2; }
};

// The loader copies batches on a stream of its own, whose memory must not be reused while replicas still read it.
TEST_F(DataParallelOnGpus, BatchesOfALoadersStreamStayWhileReplicasReadThem) {
  Doubles model;
  model.to("cuda:0");
  const data::TensorDataset numbers(arange(0, 40'000).to(DType::f32).reshape({10'000, 4}));
  for (const std::vector<Device>& devices :
       {std::vector<Device>{"cuda:0"}, std::vector<Device>{"cuda:0", "cuda:0"}, gpus_}) {
    DataParallel dp(model, devices, {.allow_duplicate_devices = true});
    data::DataLoader loader(numbers, {.batch_size = 1000, .device = Device("cuda:0")});
    const NoGradGuard no_grad;
    std::vector<Tensor> results;
    for (const auto& batch : loader) {
      results.push_back(dp(batch.x));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].to_vector<float>()[0], 8000.0F * static_cast<float>(i));
    }
  }
}

TEST_F(DataParallelOnGpus, WithoutNamesAllAreUsed) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model);
  EXPECT_EQ(dp.devices().size(), static_cast<std::size_t>(cuda::device_count()));
  model.to("cuda:0");  // wrapped first, moved later
  EXPECT_EQ(dp(batch_of(4).x).device(), Device("cuda:0"));
}

TEST_F(DataParallelOnGpus, MixedWithCpuDevicesIsRefused) {
  Mlp model = seeded<Mlp>();
  EXPECT_THROW(DataParallel(model, {"cuda:0", "cpu:1"}), DeviceError);
}

}  // namespace
}  // namespace tandem::parallel
