#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/spatial.h>
#include <tandem/core/error.h>

#include "leaves.h"
#include "support/message.h"

// Convolutions and poolings.

namespace tandem {
namespace {

using test::expect_gradient;
using test::leaf;
using test::message_of;
using test::stepped_leaf;
using test::transposed_leaf;
using test::values;
using ::testing::HasSubstr;
using Tensors = std::vector<Tensor>;

struct Case {
  Shape x, weight;
  Size2d stride = 1;
  ConvPadding padding = 0;
  Size2d dilation = 1;
  std::int64_t groups = 1;
};

TEST(GradcheckConv, EveryShapeAndLayout) {
  for (const Case& c : {Case{{2, 3, 5, 4}, {4, 3, 3, 2}}, Case{{1, 2, 6, 5}, {3, 2, 3, 3}, {2, 1}, {1, 2}},
                        Case{{1, 2, 6, 6}, {2, 2, 2, 2}, 1, 2, {2, 3}}, Case{{2, 4, 4, 4}, {6, 2, 3, 3}, 1, 1, 1, 2},
                        Case{{1, 3, 4, 4}, {3, 1, 3, 3}, 2, 1, 1, 3}, Case{{2, 3, 4, 4}, {2, 3, 2, 3}, 1, "same"},
                        Case{{1, 2, 5, 5}, {3, 2, 1, 1}, 3}, Case{{0, 2, 4, 4}, {3, 2, 3, 3}}}) {
    SCOPED_TRACE(to_string(c.x) + " " + to_string(c.weight));
    const auto convolve = [&](const Tensors& in) {
      const Tensor y =
          conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), c.stride, c.padding, c.dilation, c.groups);
      return y * values(y.shape(), 0.5, 1.5, 40);
    };
    const Tensor x = leaf(c.x, -2, 2);
    const Tensor weight = leaf(c.weight, -1, 1, 7);
    const Tensor bias = leaf({c.weight[0]}, -1, 1, 8);
    expect_gradient(convolve, {x, weight});
    for (const Tensor& in : {x, transposed_leaf(x), stepped_leaf(x)}) {
      expect_gradient(convolve, {in, weight, bias});
    }
    expect_gradient(convolve, {x, transposed_leaf(weight), stepped_leaf(bias)});
    expect_gradient([&](const Tensors& in) { return convolve({in[0], weight.detach(), bias.detach()}); }, {x});
    expect_gradient([&](const Tensors& in) { return convolve({x.detach(), in[0], bias.detach()}); }, {weight});
    expect_gradient([&](const Tensors& in) { return convolve({x.detach(), weight.detach(), in[0]}); }, {bias});
    expect_gradient([&](const Tensors& in) { return convolve(in).transpose(1, 3); }, {x, weight, bias});
  }
}

TEST(GradcheckConv, AReluBehindIt) {
  const Tensor x = leaf({2, 4, 5, 4}, -2, 2);
  const Tensor weight = leaf({6, 2, 3, 2}, -1, 1, 7);
  const Tensor bias = leaf({6}, -1, 1, 8);
  const auto fused = [](const Tensors& in) { return conv2d_relu(in[0], in[1], in[2], {1, 2}, 1, 1, 2); };
  const auto apart = [](const Tensors& in) { return conv2d(in[0], in[1], in[2], {1, 2}, 1, 1, 2).relu(); };
  expect_gradient(fused, {x, weight, bias});
  const auto grads_of = [&](auto&& f) {
    for (const Tensor& in : {x, weight, bias}) {
      Tensor(in).zero_grad();
    }
    const Tensor y = f({x, weight, bias});
    const Tensor next = conv2d_relu(y, ones({2, 6, 2, 2}, {.dtype = DType::f64}));
    (next * values(next.shape(), 0.5, 1.5, 40)).sum().backward();
    std::vector<double> all = y.to_vector<double>();
    for (const Tensor& in : {x, weight, bias}) {
      const std::vector<double> grad = in.grad().to_vector<double>();
      all.insert(all.end(), grad.begin(), grad.end());
    }
    return all;
  };
  EXPECT_EQ(grads_of(fused), grads_of(apart));
  const Tensor line = leaf({2, 3, 9}, -2, 2);
  const Tensor window = leaf({4, 3, 3}, -1, 1, 7);
  expect_gradient([](const Tensors& in) { return conv1d_relu(in[0], in[1], {}, 2, 1); }, {line, window});
  EXPECT_EQ(conv1d_relu(line, window, {}, 2, 1).to_vector<double>(),
            conv1d(line, window, {}, 2, 1).relu().to_vector<double>());
}

// A product behind the ReLU writes the gradient of its result with the mask, if nothing else adds to it or looks at it.
TEST(GradcheckConv, AReluThatAProductMasks) {
  const Tensor x = leaf({2, 3, 9}, -2, 2);
  const Tensor weight = leaf({4, 3, 3}, -1, 1, 7);
  const Tensor matrix = leaf({6, 9}, -1, 1, 9);
  enum class Use : std::uint8_t { once, twice, hooked, retained };
  for (const Use use : {Use::once, Use::twice, Use::hooked, Use::retained}) {
    const auto results = [&](bool fused) {
      for (const Tensor& in : {x, weight, matrix}) {
        Tensor(in).zero_grad();
      }
      Tensor y = fused ? conv1d_relu(x, weight, {}, 1, 1) : conv1d(x, weight, {}, 1, 1).relu();
      std::vector<double> all;
      if (use == Use::hooked) {
        y.register_hook([&](const Tensor& grad) {
          all = grad.to_vector<double>();
          return grad * 3;
        });
      }
      if (use == Use::retained) {
        y.retain_grad();
      }
      Tensor z = linear(y, matrix);
      z = (z * values(z.shape(), 0.5, 1.5, 40)).sum();
      (use == Use::twice ? z + y.pow(2).sum() : z).backward();
      if (use == Use::retained) {
        all = y.grad().to_vector<double>();
      }
      for (const Tensor& in : {x, weight, matrix}) {
        const std::vector<double> grad = in.grad().to_vector<double>();
        all.insert(all.end(), grad.begin(), grad.end());
      }
      return all;
    };
    EXPECT_EQ(results(true), results(false)) << static_cast<int>(use);
  }
}

TEST(GradcheckConv, OneInputForBothSidesGetsBothGradients) {
  const Tensor x = leaf({2, 2, 3, 3}, -1, 1);
  expect_gradient([](const Tensors& in) { return conv2d(in[0], in[0], {}, 1, 1) * 2; }, {x});
}

TEST(GradcheckConv, Transposed) {
  for (const auto& [stride, padding, output_padding, dilation] :
       {std::tuple<Size2d, Size2d, Size2d, Size2d>{1, 0, 0, 1}, {{2, 3}, {1, 0}, {1, 2}, 1}, {2, 1, 0, {1, 2}}}) {
    const auto convolve = [&](const Tensors& in) {
      const Tensor y = conv_transpose2d(in[0], in[1], in[2], stride, padding, output_padding, 2, dilation);
      return y * values(y.shape(), 0.5, 1.5, 40);
    };
    expect_gradient(convolve, {leaf({2, 4, 3, 4}, -2, 2), leaf({4, 3, 3, 2}, -1, 1, 7), leaf({6}, -1, 1, 8)});
  }
}

TEST(GradcheckConv, AlongALength) {
  expect_gradient([](const Tensors& in) { return conv1d(in[0], in[1], in[2], 2, 1) * 3; },
                  {leaf({2, 3, 8}, -2, 2), leaf({4, 3, 3}, -1, 1, 7), leaf({4}, -1, 1, 8)});
  expect_gradient([](const Tensors& in) { return conv_transpose1d(in[0], in[1], in[2], 2, 1, 1) * 3; },
                  {leaf({2, 3, 5}, -2, 2), leaf({3, 2, 3}, -1, 1, 7), leaf({2}, -1, 1, 8)});
}

TEST(GradcheckPool, EveryKind) {
  const Tensor x = leaf({2, 2, 6, 7}, -2, 2);
  const auto weighted = [](const Tensor& y) { return y * values(y.shape(), 0.5, 1.5, 40); };
  for (const Tensor& in : {x, transposed_leaf(x), stepped_leaf(x)}) {
    expect_gradient([&](const Tensors& t) { return weighted(max_pool2d(t[0], 2)); }, {in});
    expect_gradient([&](const Tensors& t) { return weighted(max_pool2d(t[0], 3, 1, 1, {1, 2}, true)); }, {in});
    expect_gradient([&](const Tensors& t) { return weighted(avg_pool2d(t[0], 2)); }, {in});
    expect_gradient([&](const Tensors& t) { return weighted(avg_pool2d(t[0], 3, 2, 1, true, false)); }, {in});
    expect_gradient([&](const Tensors& t) { return weighted(adaptive_avg_pool2d(t[0], {4, 3})); }, {in});
    expect_gradient([&](const Tensors& t) { return weighted(adaptive_max_pool2d(t[0], {4, 3})); }, {in});
    expect_gradient([&](const Tensors& t) { return weighted(max_pool2d(t[0], 2) + avg_pool2d(t[0], 2)); }, {in});
  }
}

TEST(GradcheckSpatial, EveryOtherFunction) {
  const Tensor x = leaf({2, 4, 4, 5}, -2, 2);
  const auto weighted = [](const Tensor& y) { return y * values(y.shape(), 0.5, 1.5, 40); };
  const auto check = [&](auto&& function) {
    for (const Tensor& in : {x, transposed_leaf(x), stepped_leaf(x)}) {
      expect_gradient([&](const Tensors& t) { return weighted(function(t[0])); }, {in});
    }
  };
  check([](const Tensor& t) { return pad(t, {1, 2, 3, -1}); });
  check([](const Tensor& t) { return pad(t, {2, 1, 0, 3}, PadMode::reflect); });
  check([](const Tensor& t) { return pad(t, {2, 7, 0, 3}, PadMode::replicate); });
  check([](const Tensor& t) { return pad(t, {5, 1, 0, 3}, PadMode::circular); });
  check([](const Tensor& t) { return unfold(t, {2, 3}, 1, 1, {2, 1}); });
  check([](const Tensor& t) { return interpolate(t, {9, 7}); });
  check([](const Tensor& t) { return interpolate(t, {9, 7}, InterpolateMode::bilinear); });
  check([](const Tensor& t) { return interpolate(t, {3, 9}, InterpolateMode::bilinear, true); });
  check([](const Tensor& t) { return rms_norm(t, {4, 5}, {}, 1e-3); });
  check([](const Tensor& t) { return instance_norm(t); });
  expect_gradient([&](const Tensors& t) { return weighted(group_norm(t[0], 2, t[1], t[2])); },
                  {x, leaf({4}, 0.5, 1.5, 8), leaf({4}, -1, 1, 9)});
  expect_gradient([&](const Tensors& t) { return weighted(rms_norm(t[0], {5}, t[1])); }, {x, leaf({5}, 0.5, 1.5, 8)});
}

TEST(RmsNorm, InSixteenBitsSumsInThirtyTwo) {
  const Tensor x = values({3, 200}, -300, 300).to(DType::f16);  // squares of 16 bits would be infinite
  const Tensor y = rms_norm(x, {200});
  EXPECT_EQ(y.dtype(), DType::f16);
  const Tensor wide = x.to(DType::f64);
  const Tensor expected = wide / ((wide * wide).mean({1}, true) + 1.1920928955078125e-07).sqrt();
  EXPECT_LT((y.to(DType::f64) - expected).abs().amax({}, false).item<double>(), 2e-3);
}

TEST(Dropout2d, TakesWholeChannels) {
  manual_seed(5);
  const Tensor y = dropout2d(ones({8, 16, 3, 3}), 0.25);
  const Tensor sums = y.sum({2, 3});
  int dropped = 0;
  for (const float sum : sums.to_vector<float>()) {
    EXPECT_TRUE(sum == 0 || std::abs(sum - 12) < 1e-5) << sum;
    dropped += sum == 0 ? 1 : 0;
  }
  EXPECT_GT(dropped, 10);
  EXPECT_LT(dropped, 60);
  EXPECT_EQ(dropout2d(y, 0.25, false).sum().item<float>(), y.sum().item<float>());
}

TEST(MaxPool, IndicesAreThePlacesInTheirPlanes) {
  const Tensor x = tensor({1, 5, 2, 0, 3, 4, 9, 9, 7, 6, 8, 1}).to(DType::f32).reshape({1, 1, 3, 4});
  const auto [largest, indices] = max_pool2d_with_indices(x, 2, 1);
  EXPECT_EQ(indices.dtype(), DType::i64);
  EXPECT_EQ(largest.to_vector<float>(), (std::vector<float>{5, 9, 9, 7, 9, 9}));
  EXPECT_EQ(indices.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 6, 6, 8, 6, 6})) << "the first of equals";
}

TEST(MaxPool, TheOnlyWindowMayStandOverInCeilMode) {
  const Tensor x = tensor({1.0F, 2.0F, 3.0F, 4.0F}).reshape({1, 1, 2, 2});
  EXPECT_EQ(max_pool2d(x, 3, 2, 0, 1, true).to_vector<float>(), (std::vector<float>{4}));
  EXPECT_EQ(avg_pool2d(x, 3, 2, 0, true).to_vector<float>(), (std::vector<float>{2.5}));
}

TEST(Interpolate, FiniteValuesStayFinite) {
  const Tensor x = tensor({60000.0, -60000.0}).to(DType::f16).reshape({1, 1, 1, 2});
  EXPECT_EQ(interpolate(x, {1, 4}, InterpolateMode::bilinear).to(DType::f32).to_vector<float>(),
            (std::vector<float>{60000, 30000, -30000, -60000}));
}

TEST(Pad, NeverGivesAViewOfItsInput) {
  Tensor x = ones({1, 1, 3, 4});
  for (Tensor y : {pad(x, {0, 0}), pad(x, {-1, 0}), interpolate(x, {3, 4})}) {
    y.add_(1);
  }
  EXPECT_EQ(x.sum().item<float>(), 12);
}

TEST(MaxPool, KeepsNaNAndMinusInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float low = -std::numeric_limits<float>::infinity();
  const Tensor x = tensor({1.0F, nan, 2.0F, 3.0F, low, low, low, low}).reshape({2, 2, 2});
  for (const Tensor& y : {max_pool2d(x, 2), max_pool2d(x, 2, 2, 1)}) {
    EXPECT_TRUE(isnan(y[0]).any().item<bool>());
    EXPECT_EQ(y[1].amax({}, false).item<float>(), low);
  }
}

TEST(ConvMessages, SayWhatDoesNotFit) {
  const Tensor x = ones({2, 3, 8, 8});
  const Tensor weight = ones({4, 3, 3, 3});
  const auto shape_error = [](auto&& op) { return message_of<ShapeError>(op); };
  const auto config_error = [](auto&& op) { return message_of<ConfigError>(op); };
  EXPECT_EQ(shape_error([&] { conv2d(ones({2, 5, 8, 8}), weight); }),
            "conv2d: input [2, 5, 8, 8] has 5 channels, the weight [4, 3, 3, 3] with 1 group expects 3");
  EXPECT_EQ(
      shape_error([&] { conv2d(ones({2, 8, 8, 3}), weight); }),
      "conv2d: input [2, 8, 8, 3] has 8 channels, the weight [4, 3, 3, 3] with 1 group expects 3. Channels seem to "
      "be last: x.permute({0, 3, 1, 2})");
  EXPECT_EQ(shape_error([&] { conv2d(ones({2, 3, 2, 8}), weight); }),
            "conv2d: a window of 3 is larger than the padded input, 2 = 2 + 2 * 0 (input [2, 3, 2, 8])");
  EXPECT_EQ(shape_error([&] { conv2d(ones({2, 8}), weight); }),
            "conv2d: the input must be [batch, channels, height, width], or without the batch, got [2, 8]");
  EXPECT_EQ(shape_error([&] { conv2d(x, ones({4, 3, 3})); }),
            "conv2d: the weight must be [out, in / groups, height, width], got [4, 3, 3]");
  EXPECT_EQ(shape_error([&] { conv2d(x, ones({4, 1, 3, 3}), {}, 1, 0, 1, 3); }),
            "conv2d: 4 channels cannot be divided into 3 groups (weight [4, 1, 3, 3])");
  EXPECT_EQ(shape_error([&] { conv2d(x, weight, ones({3})); }),
            "conv2d: bias [3] does not fit the weight [4, 3, 3, 3]: expected [4]");
  EXPECT_EQ(message_of<DTypeError>([&] { conv2d(x.to(DType::f64), weight); }),
            "conv2d: input is f64, weight f32. Convert the input: x.to(DType::f32)");
  EXPECT_EQ(config_error([&] { conv2d(x, weight, {}, 0); }),
            "conv2d: stride and dilation must be at least 1 and below 2^31, got 0 and 1");
  EXPECT_EQ(config_error([&] { conv2d(x, weight, {}, 1, -1); }),
            "conv2d: the padding must not be negative, and below 2^31, got (-1, -1)");
  EXPECT_EQ(config_error([&] { conv2d(x, weight, {}, 2, "same"); }),
            "conv2d: padding \"same\" needs a stride of 1; give the padding as numbers");
  EXPECT_EQ(config_error([&] { conv2d(x, weight, {}, 1, "full"); }),
            "padding: expected numbers, \"same\" or \"valid\", got \"full\"");
  EXPECT_EQ(config_error([&] { conv_transpose2d(x, ones({3, 4, 3, 3}), {}, 2, 0, 2); }),
            "conv_transpose2d: the output_padding must be less than stride or dilation, 2 and 1, got 2");
  EXPECT_EQ(
      shape_error([&] { conv_transpose2d(ones({1, 3, 1, 1}), ones({3, 4, 2, 2}), {}, 1, 1); }),
      "conv_transpose2d: the result would have 0 elements along a dimension (input [1, 3, 1, 1], weight [3, 4, 2, "
      "2])");
}

TEST(ConvMessages, NumbersBeyondAllSizesAreRefused) {
  const Tensor x = ones({1, 3, 5, 5});
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_THAT(message_of<ConfigError>([&] { conv2d(x, ones({2, 3, 3, 3}), {}, huge); }), HasSubstr("below 2^31"));
  EXPECT_THAT(message_of<ConfigError>([&] { conv2d(x, ones({2, 3, 3, 3}), {}, 1, 0, huge); }), HasSubstr("below 2^31"));
  EXPECT_THAT(message_of<ConfigError>([&] { conv2d(x, ones({2, 3, 3, 3}), {}, 1, huge); }), HasSubstr("below 2^31"));
  EXPECT_THAT(message_of<ConfigError>([&] { max_pool2d(x, 5, 1, 0, huge); }), HasSubstr("below 2^31"));
  EXPECT_THAT(message_of<ConfigError>([&] { pad(x, {huge, 0}); }), HasSubstr("below 2^31"));
}

TEST(Conv, OneWindowTakesAnyStride) {
  const Tensor x = values({1, 3, 5, 5});
  const Tensor weight = values({2, 3, 5, 5}, -1, 1, 8);
  const Tensor y = conv2d(x.to(DType::f32), weight.to(DType::f32), {}, {1, 2'000'000'000});
  EXPECT_LT((y.to(DType::f64) - (x * weight).sum({1, 2, 3}).reshape({1, 2, 1, 1})).abs().amax({}, false).item<double>(),
            1e-5);
}

TEST(SpatialMessages, SayWhatDoesNotFit) {
  const Tensor x = ones({2, 3, 4, 5});
  EXPECT_EQ(
      message_of<ConfigError>([&] { pad(x, {1, 2, 3}); }),
      "pad: expected a number before and one behind for some of the last dimensions of [2, 3, 4, 5], got 3 numbers");
  EXPECT_EQ(message_of<ShapeError>([&] { pad(x, {5, 0}, PadMode::reflect); }),
            "pad: in this mode dimension 3 of [2, 3, 4, 5] can be padded by 0 to 4, got 5 and 0");
  EXPECT_EQ(message_of<ShapeError>([&] { pad(x, {-3, -3}); }),
            "pad: -3 and -3 take more from dimension 3 of [2, 3, 4, 5] than its 5 elements");
  EXPECT_EQ(message_of<ShapeError>([&] { unfold(x, 6); }),
            "unfold: a window of (6, 6) is larger than the padded input [2, 3, 4, 5]");
  EXPECT_EQ(message_of<ShapeError>([&] { interpolate(ones({3, 4}), 2); }),
            "interpolate: the input must be [batch, channels, height, width] with elements, got [3, 4]");
  EXPECT_EQ(message_of<ConfigError>([&] { interpolate(x, 0); }),
            "interpolate: the size must be at least 1, got (0, 0)");
  EXPECT_EQ(message_of<ConfigError>([&] { group_norm(x, 2); }),
            "group_norm: 3 channels cannot be divided into 2 groups (input [2, 3, 4, 5])");
  EXPECT_EQ(message_of<ShapeError>([&] { rms_norm(x, {4}); }),
            "rms_norm: the last dimensions of the input [2, 3, 4, 5] must be the normalized_shape [4]");
  EXPECT_EQ(message_of<ShapeError>([&] { dropout2d(ones({3})); }),
            "dropout2d: the input must be [batch, channels, ...], got [3]");
}

TEST(PoolMessages, SayWhatDoesNotFit) {
  const Tensor x = ones({2, 3, 8, 8});
  EXPECT_EQ(message_of<ConfigError>([&] { max_pool2d(x, 2, 2, 2); }),
            "max_pool2d: the padding must be 0 to half the kernel_size of 2, got 2");
  EXPECT_EQ(message_of<ShapeError>([&] { max_pool2d(x, 9); }),
            "max_pool2d: a window of 9 is larger than the padded input, 8 = 8 + 2 * 0 (input [2, 3, 8, 8])");
  EXPECT_EQ(message_of<ShapeError>([&] { max_pool2d(ones({2, 8}), 2); }),
            "max_pool2d: the input must be [batch, channels, height, width], or without the batch, got [2, 8]");
  EXPECT_EQ(message_of<ShapeError>([&] { max_pool2d(ones({1, 1, 1, 1}), 2, 2, 1, 2); }),
            "max_pool2d: window 0 has no element inside the input [1, 1, 1, 1]");
  EXPECT_EQ(message_of<ConfigError>([&] { avg_pool2d(x, 2, 2, 0, false, true, 0); }),
            "avg_pool2d: the divisor_override must not be 0");
  EXPECT_EQ(message_of<ConfigError>([&] { adaptive_avg_pool2d(x, 0); }),
            "adaptive_avg_pool2d: the output_size must be at least 1, got (0, 0)");
  EXPECT_THAT(message_of<DTypeError>([&] { max_pool2d(x.to(DType::i64), 2); }), HasSubstr("max_pool2d"));
}

}  // namespace
}  // namespace tandem
