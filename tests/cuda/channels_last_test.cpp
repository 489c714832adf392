#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/kernels/kernel_library.h>
#include <tandem/tandem.h>

#include "cuda/gpu_test.h"

#if __has_include("emulated_gpu.h")
#include "emulated_gpu.h"
#endif

// Images on GPUs whose channels lie side by side.

namespace tandem {
namespace {

constexpr MemoryFormat kRows = MemoryFormat::contiguous;
constexpr MemoryFormat kLast = MemoryFormat::channels_last;

bool is_last(const Tensor& x) { return x.is_contiguous(kLast); }

Tensor images(const Shape& sizes, DType dtype = DType::f32, std::uint64_t seed = 1) {
  Generator generator(seed);
  const GeneratorScope scope(generator);
  return randn(sizes).to(dtype).to("cuda:0");
}

const void* place(const Tensor& x) { return x.raw().data(); }

double distance(const Tensor& a, const Tensor& b) {
  return a.numel() == 0 ? 0 : (a.to("cpu").to(DType::f64) - b.to("cpu").to(DType::f64)).abs().max().item();
}

TEST(ChannelsLast, IsAnOrderOfTheSameElements) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor x = images({2, 3, 4, 5});
  const Tensor y = x.contiguous(kLast);
  EXPECT_TRUE(is_last(y));
  EXPECT_FALSE(y.is_contiguous());
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_EQ(y.strides(), (Shape{60, 1, 15, 3}));
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(place(y.contiguous(kLast)), place(y));
  EXPECT_TRUE(y.contiguous().is_contiguous());
  EXPECT_TRUE(test::same_bits(y.contiguous(), x));
  EXPECT_TRUE(y.to("cpu").is_contiguous());
  EXPECT_TRUE(test::same_bits(y.to("cpu"), x));
  EXPECT_TRUE(is_last(y.clone()));
  EXPECT_TRUE(is_last(y.to(DType::f16)));
  EXPECT_TRUE(test::same_bits(y.to(DType::f16), x.to(DType::f16)));
  EXPECT_TRUE(is_last(y.detach()));
  EXPECT_TRUE(is_last(y.narrow(0, 1, 1)));
  EXPECT_TRUE(is_last(y[1].unsqueeze(0)));
  EXPECT_FALSE(is_last(y.narrow(1, 0, 2)));
  EXPECT_FALSE(is_last(y.narrow(2, 0, 2)));
  EXPECT_FALSE(is_last(y.permute({0, 2, 3, 1})));
  EXPECT_TRUE(y.permute({0, 2, 3, 1}).is_contiguous());
  EXPECT_TRUE(test::same_bits(y.flatten(1), x.flatten(1)));
  EXPECT_TRUE(test::same_bits(y.transpose(2, 3), x.transpose(2, 3)));
  EXPECT_LE(distance(y.sum({0, 2}), x.sum({0, 2})), 1e-5);
  Tensor written = y.clone();
  written.copy_(x * 2);
  EXPECT_TRUE(is_last(written));
  EXPECT_TRUE(test::same_bits(written, x * 2));
  written.copy_(x.to("cpu"));
  EXPECT_TRUE(test::same_bits(written, x));
}

// One channel, one pixel, or none at all: the strides of both orders are equal or say nothing.
TEST(ChannelsLast, IsATagWhereStridesFitBothOrders) {
  TANDEM_NEEDS_GPUS(1);
  for (const Shape& sizes : {Shape{2, 1, 4, 5}, Shape{2, 3, 1, 1}, Shape{0, 3, 2, 2}, Shape{1, 1, 1, 1}}) {
    const Tensor x = images(sizes);
    EXPECT_FALSE(is_last(x)) << sizes;
    const Tensor y = x.contiguous(kLast);
    EXPECT_TRUE(is_last(y)) << sizes;
    EXPECT_TRUE(is_last(y.relu())) << sizes;
    EXPECT_FALSE(is_last(y.contiguous())) << sizes;
    EXPECT_TRUE(test::same_bits(x, y));
  }
  EXPECT_FALSE(is_last(images({2, 3, 4})));
  EXPECT_EQ(test::message_of<ShapeError>([] { images({2, 3, 4}).contiguous(kLast); }),
            "contiguous: channels_last is for images [batch, channels, height, width], got [2, 3, 4]");
}

TEST(ChannelsLast, CopiesNothingThatLiesSo) {
  TANDEM_NEEDS_GPUS(1);
  Tensor nhwc = images({2, 4, 5, 3}).requires_grad_();
  const Tensor view = nhwc.permute({0, 3, 1, 2});
  EXPECT_FALSE(is_last(view));
  const Tensor x = view.contiguous(kLast);
  EXPECT_TRUE(is_last(x));
  EXPECT_EQ(place(x), place(nhwc));
  (x * x).sum().backward();
  EXPECT_TRUE(test::same_bits(nhwc.grad(), nhwc * 2));
  const Tensor pixels = images({2, 3, 1, 1}).contiguous(kLast);
  EXPECT_EQ(place(pixels.contiguous()), place(pixels));
}

using Op = std::function<Tensor(const Tensor& x, const std::vector<Tensor>& others)>;

struct Outcome {
  Tensor result;
  std::vector<Tensor> gradients;  // of x and the others
};

// The gradient of the result is in that format, too.
Outcome outcome(const Op& op, const Tensor& x, const std::vector<Tensor>& others, MemoryFormat format) {
  std::vector<Tensor> leaves{x.detach().clone().requires_grad_()};
  for (const Tensor& other : others) {
    leaves.push_back(other.detach().clone().requires_grad_());
  }
  Tensor result = op(leaves[0].contiguous(format), std::vector<Tensor>(leaves.begin() + 1, leaves.end()));
  Tensor weights = images(result.shape(), result.dtype(), 7);
  weights = result.dim() == 4 ? weights.contiguous(format) : weights;
  result.backward(weights);
  Outcome found{result.detach(), {}};
  for (const Tensor& leaf : leaves) {
    found.gradients.push_back(leaf.grad());
  }
  return found;
}

void expect_alike(const char* name, const Op& op, const Tensor& x, const std::vector<Tensor>& others, double slack,
                  bool keeps_format = true) {
  SCOPED_TRACE(testing::Message() << name << " of " << x.dtype() << " " << x.shape());
  const Outcome rows = outcome(op, x, others, kRows);
  const Outcome last = outcome(op, x, others, kLast);
  EXPECT_FALSE(is_last(rows.result));
  EXPECT_EQ(is_last(last.result), keeps_format);
  EXPECT_LE(distance(last.result, rows.result), slack);
  for (std::size_t i = 0; i < rows.gradients.size(); ++i) {
    EXPECT_LE(distance(last.gradients[i], rows.gradients[i]), slack) << "gradient " << i;
  }
}

TEST(ChannelsLast, ElementwiseOpsKeepIt) {
  TANDEM_NEEDS_GPUS(1);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor x = images({2, 3, 4, 5}, dtype);
    const Tensor whole = images({2, 3, 4, 5}, dtype, 2);
    const Tensor row = images({3, 1, 1}, dtype, 3);
    const auto alike = [&](const char* name, const Op& op, const std::vector<Tensor>& others) {
      expect_alike(name, op, x, others, 0);
    };
    alike("relu", [](const Tensor& a, const auto&) { return a.relu(); }, {});
    alike("tanh", [](const Tensor& a, const auto&) { return a.tanh(); }, {});
    alike("3 a + 1", [](const Tensor& a, const auto&) { return a * 3 + 1; }, {});
    alike("a + b", [](const Tensor& a, const auto& b) { return a + b[0]; }, {whole});
    alike("a * b", [](const Tensor& a, const auto& b) { return a * b[0]; }, {whole});
    alike("a + a.relu()", [](const Tensor& a, const auto&) { return a + a.relu(); }, {});
    expect_alike(
        "row * a - row", [](const Tensor& a, const auto& b) { return b[0] * a - b[0]; }, x, {row},
        dtype == DType::bf16 ? 0.2 : 1e-5);
    alike("(2 a) += b",
          [](const Tensor& a, const auto& b) {
            Tensor y = a * 2;
            y += b[0];
            return y.relu_();
          },
          {whole});
    alike("b + a", [](const Tensor& a, const auto& b) { return b[0] + a; }, {whole});
    alike("where", [](const Tensor& a, const auto& b) { return where(a > 0, a, b[0]); }, {whole});
    alike("cat", [](const Tensor& a, const auto&) { return cat({a, a.relu()}, 1); }, {});
  }
}

// Ops that do not know the format give contiguous results.
TEST(ChannelsLast, OtherOpsReadIt) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor x = images({2, 4, 5, 6});
  const auto alike = [&](const char* name, const Op& op) { expect_alike(name, op, x, {}, 1e-5, false); };
  alike("softmax", [](const Tensor& a, const auto&) { return a.softmax(1); });
  alike("flatten", [](const Tensor& a, const auto&) { return a.flatten(1); });
  alike("sum", [](const Tensor& a, const auto&) { return a.sum({1}); });
  alike("group_norm", [](const Tensor& a, const auto&) { return group_norm(a, 2); });
  alike("pad", [](const Tensor& a, const auto&) { return pad(a, {1, 1, 1, 1}); });
  alike("a + softmax", [](const Tensor& a, const auto&) { return (a + a.softmax(1)).flatten(); });
}

TEST(ChannelsLast, PoolingKeepsIt) {
  TANDEM_NEEDS_GPUS(1);
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    for (const Shape& sizes : {Shape{2, 3, 7, 6}, Shape{1, 1, 4, 4}, Shape{3, 5, 2, 9}}) {
      const Tensor x = images(sizes, dtype);
      const auto alike = [&](const char* name, const Op& op) { expect_alike(name, op, x, {}, 0); };
      alike("max_pool2d", [](const Tensor& a, const auto&) { return max_pool2d(a, 2); });
      alike("max_pool2d", [](const Tensor& a, const auto&) { return max_pool2d(a, {2, 3}, 1, {1, 1}, 1, true); });
      alike("avg_pool2d", [](const Tensor& a, const auto&) { return avg_pool2d(a, 2, 1, 1); });
      alike("adaptive_avg_pool2d", [](const Tensor& a, const auto&) { return adaptive_avg_pool2d(a, 1); });
      alike("adaptive_max_pool2d", [](const Tensor& a, const auto&) { return adaptive_max_pool2d(a, {2, 3}); });
    }
  }
  const auto [values, indices] = max_pool2d_with_indices(images({2, 3, 4, 4}).contiguous(kLast), 2);
  EXPECT_EQ(indices.to_vector<std::int64_t>(),
            max_pool2d_with_indices(images({2, 3, 4, 4}), 2).second.to_vector<std::int64_t>());
}

TEST(ChannelsLast, BatchNormKeepsIt) {
  TANDEM_NEEDS_GPUS(1);
  for (const bool training : {true, false}) {
    for (const Shape& sizes : {Shape{4, 3, 5, 6}, Shape{4, 8, 1, 1}, Shape{4, 1, 3, 3}}) {
      const std::int64_t channels = sizes[1];
      std::vector<Tensor> running;
      const Op norm = [&](const Tensor& a, const std::vector<Tensor>& b) {
        const Tensor mean = zeros({channels}, {.device = "cuda:0"});
        const Tensor variance = ones({channels}, {.device = "cuda:0"});
        running.insert(running.end(), {mean, variance});
        return batch_norm(a, mean, variance, b[0], b[1], training);
      };
      expect_alike("batch_norm", norm, images(sizes), {images({channels}), images({channels})}, 2e-5);
      EXPECT_LE(distance(running[2], running[0]), 1e-6);
      EXPECT_LE(distance(running[3], running[1]), 1e-6);
    }
  }
}

struct ConvCase {
  Shape in, weight;
  Size2d stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
};

const ConvCase kConvs[] = {
    {{2, 3, 7, 6}, {4, 3, 3, 3}, 1, 1},
    {{2, 8, 5, 6}, {16, 8, 3, 2}, {2, 1}, {1, 0}},
    {{2, 4, 6, 7}, {6, 2, 3, 3}, 1, 1, 2, 2},
    {{3, 8, 4, 4}, {8, 1, 3, 3}, 1, 1, 1, 8},
    {{2, 16, 5, 5}, {8, 16, 1, 1}},
    {{1, 1, 6, 6}, {5, 1, 3, 3}},
    {{2, 5, 1, 1}, {3, 5, 1, 1}},
};

void expect_convs_alike(DType dtype, double slack) {
  for (const ConvCase& of : kConvs) {
    const Tensor x = images(of.in, dtype);
    const Tensor weight = images(of.weight, dtype, 2);
    const Tensor bias = images({of.weight[0]}, dtype, 3);
    expect_alike(
        "conv2d",
        [&](const Tensor& a, const auto& b) {
          return conv2d(a, b[0], b[1], of.stride, of.padding, of.dilation, of.groups);
        },
        x, {weight, bias}, slack);
    expect_alike(
        "conv2d_relu",
        [&](const Tensor& a, const auto& b) {
          return conv2d_relu(a, b[0], {}, of.stride, of.padding, of.dilation, of.groups);
        },
        x, {weight}, slack);
    if (of.groups == 1) {
      expect_alike(
          "conv_transpose2d",
          [&](const Tensor& a, const auto& b) {
            return conv_transpose2d(a, b[0].transpose(0, 1).contiguous(), b[1], of.stride, of.padding);
          },
          x, {weight, bias}, slack);
    }
  }
}

TEST(ChannelsLast, ConvolutionsKeepIt) {
  TANDEM_NEEDS_GPUS(1);
  expect_convs_alike(DType::f32, 2e-4);
  expect_convs_alike(DType::f64, 1e-12);
  expect_convs_alike(DType::bf16, 0.5);
}

// Our own kernel adds in one order. The gradient of a bias is a reduction, whose order is not that of the rows.
TEST(ChannelsLast, OurConvolutionHasTheSameBits) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::KernelLibrary before = cuda::convolution_library();
  cuda::set_convolution_library(cuda::KernelLibrary::own);
  for (const ConvCase& of : kConvs) {
    const Op conv = [&](const Tensor& a, const auto& b) {
      return conv2d(a, b[0], {}, of.stride, of.padding, of.dilation, of.groups);
    };
    for (const DType dtype : {DType::f32, DType::f16}) {
      expect_alike("conv2d", conv, images(of.in, dtype), {images(of.weight, dtype, 2)}, 0);
    }
  }
  cuda::set_convolution_library(before);
}

TEST(ChannelsLast, GradientsAddUpInItAndInRows) {
  TANDEM_NEEDS_GPUS(1);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const double slack = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 1e-4 : 0.5;
    const Tensor x = images({2, 8, 4, 5}, dtype);
    const Tensor weight = images({8, 8, 3, 3}, dtype, 2) * 0.1;
    const auto conv = [&](const Tensor& a) { return conv2d(a, weight, {}, 1, 1); };
    // Both ways to the sum are equally long, so that the order of the operands decides which contribution to the
    // gradient of a.relu() is the first one: that in rows, or the other.
    for (const bool swapped : {false, true}) {
      const Op both = [&](const Tensor& a, const auto&) {
        const Tensor y = a.relu();
        const Tensor by_rows = (y.softmax(1) * 2).flatten();
        return swapped ? by_rows + conv(y).flatten() : conv(y).flatten() + by_rows;
      };
      expect_alike("conv and softmax", both, x, {}, slack, false);
    }
    const Op twice = [&](const Tensor& a, const auto&) {
      const Tensor y = a.relu();
      return conv(y) + conv(y * 2);
    };
    expect_alike("two convs", twice, x, {}, slack);
  }
}

TEST(ChannelsLast, HooksAndRetainedGradientsSeeTheElements) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor weight = images({4, 3, 3, 3});
  const auto seen = [&](MemoryFormat format) {
    std::vector<Tensor> gradients;
    Tensor x = images({2, 3, 5, 5}).requires_grad_();
    Tensor y = x.contiguous(format).relu();
    y.retain_grad();
    Tensor z = conv2d(y, weight, {}, 1, 1);
    const auto hook = z.register_hook([&](const Tensor& grad) {
      gradients.push_back(grad.clone());
      return grad * 2;
    });
    const Tensor loss = (z.relu() * images({2, 4, 5, 5}, DType::f32, 5)).sum();
    gradients.push_back(autograd::grad(loss, std::array{y}, {.retain_graph = true})[0]);
    loss.backward();
    gradients.push_back(y.grad());
    gradients.push_back(x.grad());
    return gradients;
  };
  const std::vector<Tensor> rows = seen(kRows);
  const std::vector<Tensor> last = seen(kLast);
  ASSERT_EQ(last.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_LE(distance(last[i], rows[i]), 1e-4) << i;
  }
}

TEST(ChannelsLast, ALeafMayHaveIt) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor weight = images({4, 3, 3, 3});
  Tensor rows = images({2, 3, 5, 5}).requires_grad_();
  Tensor last = images({2, 3, 5, 5}).contiguous(kLast).requires_grad_();
  for (int pass = 0; pass < 2; ++pass) {  // the second one adds
    conv2d(rows, weight).relu().sum().backward();
    conv2d(last, weight).relu().sum().backward();
    EXPECT_LE(distance(last.grad(), rows.grad()), 1e-4);
    EXPECT_TRUE(is_last(last.grad()));
  }
}

TEST(ChannelsLast, AveragesOfParametersKeepTheOrder) {
  TANDEM_NEEDS_GPUS(1);
  Tensor weight = images({4, 3, 3, 3}).contiguous(kLast);
  optim::EMA ema({weight}, {.decay = 0.5});
  ema.update();
  const Tensor before = weight.clone();
  weight.copy_(weight * 3);
  ema.update();
  EXPECT_LE(distance(ema.averages()[0], before * 2), 1e-5);
}

TEST(ChannelsLast, SecondDerivatives) {
  TANDEM_NEEDS_GPUS(1);
  const core::DeviceScope on("cuda:0");
  const auto leaf = [](const Shape& sizes, std::uint64_t seed) {
    return images(sizes, DType::f64, seed).requires_grad_();
  };
  const auto net = [](const std::vector<Tensor>& in) {
    const Tensor y = conv2d_relu(in[0].contiguous(kLast), in[1], in[2], 1, 1).tanh();
    return avg_pool2d(y, 2) + max_pool2d(y, 2);
  };
  autograd::gradcheck(net, {leaf({2, 2, 4, 4}, 1), leaf({3, 2, 3, 3}, 2), leaf({3}, 3)});
  autograd::gradgradcheck(net, {leaf({1, 2, 4, 4}, 1), leaf({2, 2, 3, 3}, 2), leaf({2}, 3)});
}

struct Net : nn::Module<Net> {
  explicit Net(DType type) : dtype(type) {}

  DType dtype;
  nn::Conv2d conv1 = child("conv1", nn::Conv2d(8, 8, 3, {.padding = 1, .bias = false, .dtype = dtype}));
  nn::BatchNorm2d norm1 = child("norm1", nn::BatchNorm2d(8, {.dtype = dtype}));
  nn::Conv2d conv2 = child("conv2", nn::Conv2d(8, 8, 3, {.padding = 1, .dtype = dtype}));
  nn::BatchNorm2d norm2 = child("norm2", nn::BatchNorm2d(8, {.dtype = dtype}));
  nn::Linear fc = child("fc", nn::Linear(8, 4, {.dtype = dtype}));
  Tensor forward(const Tensor& x) const {
    const Tensor y = max_pool2d(relu(norm1(conv1(x))), 2);
    const Tensor z = relu(norm2(conv2(y)) + y);
    return fc(adaptive_avg_pool2d(z, 1).flatten(1));
  }
};

enum class Step { eager, captured, autocast };

struct Trained {
  std::vector<double> losses;
  std::size_t kernels = 0;  // of the last step
};

Trained train(DType dtype, Step kind, MemoryFormat format) {
  const core::DeviceScope on("cuda:0");
  manual_seed(3);
  Net model(dtype);
  optim::SGD sgd(model.parameters(), {.lr = 0.05, .momentum = 0.9});
  const Tensor x = images({4, 8, 6, 6}, dtype).contiguous(format);
  const Tensor y = randint(0, 4, {4});
  const auto step = [&](const Tensor& input, const Tensor& target) {
    EXPECT_EQ(is_last(input), format == kLast);
    const AutocastScope autocast(DType::bf16, {.enabled = kind == Step::autocast});
    sgd.zero_grad();
    Tensor loss = nn::cross_entropy(model(input), target);
    loss.backward();
    sgd.step();
    return loss;
  };
  auto replay = graph::capture(step);
  Trained trained;
  for (int i = 0; i < 5; ++i) {
    cuda::synchronize("cuda:0");
#if __has_include("emulated_gpu.h")
    const emulated_gpu::KernelLog log;
#endif
    const Tensor loss = kind == Step::captured ? replay(x, y) : step(x, y);
    trained.losses.push_back(loss.item());
#if __has_include("emulated_gpu.h")
    trained.kernels = log.names().size();
#endif
  }
  return trained;
}

// Each of two convolutions converts its weight, and the gradient of that.
#if __has_include("emulated_gpu.h")
constexpr std::size_t kConversions = 4;
#else
constexpr std::size_t kConversions = 0;  // not counted
#endif

TEST(ChannelsLast, ATrainingStepConvertsTheWeightsAlone) {
  TANDEM_NEEDS_GPUS(1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Step kind : {Step::eager, Step::captured}) {
      const Trained rows = train(dtype, kind, kRows);
      const Trained last = train(dtype, kind, kLast);
      for (std::size_t i = 0; i < rows.losses.size(); ++i) {
        EXPECT_NEAR(last.losses[i], rows.losses[i], dtype == DType::f32 ? 1e-4 : 0.1) << i;
      }
      EXPECT_EQ(last.kernels, rows.kernels + kConversions) << dtype;
    }
  }
}

TEST(ChannelsLast, AutocastKeepsIt) {
  TANDEM_NEEDS_GPUS(1);
  const Trained rows = train(DType::f32, Step::autocast, kRows);
  const Trained last = train(DType::f32, Step::autocast, kLast);
  EXPECT_NEAR(last.losses.back(), rows.losses.back(), 0.1);
  EXPECT_EQ(last.kernels, rows.kernels + kConversions);
}

TEST(ChannelsLast, CapturedStepsTellTheFormatsApart) {
  TANDEM_NEEDS_GPUS(1);
  auto step = graph::capture([](const Tensor& x) { return x.relu(); });
  const Tensor rows = images({2, 3, 4, 5});
  const Tensor last = rows.contiguous(kLast);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(is_last(step(rows)));
    EXPECT_TRUE(is_last(step(last)));
    EXPECT_TRUE(test::same_bits(step(last), rows.relu()));
  }
  EXPECT_EQ(step.stats().captures, 2u);
}

TEST(ChannelsLast, ReplicasGetIt) {
  TANDEM_NEEDS_GPUS(2);
  const core::DeviceScope on("cuda:0");
  const auto gradients = [](MemoryFormat format) {
    manual_seed(3);
    nn::Conv2d model(3, 4, 3);
    parallel::DataParallel replicas(model, {"cuda:0", "cuda:1"});
    replicas(images({4, 3, 5, 5}).contiguous(format)).relu().sum().backward();
    return model.weight.grad();
  };
  EXPECT_LE(distance(gradients(kLast), gradients(kRows)), 1e-4);
}

TEST(ChannelsLast, MeasuredEnginesKeepIt) {
  TANDEM_NEEDS_GPUS(1);
  cuda::set_kernel_tuning(true);
  expect_alike(
      "conv2d", [](const Tensor& a, const auto& b) { return conv2d(a, b[0], b[1], 1, 1); }, images({2, 8, 5, 7}),
      {images({8, 8, 3, 3}), images({8})}, 2e-4);
  cuda::set_kernel_tuning(false);
}

TEST(ChannelsLast, GoesToOtherGpus) {
  TANDEM_NEEDS_GPUS(2);
  const Tensor x = images({4, 3, 5, 5});
  EXPECT_TRUE(is_last(x.contiguous(kLast).to("cuda:1")));
  EXPECT_TRUE(test::same_bits(x.contiguous(kLast).to("cuda:1"), x));
  Tensor row = images({1, 3, 5, 5}).contiguous(kLast);
  Tensor rows = images({4, 3, 5, 5}).contiguous(kLast).to("cuda:1");
  rows.copy_(row);
  EXPECT_TRUE(test::same_bits(rows[3], row[0]));
  // Two contributions to a gradient come from the other GPU.
  Tensor leaf = images({4, 3, 5, 5}).requires_grad_();
  const Tensor here = leaf.contiguous(kLast) * 1;
  const Tensor factor = images({4, 3, 5, 5}, DType::f32, 2).contiguous(kLast).to("cuda:1");
  ((here.to("cuda:1") * factor).relu() + here.to("cuda:1") * factor).sum().backward();
  const Tensor positive = (images({4, 3, 5, 5}) * factor.to("cuda:0") > 0).to(DType::f32);
  EXPECT_LE(distance(leaf.grad(), (positive + 1) * factor.to("cuda:0")), 1e-6);
  const std::vector<Tensor> parts = parallel::scatter(x.contiguous(kLast), {"cuda:0", "cuda:1"});
  ASSERT_EQ(parts.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(is_last(parts[static_cast<std::size_t>(i)]));
    EXPECT_TRUE(test::same_bits(parts[static_cast<std::size_t>(i)], x.narrow(0, 2 * i, 2)));
  }
}

}  // namespace
}  // namespace tandem
