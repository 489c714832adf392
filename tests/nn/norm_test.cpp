#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/batch_norm.h>
#include <tandem/nn/container.h>
#include <tandem/nn/layer_norm.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "models.h"
#include "support/message.h"

// Tests of the normalising layers. Comparisons of values and running statistics with PyTorch's are in tests/golden,
// family norm.

namespace tandem {
namespace {

using test::message_of;
using test::names_of;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Values = std::vector<double>;

Tensor matrix(const std::vector<float>& values, const Shape& sizes) { return from_data(values, sizes); }

/// The layers enc.bn and enc.norm, as messages name them inside a model.
struct Encoder : nn::Module<Encoder> {
  nn::BatchNorm1d bn = child("bn", nn::BatchNorm1d(4));
  nn::LayerNorm norm = child("norm", nn::LayerNorm(4));
  Tensor forward(const Tensor& x) const { return norm(bn(x)); }
};

struct Model : nn::Module<Model> {
  Encoder enc = child("enc", Encoder());
  Tensor forward(const Tensor& x) const { return enc(x); }
};

// ---- LayerNorm ----

TEST(LayerNorm, NormalisesEachRow) {
  nn::LayerNorm layer(2, {.eps = 0});
  const Tensor x = matrix({1, 3, -5, 5}, {2, 2});
  EXPECT_EQ(layer(x).to_vector<double>(), (Values{-1, 1, -1, 1}));
  {
    const NoGradGuard no_grad;
    layer.weight.copy_(tensor({2.0, 3.0}));
    layer.bias.copy_(tensor({0.5, -0.5}));
  }
  EXPECT_EQ(layer(x).to_vector<double>(), (Values{-1.5, 2.5, -1.5, 2.5}));
  EXPECT_EQ(layer(x[0]).to_vector<double>(), (Values{-1.5, 2.5})) << "without a batch, too";
  EXPECT_EQ(layer(zeros({0, 2})).shape(), (Shape{0, 2}));
  layer.eval();
  EXPECT_EQ(layer(x).to_vector<double>(), (Values{-1.5, 2.5, -1.5, 2.5})) << "mode makes no difference";
  EXPECT_EQ(nn::LayerNorm({2, 2}, {.eps = 0})(matrix({1, 1, 3, 3}, {2, 2})).to_vector<double>(),
            (Values{-1, -1, 1, 1}));
}

TEST(LayerNorm, HasPyTorchsNamesAndOptions) {
  const nn::LayerNorm layer({3, 2});
  EXPECT_THAT(names_of(layer.state_dict()), ElementsAre("weight", "bias"));
  EXPECT_EQ(layer.weight.to_vector<double>(), Values(6, 1));
  EXPECT_EQ(layer.bias.to_vector<double>(), Values(6, 0));
  EXPECT_EQ(layer.weight.shape(), (Shape{3, 2}));
  EXPECT_THAT(names_of(nn::LayerNorm(3, {.bias = false}).state_dict()), ElementsAre("weight"));
  const nn::LayerNorm plain(3, {.elementwise_affine = false});
  EXPECT_THAT(names_of(plain.state_dict()), IsEmpty());
  EXPECT_EQ(plain(ones({1, 3})).to_vector<double>(), (Values{0, 0, 0})) << "equal values";
  const nn::LayerNorm there(3, {.device = "cpu:1", .dtype = DType::f64});
  EXPECT_EQ(there.weight.device(), Device("cpu:1"));
  EXPECT_EQ(there.bias.dtype(), DType::f64);
}

TEST(LayerNorm, MessagesNameTheLayer) {
  const Model model;
  EXPECT_EQ(message_of<ShapeError>([&] { nn::LayerNorm(4)(zeros({5, 3})); }),
            "LayerNorm: the last dimensions of the input [5, 3] must be the normalized_shape [4]");
  EXPECT_EQ(message_of<ShapeError>([&] { model.enc.norm(zeros({5, 3})); }),
            "LayerNorm 'enc.norm': the last dimensions of the input [5, 3] must be the normalized_shape [4]");
  EXPECT_EQ(message_of<DTypeError>([&] { model.enc.norm(zeros({5, 4}, {.dtype = DType::bf16})); }),
            "LayerNorm 'enc.norm': input is bf16, weight f32. Convert the input: x.to(DType::f32)");
  EXPECT_EQ(message_of<ConfigError>([] { nn::LayerNorm(Shape{}); }),
            "LayerNorm: the normalized_shape must have dimensions, none negative, got []");
  EXPECT_EQ(message_of<ConfigError>([] { nn::LayerNorm(-3); }),
            "LayerNorm: the normalized_shape must have dimensions, none negative, got [-3]");
}

// ---- BatchNorm1d ----

TEST(BatchNorm1d, NormalisesByTheBatchInTrainingAndByTheRunningStatisticsElse) {
  nn::BatchNorm1d layer(2, {.eps = 0, .momentum = 0.5});
  const Tensor x = matrix({1, -5, 3, 5}, {2, 2});
  EXPECT_EQ(layer(x).to_vector<double>(), (Values{-1, -1, 1, 1}));
  EXPECT_EQ(layer.running_mean.to_vector<double>(), (Values{1, 0}));
  EXPECT_EQ(layer.running_var.to_vector<double>(), (Values{1.5, 25.5})) << "unbiased: of 2 and 50";
  EXPECT_EQ(layer.num_batches_tracked.item<int>(), 1);
  EXPECT_FALSE(layer.running_mean.requires_grad());
  layer.eval();
  {
    const NoGradGuard no_grad;
    layer.running_var.copy_(tensor({4.0, 25.0}));
  }
  EXPECT_EQ(layer(x).to_vector<double>(), (Values{0, -1, 1, 1}));
  EXPECT_EQ(layer(x[0].reshape({1, 2})).to_vector<double>(), (Values{0, -1})) << "one row will do";
  EXPECT_EQ(layer.num_batches_tracked.item<int>(), 1);
  EXPECT_EQ(layer.running_mean.to_vector<double>(), (Values{1, 0}));
}

TEST(BatchNorm1d, TakesLengthsToo) {
  const nn::BatchNorm1d layer(2, {.eps = 0});
  EXPECT_EQ(layer(matrix({1, 3, -5, 5}, {1, 2, 2})).to_vector<double>(), (Values{-1, 1, -1, 1}));
  EXPECT_EQ(layer(zeros({0, 2, 3})).shape(), (Shape{0, 2, 3}));
}

TEST(BatchNorm1d, HasPyTorchsNamesAndOptions) {
  const nn::BatchNorm1d layer(3);
  EXPECT_THAT(names_of(layer.state_dict()),
              ElementsAre("weight", "bias", "running_mean", "running_var", "num_batches_tracked"));
  EXPECT_THAT(names_of(layer.named_parameters()), ElementsAre("weight", "bias"));
  EXPECT_EQ(layer.weight.to_vector<double>(), (Values{1, 1, 1}));
  EXPECT_EQ(layer.bias.to_vector<double>(), (Values{0, 0, 0}));
  EXPECT_EQ(layer.running_mean.to_vector<double>(), (Values{0, 0, 0}));
  EXPECT_EQ(layer.running_var.to_vector<double>(), (Values{1, 1, 1}));
  EXPECT_EQ(layer.num_batches_tracked.dtype(), DType::i64);
  EXPECT_EQ(layer.num_batches_tracked.dim(), 0);
  EXPECT_THAT(names_of(nn::BatchNorm1d(3, {.affine = false}).state_dict()),
              ElementsAre("running_mean", "running_var", "num_batches_tracked"));
  const nn::BatchNorm1d there(3, {.device = "cpu:1", .dtype = DType::f64});
  EXPECT_EQ(there.running_var.device(), Device("cpu:1"));
  EXPECT_EQ(there.num_batches_tracked.device(), Device("cpu:1"));
  EXPECT_EQ(there.running_mean.dtype(), DType::f64);
  EXPECT_EQ(message_of<ConfigError>([] { nn::BatchNorm1d(-1); }),
            "BatchNorm1d: num_features must not be negative, got -1");
}

TEST(BatchNorm1d, WithoutRunningStatisticsAlwaysUsesTheBatch) {
  nn::BatchNorm1d layer(2, {.eps = 0, .track_running_stats = false});
  EXPECT_THAT(names_of(layer.state_dict()), ElementsAre("weight", "bias"));
  const Tensor x = matrix({1, -5, 3, 5}, {2, 2});
  EXPECT_EQ(layer(x).to_vector<double>(), (Values{-1, -1, 1, 1}));
  layer.eval();
  EXPECT_EQ(layer(x).to_vector<double>(), (Values{-1, -1, 1, 1}));
}

TEST(BatchNorm1d, WithoutMomentumAllBatchesCountAlike) {
  const nn::BatchNorm1d layer(1, {.momentum = std::nullopt});
  for (const float mean : {10.0F, 20.0F, 60.0F}) {
    layer(matrix({mean - 1, mean + 1}, {2, 1}));
  }
  EXPECT_NEAR(layer.running_mean.item(), 30, 1e-5);
  EXPECT_NEAR(layer.running_var.item(), 2, 1e-6);
  EXPECT_EQ(layer.num_batches_tracked.item<int>(), 3);
}

TEST(BatchNorm1d, StateTravels) {
  nn::BatchNorm1d trained(2);
  trained(randn({8, 2}));
  nn::BatchNorm1d loaded(2);
  loaded.load_state_dict(trained.state_dict());
  EXPECT_EQ(loaded.num_batches_tracked.item<int>(), 1);
  trained.eval();
  loaded.eval();
  const Tensor x = randn({4, 2});
  EXPECT_EQ(loaded(x).to_vector<double>(), trained(x).to_vector<double>());
}

TEST(BatchNorm1d, AReplicaHasStatisticsOfItsOwn) {
  const nn::BatchNorm1d layer(1, {.momentum = 1.0});
  core::Frame frame;
  const Tensor mean = zeros({1});
  const Tensor var = ones({1});
  const Tensor count = zeros({}, {.dtype = DType::i64});
  frame.bind(layer.running_mean, mean);
  frame.bind(layer.running_var, var);
  frame.bind(layer.num_batches_tracked, count);
  {
    const core::FrameScope scope(frame);
    layer(matrix({4, 6}, {2, 1}));
  }
  EXPECT_EQ(mean.item(), 5);
  EXPECT_EQ(var.item(), 2);
  EXPECT_EQ(count.item<int>(), 1);
  EXPECT_EQ(layer.running_mean.item(), 0);
  EXPECT_EQ(layer.num_batches_tracked.item<int>(), 0);
}

TEST(BatchNorm1d, MessagesNameTheLayer) {
  const Model model;
  EXPECT_EQ(message_of<ShapeError>([&] { model.enc(zeros({5, 3})); }),
            "BatchNorm1d 'enc.bn': input [5, 3] has 3 features, layer expects 4");
  EXPECT_EQ(message_of<ShapeError>([&] { model.enc(zeros({4})); }),
            "BatchNorm1d 'enc.bn': the input must be [batch, features] or [batch, features, length], got [4]");
  EXPECT_THROW(model.enc(zeros({4, 4, 4, 4})), ShapeError);
  EXPECT_EQ(
      message_of<ValueError>([&] { model.enc(zeros({1, 4})); }),
      "BatchNorm1d 'enc.bn': batch_norm: training needs more than one value per channel, got the input [1, 4]; use "
      "a larger batch, or evaluation mode");
  EXPECT_EQ(model.enc.bn.num_batches_tracked.item<int>(), 0) << "a failed call counts for nothing";
  EXPECT_EQ(model.enc.bn.running_mean.to_vector<double>(), Values(4, 0.0));
}

// ---- both layers ----

TEST(NormLayers, WorkInSixteenBits) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    nn::Sequential net(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::LayerNorm(8));
    nn::Sequential wide(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::LayerNorm(8));
    net.to(dtype);
    StateDict weights;
    for (const auto& [name, value] : net.state_dict()) {
      weights.set(name, value.dtype() == dtype ? value.to(DType::f32) : value);
    }
    wide.load_state_dict(weights);
    const Tensor x = randn({32, 6}).to(dtype);
    const Tensor y = net(x);
    EXPECT_EQ(y.dtype(), dtype);
    const Values got = y.to_vector<double>();
    const Values expected = wide(x.to(DType::f32)).to_vector<double>();
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], expected[i], 0.05);
    }
    y.sum().backward();
    for (const Tensor& p : net.parameters()) {
      EXPECT_EQ(p.grad().dtype(), dtype);
    }
    EXPECT_EQ(net.buffers()[0].dtype(), dtype);
    EXPECT_EQ(net.buffers()[2].dtype(), DType::i64);
  }
}

TEST(NormLayers, AreTrained) {
  manual_seed(3);
  nn::Sequential net(nn::BatchNorm1d(3), nn::Linear(3, 8), nn::LayerNorm(8), nn::Linear(8, 1));
  optim::SGD sgd(net.parameters(), {.lr = 0.05});
  const Tensor x = randn({64, 3}) * 100 + 1000;  // a range that a Linear trains badly on
  const Tensor target = ((x - 1000) / 100).sum({1}, true);
  double first = 0;
  double last = 0;
  for (int step = 0; step < 200; ++step) {
    sgd.zero_grad();
    const Tensor loss = mse_loss(net(x), target);
    last = loss.item();
    first = step == 0 ? last : first;
    loss.backward();
    sgd.step();
  }
  EXPECT_LT(last, 0.1 * first);
  net.eval();
  EXPECT_NEAR(mse_loss(net(x), target).item(), last, 0.1 * first) << "by then the running statistics are the data's";
}

}  // namespace
}  // namespace tandem
