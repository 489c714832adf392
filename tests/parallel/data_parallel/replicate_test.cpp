#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "support/message.h"

namespace tandem::parallel {
namespace {

using test::cpus;
using test::difference;
using test::message_of;
using test::Mlp;
using test::seeded;

// Runs module(x) as replica k, on its device.
template <class M>
Tensor run(const M& module, Replicas& replicas, std::size_t k, const Tensor& x) {
  const core::FrameScope active(replicas.frame(k));
  return module(x.to(replicas.devices()[k]));
}

TEST(Replicate, EveryReplicaComputesTheSame) {
  Mlp model = seeded<Mlp>();
  Replicas replicas = replicate(model, cpus(3));
  const Tensor x = test::seeded<Mlp>().fc1.weight.detach().clone();  // [8, 6]
  const Tensor expected = model(x);
  for (std::size_t k = 0; k < 3; ++k) {
    const Tensor y = run(model, replicas, k, x);
    EXPECT_EQ(y.device(), replicas.devices()[k]);
    EXPECT_EQ(y.to_vector<double>(), expected.to_vector<double>());
  }
}

TEST(Replicate, GradientsAreSummedIntoTheModule) {
  Mlp model = seeded<Mlp>();
  manual_seed(9);
  const Tensor x = randn({4, 6}, {.dtype = DType::f64});
  (model(x).sum() * 6).backward();
  std::vector<Tensor> expected;
  for (const Tensor& p : model.parameters()) {
    expected.push_back(p.grad().clone());
  }
  for (int pass = 0; pass < 3; ++pass) {  // the second and third pass reuse the replicas
    model.zero_grad();
    Replicas replicas = replicate(model, cpus(3));
    Tensor loss;
    for (std::size_t k = 0; k < 3; ++k) {
      const Tensor part = run(model, replicas, k, x).sum().to("cpu:0") * static_cast<double>(k + 1);
      loss = loss.defined() ? loss + part : part;
    }
    loss.backward();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(difference(model.parameters()[i].grad(), expected[i]), 1e-12);
    }
  }
}

TEST(Replicate, AReplicaThatNobodyUsedAddsNothing) {
  Mlp model = seeded<Mlp>();
  Replicas replicas = replicate(model, cpus(3));
  run(model, replicas, 2, ones({1, 6}, {.dtype = DType::f64})).sum().backward();
  Mlp same = seeded<Mlp>();
  same(ones({1, 6}, {.dtype = DType::f64})).sum().backward();
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    EXPECT_LT(difference(model.parameters()[i].grad(), same.parameters()[i].grad()), 1e-12);
  }
}

struct PartlyUsed : nn::Module<PartlyUsed> {
  nn::Linear used = child("used", nn::Linear(3, 2));
  nn::Linear spare = child("spare", nn::Linear(3, 2));
  nn::Linear last = child("last", nn::Linear(2, 1));
  Tensor forward(const Tensor& x) const { return last(used(x)); }
};

TEST(Replicate, ParametersThatNothingDependsOnGetNoGradient) {
  PartlyUsed model = seeded<PartlyUsed>();
  Replicas replicas = replicate(model, cpus(2));
  const Tensor x = ones({2, 3}, {.dtype = DType::f64});
  (run(model, replicas, 0, x).sum() + run(model, replicas, 1, x).sum().to("cpu:0")).backward();
  EXPECT_FALSE(model.spare.weight.grad().defined());
  EXPECT_TRUE(model.used.weight.grad().defined());
  EXPECT_TRUE(model.last.weight.grad().defined());
}

TEST(Replicate, FrozenParametersGetNoGradient) {
  Mlp model = seeded<Mlp>();
  model.fc2.requires_grad_(false);
  Replicas replicas = replicate(model, cpus(2));
  const Tensor x = ones({2, 6}, {.dtype = DType::f64});
  run(model, replicas, 1, x).sum().backward();
  EXPECT_FALSE(model.fc2.weight.grad().defined());
  EXPECT_TRUE(model.fc1.weight.grad().defined());
  model.fc2.requires_grad_(true);
  replicas.update(2);
  run(model, replicas, 1, x).sum().backward();
  EXPECT_TRUE(model.fc2.weight.grad().defined());
}

struct Tied : nn::Module<Tied> {
  nn::Linear in = child("in", nn::Linear(4, 4, {.bias = false}));
  nn::Linear out = child("out", nn::Linear(4, 4, {.bias = false}));
  Tied() { tie(out.weight, in.weight); }
  Tensor forward(const Tensor& x) const { return out(relu(in(x))); }
};

struct Watched : nn::Module<Watched> {
  nn::Linear fc = child("fc", nn::Linear(6, 3));
  mutable std::vector<Tensor> seen;
  Tensor forward(const Tensor& x) const {
    if (replica().index == 1) {
      fc.weight.register_hook([this](const Tensor& gradient) {
        seen.push_back(gradient);
        return Tensor();
      });
    }
    return fc(x);
  }
};

TEST(Replicate, WhatAHookKeepsStaysAsItWas) {
  Watched model = seeded<Watched>();
  DataParallel dp(model, test::cpus(2));
  const Tensor x = ones({4, 6}, {.dtype = DType::f64});
  for (const double scale : {1.0, 7.0, 9.0}) {
    dp(x * scale).sum().backward();
  }
  ASSERT_EQ(model.seen.size(), 3U);
  EXPECT_EQ(model.seen[0].to_vector<double>()[0], 2);
  EXPECT_EQ(model.seen[1].to_vector<double>()[0], 14);
}

TEST(Replicate, TiesSurvive) {
  const Tensor x = ones({2, 4}, {.dtype = DType::f64});
  Tied alone = seeded<Tied>();
  alone(x).sum().backward();
  Tied model = seeded<Tied>();
  Replicas replicas = replicate(model, cpus(2));
  run(model, replicas, 1, x).sum().backward();
  EXPECT_LT(difference(model.in.weight.grad(), alone.in.weight.grad()), 1e-12);
}

TEST(Replicate, FollowsTheParameters) {
  Mlp model = seeded<Mlp>();
  Replicas replicas = replicate(model, cpus(2));
  const Tensor x = ones({2, 6}, {.dtype = DType::f64});
  {
    const NoGradGuard no_grad;
    model.fc1.weight.mul_(2);
  }
  replicas.update(2);
  EXPECT_EQ(run(model, replicas, 1, x).to_vector<double>(), model(x).to_vector<double>());
  model.fc3 = nn::Linear(5, 7);  // other parameters
  model.to(DType::f32);          // other memory
  replicas.update(2);
  const Tensor narrow = x.to(DType::f32);
  EXPECT_EQ(run(model, replicas, 1, narrow).to_vector<float>(), model(narrow).to_vector<float>());
}

TEST(Replicate, AnOldGraphIsNotUsedWithNewWeights) {
  Mlp model = seeded<Mlp>();
  Replicas replicas = replicate(model, cpus(2));
  const Tensor loss = run(model, replicas, 1, ones({2, 6}, {.dtype = DType::f64})).sum();
  const NoGradGuard no_grad;
  model.fc2.weight.mul_(2);
  EXPECT_THROW(loss.backward(), AutogradError);
}

TEST(Replicate, TwoForwardsOneBackward) {
  const Tensor x = ones({2, 6}, {.dtype = DType::f64});
  Mlp alone = seeded<Mlp>();
  (alone(x).sum() + alone(x * 2).sum()).backward();
  Mlp model = seeded<Mlp>();
  Replicas replicas = replicate(model, cpus(2));
  const Tensor first = run(model, replicas, 1, x).sum();
  replicas.update(2);
  (first + run(model, replicas, 1, x * 2).sum()).backward();
  EXPECT_LT(difference(model.fc1.weight.grad(), alone.fc1.weight.grad()), 1e-12);
}

TEST(Replicate, CopiesNothingToLogicalDevices) {
  Mlp model = seeded<Mlp>();
  EXPECT_EQ(replicate(model, cpus(4)).bytes_copied(), 0);
}

TEST(Replicate, BuffersAreCopiedWhenTheyChanged) {
  nn::BatchNorm1d norm(3);
  Replicas replicas(norm, cpus(2));
  replicas.update(2);
  const std::int64_t first = replicas.bytes_copied();
  EXPECT_EQ(first, norm.num_bytes() - 2 * 3 * 4);  // without weight and bias
  replicas.update(2);
  EXPECT_EQ(replicas.bytes_copied(), first);
  run(norm, replicas, 1, randn({5, 3}));  // updates the replica's statistics, which are lost
  EXPECT_EQ(norm.get_buffer("running_mean").to_vector<float>(), (std::vector<float>{0, 0, 0}));
  replicas.update(2);
  EXPECT_EQ(replicas.bytes_copied(), 2 * first);
  run(norm, replicas, 0, randn({5, 3}));  // replica 0 is the module itself
  EXPECT_NE(norm.get_buffer("running_mean").to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

TEST(Replicate, AParameterCannotBeWrittenByAReplica) {
  Mlp model = seeded<Mlp>();
  Replicas replicas = replicate(model, cpus(2));
  const core::FrameScope active(replicas.frame(1));
  const NoGradGuard no_grad;
  EXPECT_THROW(model.fc1.weight.mul_(2), AutogradError);
}

TEST(Replicate, KnowsGpusThatAreTooDifferent) {
  using Found = std::pair<std::size_t, std::size_t>;
  const auto gpu = [](std::int64_t memory, int processors) {
    return cuda::DeviceProperties{.name = "a GPU", .total_memory = memory, .multi_processor_count = processors};
  };
  EXPECT_EQ(detail::find_imbalance({gpu(80, 132), gpu(74, 100)}), Found(0, 0)) << "three quarters are enough";
  EXPECT_EQ(detail::find_imbalance({gpu(80, 132), gpu(40, 132), gpu(60, 132)}), Found(1, 0)) << "memory";
  EXPECT_EQ(detail::find_imbalance({gpu(80, 98), gpu(80, 132)}), Found(0, 1)) << "multiprocessors";
  EXPECT_EQ(detail::find_imbalance({gpu(80, 132)}), Found(0, 0));
}

TEST(ReplicateErrors, NameWhatIsWrong) {
  Mlp model = seeded<Mlp>();
  EXPECT_EQ(message_of<ConfigError>([&] { replicate(model, {}); }), "replicate: no devices are given");
  EXPECT_EQ(message_of<ConfigError>([&] { replicate(model, {"cpu:0", "cpu:1", "cpu:0"}); }),
            "replicate: cpu:0 is listed twice; two replicas there would only share its time. For a test, set "
            "allow_duplicate_devices");
  EXPECT_EQ(message_of<DeviceError>([&] { replicate(model, {"cpu:1", "cpu:0"}); }),
            "DataParallel: parameter 'fc1.weight' is on cpu:0, the first device is cpu:1: move the module there, "
            "model.to(\"cpu:1\")");
  EXPECT_THROW(replicate(model, {"cpu:0", "cpu:99"}), DeviceError);
}

}  // namespace
}  // namespace tandem::parallel
