#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/autocast.h>
#include <tandem/autograd/ops.h>
#include <tandem/autograd/sample_norms.h>
#include <tandem/nn/container.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/group_norm.h>
#include <tandem/nn/layer_norm.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/loss.h>
#include <tandem/nn/stateless.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

// Tests of the norms of single samples' gradients, against a backward pass for each sample.

namespace tandem {
namespace {

using autograd::per_sample_gradient_norms;
using test::message_of;
using ::testing::DoubleNear;
using ::testing::Pointwise;

using Losses = std::function<Tensor(const Tensor& x)>;

std::vector<double> one_by_one(const Losses& losses, const Tensor& x, const std::vector<Tensor>& parameters) {
  std::vector<double> norms;
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    for (const Tensor& parameter : parameters) {
      parameter.zero_grad();
    }
    losses(x.narrow(0, b, 1)).sum().backward();
    double squares = 0;
    for (const Tensor& parameter : parameters) {
      squares += parameter.grad().defined() ? parameter.grad().pow(2).sum().item() : 0;
    }
    norms.push_back(std::sqrt(squares));
  }
  for (const Tensor& parameter : parameters) {
    parameter.zero_grad();
  }
  return norms;
}

template <class Model>
void expect_norms(Model& model, const Tensor& x) {
  model.to(DType::f64);
  const auto losses = [&](const Tensor& in) {
    const Tensor out = model(in);
    return (out * out).reshape({in.size(0), -1}).sum({1}) + out.reshape({in.size(0), -1}).sum({1});
  };
  const std::vector<Tensor> parameters = model.parameters();
  const Tensor norms = per_sample_gradient_norms(losses(x), parameters);
  EXPECT_EQ(norms.dtype(), DType::f64);
  EXPECT_THAT(norms.to_vector<double>(), Pointwise(DoubleNear(1e-9), one_by_one(losses, x, parameters)));
  for (const Tensor& parameter : parameters) {
    EXPECT_FALSE(parameter.grad().defined());
  }
}

const TensorOptions kF64{.dtype = DType::f64};

TEST(PerSampleGradientNorms, OfLinearLayers) {
  nn::Sequential model(nn::Linear(4, 6), nn::ReLU(), nn::Linear(6, 5, {.bias = false}), nn::Tanh(), nn::Linear(5, 3));
  expect_norms(model, randn({7, 4}, kF64));
  expect_norms(model, randn({1, 4}, kF64));
  expect_norms(model, randn({3, 5, 4}, kF64));  // five places each
}

TEST(PerSampleGradientNorms, OfConvolutions) {
  nn::Sequential model(nn::Conv2d(2, 4, 3, {.stride = 2, .padding = 1}), nn::ReLU(), nn::Conv2d(4, 6, 3, {.groups = 2}),
                       nn::Flatten(), nn::Linear(6 * 3 * 3, 2));
  expect_norms(model, randn({3, 2, 10, 10}, kF64));
  nn::Sequential turned(nn::ConvTranspose2d(2, 3, 3, {.stride = 2}), nn::Sigmoid());
  expect_norms(turned, randn({3, 2, 4, 4}, kF64));
  nn::Sequential line(nn::Conv1d(2, 3, 3), nn::Tanh());
  expect_norms(line, randn({4, 2, 8}, kF64));
}

struct Words : nn::Module<Words> {
  Words()
      : table(child("table", nn::Embedding(6, 4, {.padding_idx = 0}))),
        norm(child("norm", nn::LayerNorm(4))),
        head(child("head", nn::Linear(4, 3))) {}
  Tensor forward(const Tensor& x) const { return head(norm(table(x))); }
  nn::Embedding table;
  nn::LayerNorm norm;
  nn::Linear head;
};

TEST(PerSampleGradientNorms, OfEmbeddingsAndLayerNorms) {
  Words model;
  expect_norms(model, randint(0, 6, {5, 7}));  // words come more than once
  expect_norms(model, randint(0, 6, {5}));
}

TEST(PerSampleGradientNorms, LeaveTheGraphForBackward) {
  nn::Sequential model(nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 2));
  const Tensor losses = cross_entropy(model(randn({5, 3})), randint(0, 2, {5}), {.reduction = Reduction::none});
  const std::vector<Tensor> parameters = model.parameters();
  const Tensor norms = per_sample_gradient_norms(losses, parameters);
  (losses * clamp(1 / norms, 0, 1)).mean().backward();  // gradients of at most length 1 each
  double squares = 0;
  for (const Tensor& parameter : parameters) {
    squares += parameter.grad().pow(2).sum().item();
  }
  EXPECT_LE(std::sqrt(squares), 1 + 1e-6);
  EXPECT_EQ(per_sample_gradient_norms(losses.detach() + parameters[0].sum() * 0, {}).shape(), Shape{5});
}

TEST(PerSampleGradientNorms, OfPartsCountOnlyThose) {
  nn::Sequential model(nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 1));
  const Tensor x = randn({4, 3});
  const auto losses = [&](const Tensor& in) { return model(in).reshape({-1}); };
  const std::vector<Tensor> bias{model.parameters()[1]};
  EXPECT_THAT(per_sample_gradient_norms(losses(x), bias).to_vector<double>(),
              Pointwise(DoubleNear(1e-6), one_by_one(losses, x, bias)));
  EXPECT_EQ(per_sample_gradient_norms(losses(zeros({0, 3})), bias).shape(), Shape{0});
}

TEST(PerSampleGradientNorms, OfAnAutocastForwardPassAreThoseOfItsGradients) {
  manual_seed(2);
  nn::Sequential model(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 2));
  const Tensor x = randn({6, 4});
  const std::vector<Tensor> parameters = model.parameters();
  const auto losses = [&](const Tensor& in) { return model(in).to(DType::f32).pow(2).sum({1}); };
  const std::vector<double> exact = per_sample_gradient_norms(losses(x), parameters).to_vector<double>();
  const AutocastScope autocast(DType::bf16);
  const Tensor norms = per_sample_gradient_norms(losses(x), parameters);
  EXPECT_EQ(norms.dtype(), DType::f32);
  for (std::size_t b = 0; b < exact.size(); ++b) {
    EXPECT_NEAR(norms.to_vector<double>()[b], exact[b], 0.05 * exact[b]);
  }
}

TEST(PerSampleGradientNorms, OfSmallGradientsIn16BitsDoNotVanish) {
  nn::Sequential model(nn::Linear(3, 2));
  model.to(DType::f16);
  const Tensor x = ones({2, 3}, {.dtype = DType::f16});
  const Tensor losses = (model(x) * 1e-5).to(DType::f32).sum({1});
  const std::vector<Tensor> parameters = model.parameters();
  for (const double norm : per_sample_gradient_norms(losses, parameters).to_vector<double>()) {
    EXPECT_NEAR(norm, 1e-5 * std::sqrt(8.0), 1e-6);  // six weights and two biases
  }
}

TEST(PerSampleGradientNormErrors, NameTheOpOrTheParameter) {
  nn::Linear linear(3, 3);
  const Tensor x = randn({4, 3});
  EXPECT_EQ(message_of<ShapeError>([&] { per_sample_gradient_norms(linear(x).sum(), linear.parameters()); }),
            "per_sample_gradient_norms: expected a loss for each sample, [batch], got []; ask the loss for "
            "Reduction::none");
  EXPECT_EQ(
      message_of<AutogradError>([&] { per_sample_gradient_norms(linear(linear(x)).sum({1}), linear.parameters()); }),
      "per_sample_gradient_norms: parameter 'weight' is used twice, by 'linear' the second time; the norm of a sum "
      "is not known from its parts. Leave it out");
  const Tensor scale = ones({3}).requires_grad_();
  EXPECT_EQ(
      message_of<AutogradError>([&] { per_sample_gradient_norms((x * scale).sum({1}), std::vector{scale}); }),
      "per_sample_gradient_norms: 'mul' takes parameter 0 [3], and has no rule for single samples; linear layers, "
      "convolutions, embeddings and layer norms have one. Leave the parameter out");
  const Tensor learned = randn({4, 3}).requires_grad_();
  EXPECT_EQ(
      message_of<AutogradError>([&] { per_sample_gradient_norms(linear(learned).sum({1}), std::vector{learned}); }),
      "per_sample_gradient_norms: 'linear' takes parameter 0 [4, 3], and has no rule for single samples; linear "
      "layers, "
      "convolutions, embeddings and layer norms have one. Leave the parameter out");
  const Tensor leaf = ones({4}).requires_grad_();
  EXPECT_EQ(message_of<AutogradError>([&] { per_sample_gradient_norms(leaf, std::vector{leaf}); }),
            "per_sample_gradient_norms: the losses are themselves parameter 0 [4]");
  nn::Conv2d conv(2, 4, 1);
  EXPECT_EQ(message_of<ShapeError>([&] {
              per_sample_gradient_norms(conv(randn({2, 4, 4})).reshape({4, 16}).sum({1}), conv.parameters());
            }),
            "per_sample_gradient_norms: 'conv2d' has 1 samples, and there are 4 losses");
  EXPECT_EQ(message_of<ShapeError>([&] { per_sample_gradient_norms(linear(x).sum({0}), linear.parameters()); }),
            "per_sample_gradient_norms: the result [4, 3] of 'linear' has not the 3 samples in its first dimension");
}

}  // namespace
}  // namespace tandem
