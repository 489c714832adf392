#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "support/message.h"
#include "support/thread_count.h"

namespace tandem::parallel {
namespace {

using test::batch_of;
using test::cpus;
using test::difference;
using test::Mlp;
using test::seeded;

template <class M>
std::vector<Tensor> gradients(const M& model) {
  std::vector<Tensor> result;
  for (const Tensor& p : model.parameters()) {
    result.push_back(p.grad().clone());
  }
  return result;
}

void expect_close(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_LE(difference(a[i], b[i]), tolerance) << i;
  }
}

class DataParallelOn : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int devices() const { return std::get<0>(GetParam()); }
  test::ThreadCount threads_{std::get<1>(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(DevicesAndThreads, DataParallelOn,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values(1, 2, 4)));

TEST_P(DataParallelOn, EqualsOneDevice) {
  for (const std::int64_t rows : {1, 2, 3, 9, 16}) {
    const test::Batch d = batch_of(rows);
    Mlp alone = seeded<Mlp>();
    const Tensor expected = alone(d.x);
    nn::cross_entropy(expected, d.y).backward();

    Mlp model = seeded<Mlp>();
    DataParallel dp(model, cpus(devices()));
    const Tensor out = dp(d.x);
    EXPECT_EQ(out.device(), Device("cpu:0"));
    nn::cross_entropy(out, d.y).backward();
    EXPECT_LE(difference(out, expected), 1e-12);
    expect_close(gradients(model), gradients(alone), 1e-12);
  }
}

// With channels enough for all ways to compute a convolution; GroupNorm's statistics are those of a sample.
struct ConvNet : nn::Module<ConvNet> {
  nn::Conv2d conv1 = child("conv1", nn::Conv2d(2, 16, 3, {.padding = 1}));
  nn::GroupNorm norm = child("norm", nn::GroupNorm(4, 16));
  nn::Conv2d conv2 = child("conv2", nn::Conv2d(16, 24, 3, {.padding = 1}));
  nn::Conv2d conv3 = child("conv3", nn::Conv2d(24, 6, 3, {.stride = 2, .groups = 2}));
  nn::Linear fc = child("fc", nn::Linear(6, 3));
  Tensor forward(const Tensor& x) const {
    const Tensor y = max_pool2d(relu(norm(conv1(x))), 2);
    return fc(adaptive_avg_pool2d(relu(conv3(relu(conv2(y)))), 1).flatten(1));
  }
};

TEST_P(DataParallelOn, ConvolutionsEqualOneDevice) {
  for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 1e-6}, std::pair{DType::f64, 1e-12}}) {
    manual_seed(11);
    const Tensor x = randn({13, 2, 18, 14}, {.dtype = dtype});
    const Tensor y = randint(0, 3, {13});
    ConvNet alone = seeded<ConvNet>(dtype);
    nn::cross_entropy(alone(x), y).backward();
    ConvNet model = seeded<ConvNet>(dtype);
    DataParallel dp(model, cpus(devices()));
    nn::cross_entropy(dp(x), y).backward();
    expect_close(gradients(model), gradients(alone), tolerance);
  }
}

TEST_P(DataParallelOn, TrainsAsOneDevice) {
  const test::Batch d = batch_of(18, DType::f32);
  const auto train = [&](Mlp& model, const auto& forward) {
    optim::SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int step = 0; step < 50; ++step) {
      sgd.zero_grad();
      nn::cross_entropy(forward(d.x), d.y).backward();
      sgd.step();
    }
  };
  Mlp alone = seeded<Mlp>(DType::f32);
  train(alone, [&](const Tensor& x) { return alone(x); });
  Mlp model = seeded<Mlp>(DType::f32);
  DataParallel dp(model, cpus(devices()));
  train(model, [&](const Tensor& x) { return dp(x); });
  expect_close(model.parameters(), alone.parameters(), 1e-5);
}

TEST_P(DataParallelOn, GivesTheSameBitsInEveryRun) {
  const test::Batch d = batch_of(17, DType::f32);
  const auto run = [&] {
    Mlp model = seeded<Mlp>(DType::f32);
    DataParallel dp(model, cpus(devices()));
    nn::cross_entropy(dp(d.x), d.y).backward();
    return model.fc1.weight.grad().to_vector<float>();
  };
  const std::vector<float> first = run();
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(run(), first);
  }
}

TEST_P(DataParallelOn, TakesAnEmptyBatch) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(devices()));
  const Tensor out = dp(zeros({0, 6}, {.dtype = DType::f64}));
  EXPECT_EQ(out.shape(), (Shape{0, 3}));
  out.sum().backward();
  for (const double g : model.fc1.weight.grad().to_vector<double>()) {
    EXPECT_EQ(g, 0);
  }
}

TEST(DataParallel, OneDeviceGivesTheSameBits) {
  const test::Batch d = batch_of(9, DType::f32);
  Mlp alone = seeded<Mlp>(DType::f32);
  nn::cross_entropy(alone(d.x), d.y).backward();
  Mlp model = seeded<Mlp>(DType::f32);
  DataParallel dp(model, {"cpu:0"});
  nn::cross_entropy(dp(d.x), d.y).backward();
  EXPECT_EQ(model.fc1.weight.grad().to_vector<float>(), alone.fc1.weight.grad().to_vector<float>());
}

struct Summed : nn::Module<Summed> {
  nn::Linear fc = child("fc", nn::Linear(6, 3));
  Tensor forward(const Tensor& x) const { return fc(x).sum(); }
};

TEST(DataParallel, OneDeviceGivesAScalarAsTheModuleDoes) {
  const test::Batch d = batch_of(4);
  Summed model = seeded<Summed>();
  DataParallel dp(model, cpus(1), {.output_device = Device("cpu:3")});
  const Tensor out = dp(d.x);
  EXPECT_EQ(out.dim(), 0);
  EXPECT_EQ(out.device(), Device("cpu:3"));
  EXPECT_EQ(out.item(), model(d.x).item());
}

TEST(DataParallel, WithoutDevicesItIsAPlainCall) {
  if (cuda::device_count() > 0) {
    GTEST_SKIP() << "there are GPUs, which it uses";
  }
  Mlp model = seeded<Mlp>();
  DataParallel dp(model);
  EXPECT_TRUE(dp.devices().empty());
  const test::Batch d = batch_of(4);
  EXPECT_EQ(dp(d.x).to_vector<double>(), model(d.x).to_vector<double>());
}

TEST(DataParallel, WrapThenMoveAndMoveThenWrap) {
  const test::Batch d = batch_of(5);
  Mlp first = seeded<Mlp>();
  DataParallel wrapped(first, {"cpu:1", "cpu:2"});
  first.to("cpu:1");
  Mlp second = seeded<Mlp>();
  second.to("cpu:1");
  DataParallel moved(second, {"cpu:1", "cpu:2"});
  const Tensor out = wrapped(d.x);
  EXPECT_EQ(out.device(), Device("cpu:1"));
  EXPECT_EQ(out.to_vector<double>(), moved(d.x).to_vector<double>());
}

TEST(DataParallel, InputsMayBeAnywhere) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  const test::Batch d = batch_of(4);
  EXPECT_EQ(dp(d.x.to("cpu:3")).to_vector<double>(), dp(d.x).to_vector<double>());
  const Tensor wide = d.x.transpose(0, 1).contiguous().transpose(0, 1);
  EXPECT_EQ(dp(wide).to_vector<double>(), dp(d.x).to_vector<double>());
}

TEST(DataParallel, OutputsGoWhereTheyAreWanted) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2), {.output_device = Device("cpu:3")});
  const Tensor out = dp(batch_of(4).x);
  EXPECT_EQ(out.device(), Device("cpu:3"));
  out.sum().backward();
  EXPECT_TRUE(model.fc1.weight.grad().defined());
}

TEST(DataParallel, ADeviceMayBeUsedTwiceOnRequest) {
  const test::Batch d = batch_of(7);
  Mlp alone = seeded<Mlp>();
  alone(d.x).sum().backward();
  for (const std::vector<Device>& devices :
       {std::vector<Device>{"cpu:0", "cpu:0"}, std::vector<Device>{"cpu:0", "cpu:1", "cpu:1", "cpu:0"}}) {
    Mlp model = seeded<Mlp>();
    DataParallel dp(model, devices, {.allow_duplicate_devices = true});
    dp(d.x).sum().backward();
    expect_close(gradients(model), gradients(alone), 1e-12);
  }
}

struct Options {
  double scale = 1;
  bool negate = false;
};

struct Rich : nn::Module<Rich> {
  nn::Linear fc = child("fc", nn::Linear(6, 2));
  std::map<std::string, Tensor> forward(const Tensor& x, const Options& options,
                                        const std::vector<Tensor>& more) const {
    Tensor y = fc(x) * options.scale;
    for (const Tensor& m : more) {
      y = y + m;
    }
    return {{"out", options.negate ? y * -1.0 : y}, {"none", Tensor()}};
  }
};

TEST(DataParallel, PassesOptionsToAllAndCutsWhatHoldsTensors) {
  const test::Batch d = batch_of(9);
  Rich model = seeded<Rich>();
  DataParallel dp(model, cpus(4));  // 3 parts: a value that is not cut must not add a fourth replica
  const std::vector<Tensor> more{ones({9, 2}, {.dtype = DType::f64}), ones({9, 1}, {.dtype = DType::f64})};
  const auto out = dp(d.x, Options{.scale = 3, .negate = true}, more);
  const auto expected = model(d.x, Options{.scale = 3, .negate = true}, more);
  EXPECT_LE(difference(out.at("out"), expected.at("out")), 1e-12);
  EXPECT_FALSE(out.at("none").defined());
}

struct Normed : nn::Module<Normed> {
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(6));
  nn::Dropout drop = child("drop", nn::Dropout(0.5));
  Tensor forward(const Tensor& x) const { return drop(norm(x)); }
};

TEST(DataParallel, KeepsTheBuffersOfReplicaZero) {
  const test::Batch d = batch_of(8, DType::f32);
  Normed alone = seeded<Normed>(DType::f32);
  alone(d.x.narrow(0, 0, 4));
  Normed model = seeded<Normed>(DType::f32);
  DataParallel dp(model, cpus(2));
  dp(d.x);
  EXPECT_EQ(model.norm.get_buffer("running_mean").to_vector<float>(),
            alone.norm.get_buffer("running_mean").to_vector<float>());
}

struct Counts : nn::Module<Counts> {
  Buffer count = buffer("count", zeros({1}));
  std::pair<Tensor, Tensor> forward(const Tensor& x) const {
    Tensor here = count;
    here.add_(1 + replica().index);
    return {x, count};
  }
};

TEST(DataParallel, GivesTheBuffersOfEachReplica) {
  Counts model;
  DataParallel dp(model, cpus(2));
  EXPECT_EQ(dp(ones({4, 1})).second.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(model.count.item(), 1);
}

TEST(DataParallel, CutsAParameterUp) {
  Mlp model = seeded<Mlp>();
  const Parameter latent(randn({4, 6}, {.dtype = DType::f64}));
  DataParallel dp(model, cpus(2));
  dp(latent).sum().backward();
  EXPECT_EQ(latent.grad().shape(), (Shape{4, 6}));
}

TEST(DataParallel, ThreadsMayShareIt) {
  const test::Batch d = batch_of(8);
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  const Tensor expected = model(d.x).detach();
  const auto evaluate = [&] {
    const NoGradGuard no_grad;
    for (int i = 0; i < 100; ++i) {
      EXPECT_LE(difference(dp(d.x), expected), 1e-12);
    }
  };
  std::thread other(evaluate);
  evaluate();
  other.join();
}

TEST(DataParallel, TrainAndEvalReachTheReplicas) {
  Normed model = seeded<Normed>(DType::f32);
  DataParallel dp(model, cpus(2));
  const Tensor x = ones({8, 6});
  model.eval();
  EXPECT_EQ(dp(x).to_vector<float>(), model(x).to_vector<float>());
  EXPECT_GT(dp(x).to_vector<float>()[0], 0);
}

TEST(DataParallel, EvaluationMovesNoParameters) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  const NoGradGuard no_grad;
  dp(batch_of(4).x);
  dp(batch_of(4).x);
  EXPECT_EQ(dp.bytes_copied(), 0);
}

TEST(DataParallel, TheModuleIsThereAsWhatItIs) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  EXPECT_EQ(dp.module().fc1.weight.shape(), (Shape{8, 6}));
  EXPECT_EQ(dp.module().state_dict().begin()->first, "fc1.weight");
}

TEST(DataParallel, AParameterThatWasReplacedAfterWrapping) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  const test::Batch d = batch_of(4);
  dp(d.x).sum().backward();
  model.fc3 = nn::Linear(5, 7);
  model.to(DType::f64);
  const Tensor out = dp(d.x);
  EXPECT_EQ(out.shape(), (Shape{4, 7}));
  out.sum().backward();
  EXPECT_TRUE(model.fc3.weight.grad().defined());
}

TEST(DataParallel, AModuleWithoutParameters) {
  nn::ReLU relu;
  DataParallel dp(relu, cpus(2));
  EXPECT_EQ(dp(tensor({-1, 2, 3})).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 2, 3}));
}

TEST(DataParallel, InTheFunctionalForm) {
  Mlp model = seeded<Mlp>();
  const test::Batch d = batch_of(5);
  EXPECT_LE(difference(data_parallel(model, d.x, cpus(2)), model(d.x)), 1e-12);
  Rich rich = seeded<Rich>();
  const std::tuple arguments(d.x, Options{.scale = 3}, std::vector<Tensor>());
  EXPECT_LE(difference(data_parallel(rich, arguments, cpus(2)).at("out"), std::apply(rich, arguments).at("out")),
            1e-12);
}

TEST(DataParallel, GradientsAccumulateOverBackwards) {
  const test::Batch d = batch_of(6);
  Mlp alone = seeded<Mlp>();
  alone(d.x).sum().backward();
  alone(d.x * 2).sum().backward();
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(3));
  dp(d.x).sum().backward();
  dp(d.x * 2).sum().backward();
  expect_close(gradients(model), gradients(alone), 1e-12);
}

TEST(DataParallel, InputsGetTheirGradients) {
  Mlp alone = seeded<Mlp>();
  Tensor x = batch_of(5).x;
  x.requires_grad_();
  alone(x).sum().backward();
  const Tensor expected = x.grad().clone();
  x.zero_grad();
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  dp(x).sum().backward();
  EXPECT_LE(difference(x.grad(), expected), 1e-12);
}

}  // namespace
}  // namespace tandem::parallel
