#include <tandem/autograd/autocast.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "support/gpu.h"
#include "support/message.h"

namespace tandem {
namespace {

constexpr DType kHalves[] = {DType::bf16, DType::f16};

TEST(Autocast, ProductsAndConvolutionsComputeIn16Bits) {
  const Tensor x = randn({3, 4});
  const Tensor w = randn({5, 4});
  const Tensor image = randn({2, 3, 6, 6});
  const Tensor window = randn({4, 3, 3, 3});
  for (const DType dtype : kHalves) {
    const AutocastScope autocast(dtype);
    EXPECT_EQ(autocast_dtype(), dtype);
    EXPECT_EQ(linear(x, w).dtype(), dtype);
    EXPECT_EQ(linear_relu(x, w, zeros({5})).dtype(), dtype);
    EXPECT_EQ(matmul(x, w.t()).dtype(), dtype);
    const DType of_convolutions = image.device().type == DeviceType::cpu ? DType::f32 : dtype;
    EXPECT_EQ(conv2d(image, window).dtype(), of_convolutions);
    EXPECT_EQ(conv2d(image.to(dtype), window).dtype(), of_convolutions);
    EXPECT_EQ(conv2d(image, window.to(dtype)).dtype(), dtype);
    EXPECT_EQ(conv_transpose2d(image, randn({3, 2, 2, 2})).dtype(), of_convolutions);
    EXPECT_EQ(conv1d(randn({2, 3, 9}), randn({4, 3, 3})).dtype(), of_convolutions);
    // Also those of the other 16-bit type.
    EXPECT_EQ(matmul(x.to(DType::bf16), w.t().to(DType::f16)).dtype(), dtype);
  }
  EXPECT_EQ(autocast_dtype(), std::nullopt);
  EXPECT_EQ(linear(x, w).dtype(), DType::f32);
}

TEST(Autocast, AProductIsThatOfTheConvertedArguments) {
  manual_seed(1);
  const Tensor x = randn({7, 4});
  const Tensor w = randn({5, 4});
  const Tensor b = randn({5});
  const Tensor expected = linear(x.to(DType::bf16), w.to(DType::bf16), b.to(DType::bf16));
  const AutocastScope autocast(DType::bf16);
  EXPECT_EQ(linear(x, w, b).to_vector<BFloat16>(), expected.to_vector<BFloat16>());
}

TEST(Autocast, LossesNormsAndLargeRangesComputeInF32) {
  for (const DType dtype : kHalves) {
    const AutocastScope autocast(dtype);
    const Tensor x = randn({4, 6}).abs().to(dtype);
    const Tensor image = randn({2, 4, 3, 3}).to(dtype);
    const Tensor target = randint(0, 6, {4});
    const std::vector<std::pair<const char*, Tensor>> results{
        {"softmax", softmax(x, 1)},
        {"log_softmax", log_softmax(x, 1)},
        {"cross_entropy", cross_entropy(x, target)},
        {"cross_entropy of probabilities", cross_entropy(x, softmax(x, 1))},
        {"nll_loss", nll_loss(x, target)},
        {"mse_loss", mse_loss(x, x)},
        {"l1_loss", l1_loss(x, x.to(DType::f32))},
        {"huber_loss", huber_loss(x, x)},
        {"binary_cross_entropy", binary_cross_entropy(x.sigmoid(), zeros({4, 6}))},
        {"with logits", binary_cross_entropy_with_logits(x, zeros({4, 6}))},
        {"layer_norm", layer_norm(x, {6}, ones({6}), zeros({6}))},
        {"group_norm", group_norm(image, 2, ones({4}), zeros({4}))},
        {"rms_norm", rms_norm(x, {6}, ones({6}))},
        {"batch_norm", batch_norm(image, zeros({4}), ones({4}), ones({4}), zeros({4}), true)},
        {"sum", x.sum()},
        {"sum of rows", x.sum({1})},
        {"cumsum", x.cumsum(0)},
        {"norm", x.norm()},
        {"exp", x.exp()},
        {"log", x.log()},
        {"rsqrt", x.rsqrt()},
        {"pow", x.pow(2)},
        {"softplus", softplus(x)},
    };
    for (const auto& [name, result] : results) {
      EXPECT_EQ(result.dtype(), DType::f32) << name;
    }
    const std::vector<std::pair<const char*, Tensor>> kept{
        {"relu", relu(x)}, {"mean", x.mean()}, {"x + x", x + x}, {"max_pool2d", max_pool2d(image, 2)}};
    for (const auto& [name, result] : kept) {
      EXPECT_EQ(result.dtype(), dtype) << name;
    }
    EXPECT_EQ((x + ones({4, 6})).dtype(), DType::f32);
    // A batch norm in 16 bits keeps them.
    const Tensor half = ones({4}).to(dtype);
    EXPECT_EQ(batch_norm(image, zeros({4}).to(dtype), half, half, half.clone(), true).dtype(), dtype);
  }
}

TEST(Autocast, LeavesF64AndIntegersAlone) {
  const AutocastScope autocast;
  const Tensor x = ones({2, 3}, {.dtype = DType::f64});
  EXPECT_EQ(linear(x, x).dtype(), DType::f64);
  EXPECT_EQ(softmax(x, 1).dtype(), DType::f64);
  EXPECT_EQ(ones({3}, {.dtype = DType::i64}).sum().dtype(), DType::i64);
}

TEST(Autocast, GradientsOfParametersAreInF32) {
  manual_seed(3);
  nn::Linear layer(6, 4);
  const Tensor x = randn({5, 6});
  {
    const AutocastScope autocast;
    layer(x).sum().backward();
  }
  ASSERT_EQ(layer.weight.grad().dtype(), DType::f32);
  const std::vector<float> got = layer.weight.grad().to_vector<float>();
  layer.zero_grad();
  layer(x).sum().backward();
  const std::vector<float> exact = layer.weight.grad().to_vector<float>();
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], exact[i], 0.02 * std::abs(exact[i]) + 0.02);
  }
}

TEST(Autocast, AParameterIsConvertedOnceInAScope) {
  nn::Linear layer(4, 4);
  for (const bool cache : {true, false}) {
    const AutocastScope autocast(DType::bf16, {.cache_enabled = cache});
    const Tensor first = autograd::lowered(layer.weight);
    const Tensor second = autograd::lowered(layer.weight);
    EXPECT_EQ(first.raw().data() == second.raw().data(), cache);
  }
}

TEST(Autocast, AChangedParameterIsConvertedAgain) {
  nn::Linear layer(3, 1, {.bias = false});
  const Tensor x = ones({1, 3});
  optim::SGD sgd(layer.parameters(), {.lr = 1});
  const AutocastScope autocast;
  layer(x).sum().backward();
  sgd.step();
  const double expected = layer.weight.to(DType::bf16).to(DType::f64).sum().item<double>();
  EXPECT_NEAR(layer(x).to(DType::f64).item<double>(), expected, 0.02);
}

TEST(Autocast, AParameterConvertedWithoutGradientsHasThemLater) {
  nn::Linear layer(3, 2);
  const Tensor x = ones({1, 3});
  const AutocastScope autocast;
  {
    const NoGradGuard no_grad;
    static_cast<void>(layer(x));
  }
  layer(x).sum().backward();
  EXPECT_TRUE(layer.weight.grad().defined());
}

TEST(Autocast, SeveralBackwardPassesMayShareAConversion) {
  nn::Linear layer(3, 2);
  const AutocastScope autocast;
  const Tensor first = layer(ones({1, 3})).sum();
  const Tensor second = layer(ones({1, 3})).sum();
  first.backward();
  second.backward();
  for (const float g : layer.weight.grad().to_vector<float>()) {
    EXPECT_EQ(g, 2);
  }
}

TEST(Autocast, AParameterThatWasMovedIsConvertedAgain) {
  nn::Linear layer(3, 1, {.bias = false});
  const Tensor x = ones({1, 3});
  const AutocastScope autocast;
  static_cast<void>(layer(x));
  layer.to(DType::f64);
  layer.to(DType::f32);
  {
    const NoGradGuard no_grad;
    layer.weight.fill_(5);
  }
  EXPECT_EQ(layer(x).item<float>(), 15);
  layer.to("cpu:1");
  EXPECT_EQ(layer(x.to("cpu:1")).item<float>(), 15);
}

TEST(Autocast, WeightsOfLossesMayHave16Bits) {
  const AutocastScope autocast;
  const Tensor x = randn({4, 3}).to(DType::bf16);
  const Tensor weight = ones({3}).to(DType::bf16);
  const Tensor target = randint(0, 3, {4});
  EXPECT_EQ(cross_entropy(x, target, {.weight = weight}).dtype(), DType::f32);
  EXPECT_EQ(nll_loss(log_softmax(x, 1), target, {.weight = weight}).dtype(), DType::f32);
  EXPECT_EQ(binary_cross_entropy_with_logits(x, ones({4, 3}), {.weight = weight}).dtype(), DType::f32);
  EXPECT_EQ((1 / x).dtype(), DType::f32);
}

TEST(Autocast, ACapturedStepFollowsTheScopeAroundItsCall) {
  nn::Linear layer(4, 4);
  const Tensor x = ones({2, 4});
  auto step = graph::capture([&](Tensor in) { return layer(in); });
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 6; ++i) {
      ASSERT_EQ(step(x).dtype(), DType::f32);
    }
    const AutocastScope autocast;
    for (int i = 0; i < 6; ++i) {
      ASSERT_EQ(step(x).dtype(), DType::bf16);
    }
  }
}

TEST(Autocast, ScopesNest) {
  const Tensor x = ones({2, 2});
  const AutocastScope outer(DType::bf16);
  {
    const AutocastScope off(DType::bf16, {.enabled = false});
    EXPECT_EQ(autocast_dtype(), std::nullopt);
    EXPECT_EQ(linear(x, x).dtype(), DType::f32);
    const AutocastScope inner(DType::f16);
    EXPECT_EQ(linear(x, x).dtype(), DType::f16);
  }
  EXPECT_EQ(linear(x, x).dtype(), DType::bf16);
}

TEST(Autocast, TakesOnly16BitTypes) {
  EXPECT_EQ(test::message_of<DTypeError>([] { const AutocastScope autocast(DType::f32); }),
            "AutocastScope: expected bf16 or f16, got f32; without a scope, f32 stays f32");
}

struct Net : nn::Module<Net> {
  nn::Conv2d conv = child("conv", nn::Conv2d(1, 8, 3, {.padding = 1}));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(8));
  nn::Linear fc = child("fc", nn::Linear(8 * 16, 3));
  Tensor forward(const Tensor& x) const { return fc(max_pool2d(relu(norm(conv(x))), 2).flatten(1)); }
};

// Losses of some steps: by `forward`, which takes a batch to its loss.
std::vector<float> losses(Net& net, const std::function<Tensor(const Tensor&, const Tensor&)>& step) {
  manual_seed(9);
  const Tensor x = randn({12, 1, 8, 8});
  const Tensor y = randint(0, 3, {12});
  optim::SGD sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<float> all;
  for (int i = 0; i < 12; ++i) {
    sgd.zero_grad();
    const Tensor loss = step(x, y);
    loss.backward();
    sgd.step();
    all.push_back(loss.item<float>());
  }
  return all;
}

Net seeded() {
  manual_seed(4);
  return {};
}

TEST(Autocast, TrainsLikeF32) {
  Net plain = seeded();
  const std::vector<float> expected =
      losses(plain, [&](const Tensor& x, const Tensor& y) { return nn::cross_entropy(plain(x), y); });
  Net net = seeded();
  const std::vector<float> got = losses(net, [&](const Tensor& x, const Tensor& y) {
    const AutocastScope autocast;
    return nn::cross_entropy(net(x), y);
  });
  EXPECT_LT(got.back(), got.front() / 2);
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 0.03 + 0.05 * expected[i]) << i;
  }
}

TEST(Autocast, CapturedStepsConvertTheParametersOfEachStep) {
  manual_seed(9);
  const Tensor x = randn({12, 1, 8, 8});
  const Tensor y = randint(0, 3, {12});
  const auto train = [&](bool captured, bool around) {
    Net net = seeded();
    optim::SGD sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    const auto body = [&](Tensor in, Tensor out) {
      std::optional<AutocastScope> autocast;
      if (!around) {
        autocast.emplace();
      }
      sgd.zero_grad();
      Tensor loss = nn::cross_entropy(net(in), out);
      loss.backward();
      sgd.step();
      return loss;
    };
    auto step = graph::capture(body);
    std::optional<AutocastScope> scope;
    if (around) {
      scope.emplace();
    }
    std::vector<float> all;
    for (int i = 0; i < 8; ++i) {
      all.push_back((captured ? step(x, y) : body(x, y)).item<float>());
    }
    return all;
  };
  const std::vector<float> expected = train(false, false);
  EXPECT_EQ(train(true, false), expected);
  EXPECT_EQ(train(false, true), expected);
  EXPECT_EQ(train(true, true), expected);
}

TEST(Autocast, ReplicasAreInTheScope) {
  TANDEM_SKIP_ON_GPU("its replicas are on parts of the CPU");
  manual_seed(9);
  const Tensor x = randn({12, 1, 8, 8});
  Net net = seeded();
  net.eval();
  parallel::DataParallel dp(net, {"cpu:0", "cpu:1", "cpu:2"});
  const AutocastScope autocast;
  const Tensor expected = net(x);
  const Tensor got = dp(x);
  EXPECT_EQ(got.dtype(), DType::bf16);
  EXPECT_EQ(got.to_vector<BFloat16>(), expected.to_vector<BFloat16>());
  got.sum().backward();
  EXPECT_EQ(net.conv.weight.grad().dtype(), DType::f32);
}

TEST(Autocast, ScaledLossesInF16LeaveOutStepsWithInfinities) {
  Net net = seeded();
  optim::SGD sgd(net.parameters(), {.lr = 0.1});
  optim::GradScaler scaler({.init_scale = 1e10});
  const std::vector<float> before = net.fc.weight.to_vector<float>();
  manual_seed(9);
  const Tensor x = randn({12, 1, 8, 8});
  const Tensor y = randint(0, 3, {12});
  const auto step = [&] {
    sgd.zero_grad();
    Tensor loss;
    {
      const AutocastScope autocast(DType::f16);
      loss = nn::cross_entropy(net(x), y);
    }
    scaler.scale(loss).backward();
    scaler.step(sgd);
    scaler.update();
  };
  step();
  EXPECT_EQ(net.fc.weight.to_vector<float>(), before);
  for (int i = 0; i < 30; ++i) {  // the scale falls until the gradients are in range
    step();
  }
  EXPECT_NE(net.fc.weight.to_vector<float>(), before);
}

}  // namespace
}  // namespace tandem
