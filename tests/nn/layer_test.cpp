#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/gradcheck.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/init.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/stateless.h>

#include "models.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;

using Values = std::vector<double>;

// ---- Linear ----

TEST(Linear, ComputesXTimesWeightTransposedPlusBias) {
  nn::Linear layer(2, 3);
  {
    const NoGradGuard no_grad;
    layer.weight.copy_(from_data(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2}));
    layer.bias.copy_(tensor({0.5, -0.5, 10.0}));
  }
  EXPECT_EQ(layer(tensor({1.0, 10.0})).to_vector<double>(), (Values{21.5, 42.5, 75}));
  EXPECT_EQ(layer(ones({4, 5, 2})).shape(), (Shape{4, 5, 3}));
  EXPECT_EQ(layer.forward_relu(tensor({-1.0, 0.0})).to_vector<double>(), (Values{0, 0, 5}));
}

TEST(Linear, StartsUniformlyWithinOneOverTheRootOfItsInputs) {
  for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{1, 4}, {16, 64}, {100, 10}, {784, 3}}) {
    const nn::Linear layer(in, out);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    for (const Tensor& p : layer.parameters()) {
      double largest = 0;
      for (const double x : p.to_vector<double>()) {
        largest = std::max(largest, std::abs(x));
      }
      EXPECT_LE(largest, bound * (1 + 1e-6));
      EXPECT_GT(largest, bound * 0.2);
    }
  }
}

TEST(Linear, IsReproducibleBySeedAndDrawsEachTimeAnew) {
  const auto draw = [] { return nn::Linear(5, 7).weight.to_vector<double>(); };
  manual_seed(4);
  const Values first = draw();
  const Values second = draw();
  EXPECT_NE(first, second);
  manual_seed(4);
  EXPECT_EQ(draw(), first);
  EXPECT_EQ(draw(), second);
  manual_seed(5);
  EXPECT_NE(draw(), first);
}

TEST(Linear, TakesOptions) {
  const nn::Linear bare(3, 2, {.bias = false});
  EXPECT_FALSE(bare.bias.defined());
  EXPECT_EQ(bare.parameters().size(), 1u);
  EXPECT_EQ(bare(zeros({1, 3})).to_vector<double>(), (Values{0, 0}));
  const nn::Linear there(3, 2, {.device = "cpu:1", .dtype = DType::f64});
  EXPECT_EQ(there.weight.device(), Device("cpu:1"));
  EXPECT_EQ(there.bias.dtype(), DType::f64);
  const core::DeviceScope scope("cpu:2");
  EXPECT_EQ(nn::Linear(1, 1).weight.device(), Device("cpu:2"));
}

TEST(Linear, MayHaveNoInputsOrOutputs) {
  const nn::Linear from_nothing(0, 2);
  EXPECT_EQ(from_nothing(zeros({3, 0})).to_vector<double>(), Values(6, 0.0));
  const nn::Linear to_nothing(2, 0);
  EXPECT_EQ(to_nothing(zeros({3, 2})).shape(), (Shape{3, 0}));
  EXPECT_EQ(message_of<ConfigError>([] { nn::Linear(-1, 2); }), "Linear: sizes must not be negative, got -1 and 2");
}

TEST(LayerInit, UniformAndKaiming) {
  Tensor weight = empty({8, 24}, {.requires_grad = true});
  nn::init::uniform_(weight, 2, 3);
  for (const double x : weight.to_vector<double>()) {
    EXPECT_TRUE(x >= 2 && x <= 3) << x;
  }
  nn::init::kaiming_uniform_(weight, 0);
  double largest = 0;
  for (const double x : weight.to_vector<double>()) {
    largest = std::max(largest, std::abs(x));
  }
  EXPECT_LE(largest, std::sqrt(6.0 / 24) * (1 + 1e-6));
  EXPECT_GT(largest, 0.4);
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_TRUE(weight.is_leaf()) << "initialisation is not recorded";
  Tensor vector = empty({3});
  EXPECT_EQ(message_of<ShapeError>([&] { nn::init::kaiming_uniform_(vector); }),
            "kaiming_uniform_: the weight must be [out, in, ...], got [3]");
}

TEST(ReLU, IsALayer) { EXPECT_EQ(nn::ReLU()(tensor({-1.0, 0.0, 2.0})).to_vector<double>(), (Values{0, 0, 2})); }

// ---- Dropout ----

TEST(Dropout, ZeroesTheGivenShareAndScalesTheRest) {
  manual_seed(1);
  constexpr double kCount = 100'000;
  const Tensor x = ones({static_cast<std::int64_t>(kCount)});
  for (const double p : {0.1, 0.25, 0.5, 0.9}) {
    const nn::Dropout layer(p);
    const Values out = layer(x).to_vector<double>();
    double zeros_seen = 0;
    for (const double v : out) {
      zeros_seen += v == 0;
      EXPECT_TRUE(v == 0 || std::abs(v - 1 / (1 - p)) < 1e-5) << v;
    }
    EXPECT_NEAR(zeros_seen / kCount, p, 5 * std::sqrt(p * (1 - p) / kCount));
  }
}

TEST(Dropout, DrawsAnewEachTimeAndIsReproducibleBySeed) {
  const nn::Dropout layer(0.5);
  const Tensor x = ones({100});
  manual_seed(2);
  const Values first = layer(x).to_vector<double>();
  const Values second = layer(x).to_vector<double>();
  EXPECT_NE(first, second);
  manual_seed(2);
  EXPECT_EQ(layer(x).to_vector<double>(), first);
  EXPECT_EQ(layer(x).to_vector<double>(), second);
}

TEST(Dropout, PassesInEvaluationAndWithProbabilityZero) {
  nn::Dropout layer(0.9);
  const Tensor x = randn({10});
  layer.eval();
  EXPECT_EQ(layer(x).to_vector<double>(), x.to_vector<double>());
  EXPECT_EQ(nn::Dropout(0)(x).to_vector<double>(), x.to_vector<double>());
  layer.train();
  EXPECT_NE(layer(x).to_vector<double>(), x.to_vector<double>());
}

TEST(Dropout, WithProbabilityOneIsZeroAndSoIsItsGradient) {
  const Tensor x = from_data(std::vector<double>{1, -2, INFINITY}, {3}, {.requires_grad = true});
  const Tensor out = nn::Dropout(1)(x);
  EXPECT_EQ(out.to_vector<double>(), Values(3, 0.0));
  out.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), Values(3, 0.0));
}

TEST(Dropout, UsesTheSameMaskBackwards) {
  const Tensor x = ones({1000}, {.dtype = DType::f64, .requires_grad = true});
  const Tensor out = nn::Dropout(0.3)(x);
  out.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), out.to_vector<double>());
}

TEST(Dropout, RefusesWhatIsNoProbability) {
  EXPECT_EQ(message_of<ConfigError>([] { nn::Dropout(1.5); }),
            "Dropout: the probability must be between 0 and 1, got 1.5");
  EXPECT_THROW(nn::Dropout(-0.1), ConfigError);
  EXPECT_THROW(nn::Dropout(std::nan("")), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([] { dropout(ones({2}), 2); }),
            "dropout: the probability must be between 0 and 1, got 2");
  EXPECT_EQ(message_of<DTypeError>([] { nn::Dropout()(tensor({1, 2})); }),
            "Dropout: needs floating point, got i64 [2]; convert with .to(DType::f32)");
}

}  // namespace
}  // namespace tandem
