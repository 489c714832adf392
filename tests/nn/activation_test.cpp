#include <tandem/nn/stateless.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/nn/container.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;

using Values = std::vector<double>;

const Tensor kInput = tensor({-30.0, -3.0, -0.5, 0.0, 0.25, 1.0, 30.0}, {.dtype = DType::f64});

// Compares the layer's values with the formula's, element by element.
template <class Layer>
void expect_formula(const Layer& layer, const std::function<double(double)>& formula) {
  SCOPED_TRACE(layer.type_name());
  const Values got = layer(kInput).template to_vector<double>();
  const Values in = kInput.to_vector<double>();
  for (std::size_t i = 0; i < in.size(); ++i) {
    EXPECT_NEAR(got[i], formula(in[i]), 1e-12 * std::max(1.0, std::abs(in[i]))) << "at " << in[i];
  }
}

TEST(Activations, AreTheirFormulas) {
  const auto phi = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  expect_formula(nn::ReLU(), [](double x) { return std::max(x, 0.0); });
  expect_formula(nn::Tanh(), [](double x) { return std::tanh(x); });
  expect_formula(nn::Sigmoid(), [](double x) { return 1 / (1 + std::exp(-x)); });
  expect_formula(nn::SiLU(), [](double x) { return x / (1 + std::exp(-x)); });
  expect_formula(nn::GELU(), [&](double x) { return x * phi(x); });
  expect_formula(nn::GELU(GELUApproximation::tanh), [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  });
  expect_formula(nn::LeakyReLU(), [](double x) { return x > 0 ? x : 0.01 * x; });
  expect_formula(nn::LeakyReLU(0.5), [](double x) { return x > 0 ? x : 0.5 * x; });
  expect_formula(nn::ELU(), [](double x) { return x > 0 ? x : std::expm1(x); });
  expect_formula(nn::ELU(2), [](double x) { return x > 0 ? x : 2 * std::expm1(x); });
  expect_formula(nn::Softplus(), [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); });
  expect_formula(nn::Softplus(2, 1), [](double x) { return 2 * x > 1 ? x : std::log1p(std::exp(2 * x)) / 2; });
}

TEST(Activations, ReadAsPyTorchs) {
  const auto text = [](const nn::ModuleRef& module) { return module.type_name() + "(" + module.description() + ")"; };
  EXPECT_EQ(text(nn::ReLU()), "ReLU()");
  EXPECT_EQ(text(nn::Tanh()), "Tanh()");
  EXPECT_EQ(text(nn::GELU()), "GELU(approximate='none')");
  EXPECT_EQ(text(nn::GELU(GELUApproximation::tanh)), "GELU(approximate='tanh')");
  EXPECT_EQ(text(nn::LeakyReLU()), "LeakyReLU(negative_slope=0.01)");
  EXPECT_EQ(text(nn::ELU()), "ELU(alpha=1)");
  EXPECT_EQ(text(nn::Softplus()), "Softplus(beta=1, threshold=20)");
  EXPECT_EQ(text(nn::Softmax(-1)), "Softmax(dim=-1)");
  EXPECT_EQ(text(nn::LogSoftmax(1)), "LogSoftmax(dim=1)");
  EXPECT_EQ(text(nn::Flatten()), "Flatten(start_dim=1, end_dim=-1)");
  EXPECT_EQ(text(nn::Identity()), "Identity()");
}

TEST(Activations, RefuseWhatTheyCannotDo) {
  EXPECT_EQ(message_of<ConfigError>([] { nn::Softplus(0); }), "Softplus: beta must not be 0");
  EXPECT_EQ(message_of<DTypeError>([] { nn::Softmax(0)(tensor({1, 2})); }),
            "Softmax: needs floating point, got i64 [2]; convert with .to(DType::f32)");
}

TEST(Softmax, SumsToOneAlongItsDimension) {
  const Tensor x = randn({3, 4, 5}, {.dtype = DType::f64});
  for (const int dim : {0, 1, 2, -1}) {
    const Tensor y = nn::Softmax(dim)(x);
    for (const double sum : y.sum(dim).to_vector<double>()) {
      EXPECT_NEAR(sum, 1, 1e-12);
    }
    EXPECT_EQ(nn::LogSoftmax(dim)(x).to_vector<double>(), log_softmax(x, dim).to_vector<double>());
  }
  EXPECT_THROW(nn::Softmax(3)(x), ShapeError);
}

TEST(Flatten, MakesOneDimensionOfSeveral) {
  const Tensor x = zeros({2, 3, 4, 5});
  EXPECT_EQ(nn::Flatten()(x).shape(), (Shape{2, 60}));
  EXPECT_EQ(nn::Flatten(0)(x).shape(), (Shape{120}));
  EXPECT_EQ(nn::Flatten(1, 2)(x).shape(), (Shape{2, 12, 5}));
  EXPECT_EQ(nn::Flatten(-2)(x).shape(), (Shape{2, 3, 20}));
  EXPECT_EQ(nn::Flatten()(zeros({0, 3, 4})).shape(), (Shape{0, 12}));
  EXPECT_THROW(nn::Flatten(3, 1)(x), ShapeError);
}

TEST(Identity, HandsOnItsInput) {
  const Tensor x = ones({2});
  EXPECT_EQ(nn::Identity()(x).unresolved(), x.unresolved());
}

TEST(Activations, GoIntoASequential) {
  const nn::Sequential net(nn::Flatten(), nn::Linear(12, 4), nn::GELU(), nn::Identity(), nn::LogSoftmax(1));
  const Tensor y = net(randn({2, 3, 4}));
  EXPECT_EQ(y.shape(), (Shape{2, 4}));
  y.sum().backward();
  EXPECT_TRUE(net.get_parameter("1.weight").grad().defined());
}

}  // namespace
}  // namespace tandem
