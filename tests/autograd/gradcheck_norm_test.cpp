#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "leaves.h"
#include "support/gpu.h"
#include "support/message.h"

// Layer norm, batch norm and embedding.

namespace tandem {
namespace {

using test::expect_gradient;
using test::indices;
using test::leaf;
using test::message_of;
using test::stepped_leaf;
using test::transposed_leaf;
using test::values;
using Tensors = std::vector<Tensor>;
using Values = std::vector<double>;

// Weights the results, because a plain sum over normalised values does not depend on the input.
Tensor weighted(const Tensor& y) { return y * values(y.shape(), 0.5, 1.5, 40); }

// ---- layer norm ----

TEST(GradcheckLayerNorm, EveryShapeAndLayout) {
  for (const auto& [sizes, over] : {std::pair<Shape, Shape>{{4}, {4}},
                                    {{3, 5}, {5}},
                                    {{2, 3, 4}, {4}},
                                    {{2, 3, 4}, {3, 4}},
                                    {{2, 3, 40}, {40}},
                                    {{1, 2}, {1, 2}},
                                    {{0, 3}, {3}},
                                    {{2, 0}, {0}}}) {
    SCOPED_TRACE(to_string(sizes) + " over " + to_string(over));
    const Tensor x = leaf(sizes, -2, 2);
    const auto plain = [over = over](const Tensors& in) { return weighted(layer_norm(in[0], over)); };
    const auto affine = [over = over](const Tensors& in) { return weighted(layer_norm(in[0], over, in[1], in[2])); };
    for (const Tensor& in : {x, transposed_leaf(x), stepped_leaf(x)}) {
      expect_gradient(plain, {in});
      expect_gradient(affine, {in, leaf(over, 0.5, 1.5, 8), leaf(over, -1, 1, 9)});
      expect_gradient(affine, {in, stepped_leaf(leaf(over, 0.5, 1.5, 8)), stepped_leaf(leaf(over, -1, 1, 9))});
    }
    expect_gradient([over = over](const Tensors& in) { return weighted(layer_norm(in[0], over).transpose(0, -1)); },
                    {x});
  }
}

TEST(GradcheckLayerNorm, OfSomeInputsOnly) {
  const Tensor x = values({3, 4});
  const Tensor weight = values({4}, 0.5, 1.5);
  const auto norm = [](const Tensors& in) { return weighted(layer_norm(in[0], {4}, in[1], in[2])); };
  const auto without_bias = [](const Tensors& in) { return weighted(layer_norm(in[0], {4}, in[1])); };
  expect_gradient(norm, {leaf({3, 4}), weight, weight});
  expect_gradient(norm, {x, leaf({4}), weight});
  expect_gradient(norm, {x, weight, leaf({4})});
  expect_gradient(without_bias, {leaf({3, 4}), leaf({4}, 0.5, 1.5)});
  expect_gradient([](const Tensors& in) { return weighted(layer_norm(in[0], {4}, {}, in[1])); },
                  {leaf({3, 4}), leaf({4})});
  expect_gradient([](const Tensors& in) { return weighted(layer_norm(in[0], {3}, in[0][0], in[0][1])); },
                  {leaf({3, 3}, 0.5, 2)});
  expect_gradient([](const Tensors& in) { return weighted(layer_norm(in[0], {4}, {}, {}, 0.5)); }, {leaf({3, 4})});
}

TEST(GradcheckLayerNorm, AroundALargeMean) {
  expect_gradient([](const Tensors& in) { return weighted(layer_norm(in[0] + 1e4, {4})); }, {leaf({3, 4})});
}

// ---- batch norm ----

TEST(GradcheckBatchNorm, EveryShapeAndLayoutInBothModes) {
  for (const Shape& sizes : {Shape{3, 2}, {5, 1}, {2, 3, 4}, {1, 2, 3}, {2, 2, 40}, {2, 2, 2, 3}, {0, 3}, {3, 0}}) {
    for (const bool training : {true, false}) {
      SCOPED_TRACE(to_string(sizes) + (training ? ", training" : ", evaluation"));
      const std::int64_t channels = sizes[1];
      const Tensor x = leaf(sizes, -2, 2);
      const auto norm = [&](const Tensor& in, const Tensor& weight, const Tensor& bias) {
        const Tensor mean = values({channels}, -1, 1, 11);
        const Tensor var = values({channels}, 1, 2, 12);
        return weighted(batch_norm(in, mean, var, weight, bias, training));
      };
      const auto plain = [&](const Tensors& in) { return norm(in[0], {}, {}); };
      const auto affine = [&](const Tensors& in) { return norm(in[0], in[1], in[2]); };
      for (const Tensor& in : {x, transposed_leaf(x), stepped_leaf(x)}) {
        expect_gradient(plain, {in});
        expect_gradient(affine, {in, leaf({channels}, 0.5, 1.5, 8), leaf({channels}, -1, 1, 9)});
      }
      expect_gradient(affine, {x, stepped_leaf(leaf({channels}, 0.5, 1.5, 8)), leaf({channels}, -1, 1, 9)});
      expect_gradient(affine, {values(sizes), leaf({channels}, 0.5, 1.5, 8), leaf({channels}, -1, 1, 9)});
      expect_gradient(affine, {values(sizes), values({channels}), leaf({channels}, -1, 1, 9)});
      expect_gradient(affine, {x, values({channels}), values({channels})});
      expect_gradient([&](const Tensors& in) { return norm(in[0], in[1], {}); }, {x, leaf({channels}, 0.5, 1.5, 8)});
      expect_gradient([&](const Tensors& in) { return norm(in[0], {}, in[1]); }, {x, leaf({channels})});
    }
  }
}

TEST(GradcheckBatchNorm, WithoutRunningStatistics) {
  expect_gradient([](const Tensors& in) { return weighted(batch_norm(in[0], {}, {}, in[1], in[2], true)); },
                  {leaf({4, 3}), leaf({3}), leaf({3}, -1, 1, 9)});
}

// ---- embedding ----

TEST(GradcheckEmbedding, RepeatedIndicesOfEveryShape) {
  for (const Tensor& index :
       {indices({2, 0, 2, 2, 1, 0}, {6}), indices({2, 0, 2, 2, 1, 0}, {2, 3}), indices({3, 3}, {2, 1, 1}),
        indices({1}, {}), indices({}, {0}), indices({}, {2, 0}), indices({2, 0, 2, 2, 1, 0}, {2, 3}).t(),
        indices({2, 0, 2, 2, 1, 0}, {6}).to(DType::i32)}) {
    SCOPED_TRACE(to_string(index.shape()));
    const Tensor weight = leaf({4, 3});
    const auto look_up = [&](const Tensors& in) { return weighted(embedding(index, in[0])); };
    for (const Tensor& table : {weight, transposed_leaf(weight), stepped_leaf(weight)}) {
      expect_gradient(look_up, {table});
    }
    EXPECT_EQ(embedding(index, weight).dim(), index.dim() + 1);
  }
  expect_gradient([](const Tensors& in) { return embedding(indices({1, 0}, {2}), in[0]).t() * 2; }, {leaf({2, 3})});
  expect_gradient([](const Tensors& in) { return embedding(indices({1, 0}, {2}), in[0]); }, {leaf({2, 0})});
}

TEST(Embedding, ThePaddingRowGetsNoGradient) {
  for (const std::int64_t padding : {1, -3}) {
    const Tensor weight = leaf({4, 2});
    const Tensor out = embedding(indices({1, 0, 1, 3}, {4}), weight, padding);
    EXPECT_EQ(out[0].to_vector<double>(), weight[1].to_vector<double>()) << "only the gradient is left out";
    out.sum().backward();
    EXPECT_EQ(weight.grad().to_vector<double>(), (Values{1, 1, 0, 0, 0, 0, 1, 1}));
    embedding(indices({1, 2}, {2}), weight, padding).sum().backward();
    EXPECT_EQ(weight.grad().to_vector<double>(), (Values{1, 1, 0, 0, 1, 1, 1, 1}));
    embedding(indices({1}, {1}), weight).sum().backward();
    EXPECT_EQ(weight.grad().to_vector<double>(), (Values{1, 1, 1, 1, 1, 1, 1, 1})) << "what is there stays";
  }
}

TEST(Embedding, SixteenBitSumsAreRoundedOnce) {
  // 300 times 1: adding one by one in bfloat16 would stop at 256.
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor weight = ones({2, 1}, {.dtype = dtype, .requires_grad = true});
    const Tensor many = zeros({300}, {.dtype = DType::i64});
    embedding(many, weight).sum().backward();
    EXPECT_EQ(weight.grad().to_vector<double>(), (Values{300, 0}));
    embedding(many, weight).sum().backward();
    EXPECT_EQ(weight.grad().to_vector<double>(), (Values{600, 0}));
  }
}

// ---- all three ----

TEST(Norm, GradientsAddUpOverTwoPasses) {
  const Tensor x = leaf({4, 3});
  const Tensor weight = leaf({3}, 0.5, 1.5);
  const Tensor bias = leaf({3});
  const auto losses = {
      +[](const Tensor& a, const Tensor& w, const Tensor& b) { return weighted(layer_norm(a, {3}, w, b)).sum(); },
      +[](const Tensor& a, const Tensor& w, const Tensor& b) {
        return weighted(batch_norm(a, {}, {}, w, b, true)).sum();
      }};
  for (const auto& loss : losses) {
    const auto leaves = {&x, &weight, &bias};
    loss(x, weight, bias).backward();
    std::vector<Values> once;
    for (const Tensor* t : leaves) {
      once.push_back(t->grad().to_vector<double>());
    }
    loss(x, weight, bias).backward();
    std::size_t k = 0;
    for (const Tensor* t : leaves) {
      const Values twice = t->grad().to_vector<double>();
      for (std::size_t i = 0; i < twice.size(); ++i) {
        EXPECT_NEAR(twice[i], 2 * once[k][i], 1e-14);
      }
      t->zero_grad();
      ++k;
    }
  }
}

TEST(BatchNorm, RunningStatisticsAreWrittenInPlaceInTrainingOnly) {
  const Tensor mean = zeros({2});
  const Tensor var = ones({2});
  const Tensor x = tensor({1.0, 10.0, 3.0, 30.0}).reshape({2, 2});
  const std::uint32_t version = mean.version();
  batch_norm(x, mean, var);
  EXPECT_EQ(mean.version(), version);
  batch_norm(x, mean, var, {}, {}, true, 0.5);
  EXPECT_EQ(mean.to_vector<double>(), (Values{1, 10}));
  EXPECT_EQ(var.to_vector<double>(), (Values{1.5, 100.5})) << "half of 1 and half of the unbiased 2 and 200";
  EXPECT_GT(mean.version(), version) << "autograd must notice";
  batch_norm(zeros({0, 2}), mean, var, {}, {}, true, 0.5);
  EXPECT_EQ(mean.to_vector<double>(), (Values{1, 10})) << "an empty batch changes nothing";
}

TEST(BatchNorm, ASavedRunningMeanThatIsChangedIsNoticed) {
  const Tensor mean = zeros({2}, {.dtype = DType::f64});
  const Tensor var = ones({2}, {.dtype = DType::f64});
  const Tensor x = leaf({3, 2});
  const Tensor loss = (x * mean).sum();
  batch_norm(x, mean, var, {}, {}, true);
  EXPECT_THROW(loss.backward(), AutogradError);
}

TEST(LayerNorm, MessagesSayWhatDoesNotFit) {
  TANDEM_SKIP_ON_GPU("the messages name cpu:0");
  EXPECT_EQ(message_of<ShapeError>([] { layer_norm(zeros({5, 3}), {4}); }),
            "layer_norm: the last dimensions of the input [5, 3] must be the normalized_shape [4]");
  EXPECT_THROW(layer_norm(zeros({3}), {2, 3}), ShapeError);
  EXPECT_THROW(layer_norm(zeros({3}), {}), ShapeError);
  EXPECT_EQ(message_of<ShapeError>([] { layer_norm(zeros({5, 3}), {3}, ones({3, 1})); }),
            "layer_norm: weight [3, 1] does not fit the input [5, 3]: expected [3]");
  EXPECT_EQ(message_of<DTypeError>([] { layer_norm(zeros({5, 3}), {3}, {}, ones({3}, {.dtype = DType::f64})); }),
            "layer_norm: input is f32, bias f64. Convert the input: x.to(DType::f64)");
  EXPECT_EQ(message_of<DeviceError>([] { layer_norm(zeros({5, 3}), {3}, ones({3}, {.device = "cpu:1"})); }),
            "layer_norm: input is on cpu:0, weight on cpu:1. Move the input: x.to(\"cpu:1\")");
  EXPECT_EQ(message_of<DTypeError>([] { layer_norm(tensor({1, 2}), {2}); }),
            "layer_norm: needs floating point, got i64 [2]; convert with .to(DType::f32)");
}

TEST(BatchNorm, MessagesSayWhatDoesNotFit) {
  const Tensor mean = zeros({3});
  const Tensor var = ones({3});
  EXPECT_EQ(message_of<ShapeError>([&] { batch_norm(zeros({3}), mean, var); }),
            "batch_norm: the input must be [batch, channels, ...], got [3]");
  EXPECT_EQ(message_of<ShapeError>([&] { batch_norm(zeros({5, 4}), mean, var); }),
            "batch_norm: running_mean [3] does not fit the input [5, 4]: expected [4]");
  EXPECT_EQ(message_of<ValueError>([&] { batch_norm(zeros({1, 3}), mean, var, {}, {}, true); }),
            "batch_norm: training needs more than one value per channel, got the input [1, 3]; use a larger batch, or "
            "evaluation mode");
  EXPECT_EQ(message_of<ConfigError>([&] { batch_norm(zeros({5, 3}), mean, {}); }),
            "batch_norm: running_mean and running_var go together: give both or none");
  EXPECT_EQ(message_of<ConfigError>([&] { batch_norm(zeros({5, 3}), {}, {}); }),
            "batch_norm: without training, running_mean and running_var must be given");
  Tensor trained = ones({3}, {.requires_grad = true});
  EXPECT_EQ(message_of<AutogradError>([&] { batch_norm(zeros({5, 3}), mean, trained, {}, {}, true); }),
            "batch_norm: running_var is changed in place and must not require a gradient");
  EXPECT_EQ(
      message_of<ShapeError>([&] { batch_norm(zeros({5, 3}), mean.slice(0, 0, 1).expand({3}), var, {}, {}, true); }),
      "batch_norm: running_mean is changed in place and must be contiguous");
  EXPECT_EQ(mean.to_vector<double>(), (Values{0, 0, 0})) << "nothing was changed";
}

TEST(Embedding, MessagesSayWhatDoesNotFit) {
  TANDEM_SKIP_ON_GPU("wrong values are found later on a GPU; see tests/cuda/fault_test.cpp");
  const Tensor weight = zeros({5, 2});
  EXPECT_EQ(message_of<ValueError>([&] { embedding(indices({1, 0, 5, 2}, {2, 2}), weight); }),
            "embedding: index 5 at position 2 is outside [0, 5)");
  EXPECT_EQ(message_of<ValueError>([&] { embedding(indices({-1}, {1}), weight); }),
            "embedding: index -1 at position 0 is outside [0, 5)");
  EXPECT_EQ(message_of<DTypeError>([&] { embedding(zeros({2}), weight); }),
            "embedding: indices must be i64 or i32, got f32; convert with .to(DType::i64)");
  EXPECT_EQ(message_of<ShapeError>([&] { embedding(indices({1}, {1}), zeros({5})); }),
            "embedding: the weight must be [rows, dim], got [5]");
  EXPECT_EQ(message_of<ConfigError>([&] { embedding(indices({1}, {1}), weight, 5); }),
            "embedding: padding_idx 5 is outside [-5, 5)");
  EXPECT_EQ(message_of<DeviceError>([&] { embedding(indices({1}, {1}).to("cpu:1"), weight); }),
            "embedding: indices are on cpu:1, the weight on cpu:0. Move the indices: x.to(\"cpu:0\")");
  EXPECT_THROW(embedding(indices({1}, {1}), zeros({5, 2}, {.dtype = DType::i64})), DTypeError);
}

}  // namespace
}  // namespace tandem
