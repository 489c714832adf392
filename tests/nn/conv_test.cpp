#include <tandem/nn/conv.h>

#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/nn/batch_norm.h>
#include <tandem/nn/container.h>
#include <tandem/nn/group_norm.h>
#include <tandem/nn/pool.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "models.h"
#include "support/message.h"

// Convolutions, poolings and BatchNorm2d as modules. Values are compared with PyTorch's in tests/golden, family
// spatial.

namespace tandem {
namespace {

using test::message_of;
using test::names_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The layers of a small net for digits.
struct LeNet : nn::Module<LeNet> {
  nn::Conv2d conv1 = child("conv1", nn::Conv2d(1, 6, 5, {.padding = 2}));
  nn::Conv2d conv2 = child("conv2", nn::Conv2d(6, 16, 5));
  nn::Linear fc = child("fc", nn::Linear(400, 10));
  Tensor forward(const Tensor& x) const {
    return fc(max_pool2d(relu(conv2(max_pool2d(relu(conv1(x)), 2))), 2).flatten(1));
  }
};

TEST(Conv2d, ModelHasPyTorchsNamesAndLayouts) {
  const LeNet model;
  EXPECT_THAT(names_of(model.named_parameters()),
              ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc.weight", "fc.bias"));
  EXPECT_EQ(model.conv2.weight.shape(), (Shape{16, 6, 5, 5}));
  EXPECT_EQ(model(zeros({3, 1, 28, 28})).shape(), (Shape{3, 10}));
  std::ostringstream printed;
  printed << model;
  EXPECT_THAT(printed.str(),
              HasSubstr("(conv1): Conv2d(1, 6, kernel_size=(5, 5), stride=(1, 1), padding=(2, 2), dilation=(1, 1), "
                        "groups=1, bias=true)"));
}

TEST(Conv2d, StartsUniformOnPyTorchsInterval) {
  const nn::Conv2d layer(12, 40, {3, 5}, {.groups = 2});
  EXPECT_EQ(layer.weight.shape(), (Shape{40, 6, 3, 5}));
  const double bound = 1 / std::sqrt(6.0 * 15);
  for (const Tensor& values : {Tensor(layer.weight), Tensor(layer.bias)}) {
    const double largest = values.abs().amax({}, false).item<double>();
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, 0.9 * bound);
  }
}

TEST(Conv2d, TrainsInASequential) {
  manual_seed(3);
  nn::Sequential model(nn::Conv2d(1, 4, 3, {.padding = "same", .bias = false}), nn::BatchNorm2d(4), nn::ReLU(),
                       nn::MaxPool2d(2), nn::Conv2d(4, 8, 3, {.stride = 2, .padding = 1}), nn::ReLU(),
                       nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(8, 2));
  optim::SGD sgd(model.parameters(), {.lr = 0.2, .momentum = 0.9});
  const Tensor x = randn({16, 1, 8, 8});
  const Tensor y = (x.slice(-1, 0, 4).sum({1, 2, 3}) > x.slice(-1, 4, 8).sum({1, 2, 3})).to(DType::i64);
  double first = 0;
  double last = 0;
  for (int step = 0; step < 60; ++step) {
    const Tensor loss = cross_entropy(model(x), y);
    last = loss.item<double>();
    first = step == 0 ? last : first;
    sgd.zero_grad();
    loss.backward();
    sgd.step();
  }
  EXPECT_LT(last, 0.2 * first);
}

TEST(Conv1d, TransposedUndoesTheSizes) {
  const nn::Conv1d down(2, 6, 4, {.stride = 2, .padding = 1});
  const nn::ConvTranspose1d up(6, 2, 4, {.stride = 2, .padding = 1});
  const Tensor x = randn({3, 2, 10});
  EXPECT_EQ(down(x).shape(), (Shape{3, 6, 5}));
  EXPECT_EQ(up(down(x)).shape(), x.shape());
  const nn::Conv2d down2(2, 6, 3, {.stride = 2, .padding = 1});
  const nn::ConvTranspose2d up2(6, 4, 3, {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2});
  EXPECT_EQ(up2(down2(randn({3, 2, 8, 6}))).shape(), (Shape{3, 4, 8, 6}));
  EXPECT_EQ(up2.weight.shape(), (Shape{6, 2, 3, 3}));
}

TEST(Conv2d, MessagesNameTheLayer) {
  const LeNet model;
  EXPECT_EQ(message_of<ShapeError>([&] { model(zeros({2, 3, 28, 28})); }),
            "Conv2d 'conv1': input [2, 3, 28, 28] has 3 channels, the weight [6, 1, 5, 5] with 1 group expects 1");
  EXPECT_EQ(message_of<ConfigError>([] { nn::Conv2d(4, 6, 3, {.groups = 4}); }),
            "Conv2d: 4 and 6 channels cannot be divided into 4 groups");
  EXPECT_EQ(message_of<ConfigError>([] { nn::Conv2d(4, 6, 0); }),
            "Conv2d: the kernel_size must be at least 1, got (0, 0)");
  EXPECT_EQ(message_of<ConfigError>([] { nn::ConvTranspose1d(-4, 6, 2); }),
            "ConvTranspose1d: channels must not be negative, got -4 and 6");
}

TEST(GroupNorm, LayersHavePyTorchsParameters) {
  const nn::GroupNorm group(2, 6);
  EXPECT_THAT(names_of(group.named_parameters()), ElementsAre("weight", "bias"));
  EXPECT_EQ(group(randn({3, 6, 4, 4})).shape(), (Shape{3, 6, 4, 4}));
  EXPECT_TRUE(nn::InstanceNorm2d(6).parameters().empty());
  EXPECT_TRUE(nn::InstanceNorm2d(6, {.eps = 1e-3}).parameters().empty());
  EXPECT_EQ(nn::InstanceNorm2d(6, {.affine = true}).weight.shape(), (Shape{6}));
  EXPECT_EQ(nn::RMSNorm(6)(randn({2, 6})).shape(), (Shape{2, 6}));
  EXPECT_EQ(nn::Upsample(2)(randn({1, 2, 3, 4})).shape(), (Shape{1, 2, 6, 8}));
  EXPECT_EQ(message_of<ConfigError>([] { nn::GroupNorm(4, 6); }),
            "GroupNorm: 6 channels cannot be divided into 4 groups");
  EXPECT_EQ(message_of<ShapeError>([&] { group(randn({3, 4, 4, 4})); }),
            "GroupNorm: input [3, 4, 4, 4] has 4 channels, layer expects 6");
}

TEST(BatchNorm2d, NormalisesEachChannelOverImagesAndPlaces) {
  nn::BatchNorm2d layer(2);
  const Tensor x = randn({5, 2, 3, 4}) * 3 + 1;
  const Tensor y = layer(x);
  EXPECT_LT(y.mean({0, 2, 3}).abs().amax({}, false).item<double>(), 1e-5);
  EXPECT_NEAR(y.var({0, 2, 3}, 0).amax({}, false).item<double>(), 1, 1e-3);
  layer.eval();
  EXPECT_EQ(layer(x[0].unsqueeze(0)).shape(), (Shape{1, 2, 3, 4}));
  EXPECT_THAT(names_of(layer.named_parameters()), ElementsAre("weight", "bias"));
  EXPECT_EQ(message_of<ShapeError>([&] { layer(randn({5, 2})); }),
            "BatchNorm2d: the input must be [batch, features, height, width], got [5, 2]");
}

}  // namespace
}  // namespace tandem
