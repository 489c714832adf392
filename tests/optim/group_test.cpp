#include <tandem/optim/optimizer.h>

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/nn/linear.h>

#include "support/message.h"
#include "training_run.h"

namespace tandem {
namespace {

using optim::Adagrad;
using optim::Adam;
using optim::AdamW;
using optim::RMSprop;
using optim::SGD;
using test::gradient_at;
using test::kSizes;
using test::message_of;
using test::Values;

Tensor leaf(double value = 1) { return full({2}, value, {.dtype = DType::f64, .requires_grad = true}); }

TEST(ParamGroups, TakeWhatTheyDoNotSayFromTheOptimizer) {
  const nn::Linear body(3, 2);
  const nn::Linear head(2, 1);
  SGD sgd({{.params = body.parameters()}, {.params = head.parameters(), .lr = 0.1, .weight_decay = 0.5}},
          {.lr = 0.01, .momentum = 0.9, .weight_decay = 0.2});
  ASSERT_EQ(sgd.param_groups().size(), 2u);
  const optim::Group& first = sgd.param_groups()[0];
  const optim::Group& second = sgd.param_groups()[1];
  EXPECT_EQ(first.lr(), 0.01);
  EXPECT_EQ(first.weight_decay(), 0.2);
  EXPECT_EQ(first.momentum(), 0.9);
  EXPECT_EQ(second.lr(), 0.1);
  EXPECT_EQ(second.weight_decay(), 0.5);
  EXPECT_EQ(second.params().size(), 2u);
  EXPECT_EQ(sgd.learning_rate(), 0.01) << "that of the first group";
  ASSERT_EQ(sgd.parameters().size(), 4u);
  EXPECT_EQ(sgd.parameters()[2].unresolved(), head.weight.unresolved());
  sgd.set_learning_rate(0.3);
  EXPECT_EQ(first.lr(), 0.3);
  EXPECT_EQ(second.lr(), 0.3);
}

TEST(ParamGroups, AreTakenByEveryOptimizer) {
  const Tensor a = leaf();
  const Tensor b = leaf();
  const std::vector<optim::ParamGroup> groups{{.params = {a}, .lr = 0.5}, {.params = {b}}};
  EXPECT_EQ(SGD(groups).param_groups()[0].lr(), 0.5);
  EXPECT_EQ(Adam({{.params = {a}, .lr = 0.5}}).param_groups()[0].lr(), 0.5);
  EXPECT_EQ(AdamW({{.params = {a}}, {.params = {b}}}).param_groups()[1].weight_decay(), 0.01);
  EXPECT_EQ(RMSprop(groups, {.momentum = 0.3}).param_groups()[1].momentum(), 0.3);
  EXPECT_EQ(Adagrad({{.params = {a}}, {.params = {b}, .lr = 2}}, {.lr = 1}).param_groups()[1].lr(), 2);
  EXPECT_EQ(Adagrad(groups).param_groups()[1].momentum(), std::nullopt);
  EXPECT_EQ(AdamW(groups).param_groups()[1].momentum(), 0.9) << "beta1";
}

// Groups that are neighbours in memory, are interleaved, or are ordered differently from their members behave like
// separate optimisers.
class EveryOptimizerInGroups : public ::testing::TestWithParam<test::Case> {};

TEST_P(EveryOptimizerInGroups, EqualsOneOptimizerPerGroup) {
  const test::Case& c = GetParam();
  for (const auto& [first, second] : {std::pair<std::vector<std::size_t>, std::vector<std::size_t>>{{0, 1}, {2, 3, 4}},
                                      {{0, 2, 4}, {1, 3}},
                                      {{3, 1, 4}, {2, 0}}}) {
    test::Training together(c, DType::f64);
    test::Training apart(c, DType::f64);
    ParameterStore::ensure(together.handles());  // fixes this memory order for any groups
    const auto pick = [](const test::Training& run, const std::vector<std::size_t>& which) {
      std::vector<Tensor> picked;
      for (const std::size_t i : which)
        picked.push_back(run.parameters[i]);
      return picked;
    };
    const auto grouped = c.make_groups({{.params = pick(together, first), .lr = 0.02},
                                        {.params = pick(together, second), .lr = 0.05, .weight_decay = 0.3}});
    const auto one = c.make_groups({{.params = pick(apart, first), .lr = 0.02}});
    const auto other = c.make_groups({{.params = pick(apart, second), .lr = 0.05, .weight_decay = 0.3}});
    for (int step = 0; step < 6; ++step) {
      if (step == 3) {
        grouped->param_groups()[0].set_lr(0.1);
        grouped->param_groups()[1].set_weight_decay(0);
        one->param_groups()[0].set_lr(0.1);
        other->param_groups()[0].set_weight_decay(0);
      }
      for (std::size_t i = 0; i < kSizes.size(); ++i) {
        for (const test::Training* run : {&together, &apart}) {
          run->parameters[i].zero_grad();
          run->parameters[i].backward(gradient_at(step, i, DType::f64));
        }
      }
      grouped->step();
      one->step();
      other->step();
    }
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      EXPECT_EQ(together.parameters[i].to_vector<double>(), apart.parameters[i].to_vector<double>()) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryOptimizerInGroups, ::testing::ValuesIn(test::kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ParamGroups, MistakesAreNamed) {
  const nn::Linear layer(2, 2);
  autograd::set_parameter_name(layer.weight, "fc.weight");
  const std::vector<Tensor> all = layer.parameters();
  EXPECT_EQ(message_of<ConfigError>([&] { SGD({{.params = all}, {.params = {leaf(), layer.weight}}}); }),
            "SGD: parameter 1 of group 1 'fc.weight' is in group 0 already");
  EXPECT_EQ(message_of<ConfigError>([&] { SGD({{.params = {leaf()}}, {.params = {layer.weight, layer.weight}}}); }),
            "SGD: parameter 1 of group 1 'fc.weight' appears twice");
  EXPECT_EQ(message_of<ConfigError>([&] { Adam({{.params = all}, {.params = {}}}); }),
            "Adam: group 1 has no parameters (did the model register its layers?)");
  EXPECT_EQ(message_of<ConfigError>([&] { SGD(std::vector<optim::ParamGroup>{}); }),
            "SGD: the list of parameters is empty (did the model register its layers?)");
  EXPECT_EQ(message_of<ConfigError>([&] { SGD({{.params = all}, {.params = {Tensor()}}}); }),
            "SGD: parameter 0 of group 1 is undefined");
  EXPECT_EQ(message_of<ConfigError>([&] { SGD({{.params = all}, {.params = {leaf() * 2}}}); }),
            "SGD: parameter 0 of group 1 is the result of an op; only leaves can be optimised, such as a module's "
            "parameters()");
  EXPECT_EQ(message_of<ConfigError>([&] { SGD({{.params = all, .lr = -1}}); }),
            "SGD: the learning rate must be a number >= 0, got -1");
  EXPECT_EQ(message_of<ConfigError>([&] { RMSprop({{.params = all, .weight_decay = -1}}); }),
            "RMSprop: weight_decay must be a number >= 0, got -1");
}

TEST(ParamGroups, WrongChangesAreRefused) {
  Adam adam({leaf()});
  optim::Group& group = adam.param_groups()[0];
  EXPECT_THROW(group.set_lr(std::nan("")), ConfigError);
  EXPECT_THROW(group.set_weight_decay(-0.1), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([&] { group.set_momentum(1); }), "Adam: momentum must be in [0, 1), got 1");
  EXPECT_EQ(group.lr(), 1e-3);
  group.set_momentum(0.8);
  EXPECT_EQ(group.momentum(), 0.8);
  SGD sgd({leaf()});
  EXPECT_EQ(message_of<ConfigError>([&] { sgd.param_groups()[0].set_momentum(0.5); }),
            "SGD: momentum cannot change from 0 to 0.5: choose when the optimiser is made whether there is any");
  Adagrad adagrad({leaf()});
  EXPECT_EQ(message_of<ConfigError>([&] { adagrad.param_groups()[0].set_momentum(0.5); }),
            "Adagrad: there is no momentum to be set");
}

TEST(Optimizers, OptionsOutOfRange) {
  EXPECT_EQ(message_of<ConfigError>([] { RMSprop({leaf()}, {.alpha = 1}); }),
            "RMSprop: alpha must be in [0, 1), got 1");
  EXPECT_EQ(message_of<ConfigError>([] { RMSprop({leaf()}, {.momentum = -1}); }),
            "RMSprop: eps, weight_decay and momentum must be >= 0, got 1e-08, 0 and -1");
  EXPECT_EQ(message_of<ConfigError>([] { Adagrad({leaf()}, {.lr_decay = -1}); }),
            "Adagrad: lr_decay, weight_decay and eps must be >= 0, got -1, 0 and 1e-10");
  EXPECT_EQ(message_of<ConfigError>([] { Adagrad({leaf()}, {.initial_accumulator_value = -1}); }),
            "Adagrad: initial_accumulator_value must be a number >= 0, got -1");
}

// 0 / 0 must cause no step. In the padding after a parameter it would be written again and again.
TEST(Optimizers, WithoutEpsLeaveElementsWithoutGradientAlone) {
  const auto expect_untouched = [](auto make) {
    const Tensor p = full({3}, 2.0, {.requires_grad = true});
    const auto optimizer = make(std::vector<Tensor>{p});
    for (int step = 0; step < 3; ++step) {
      p.zero_grad();
      p.backward(tensor({0.0, 1.0, 0.0}));
      optimizer->step();
    }
    const Values values = p.to_vector<double>();
    EXPECT_EQ(values[0], 2);
    EXPECT_LT(values[1], 2);
    const auto store = ParameterStore::find(p).store;
    for (const double value : Tensor(store->values()).to_vector<double>()) {
      EXPECT_TRUE(value == 0 || (value > 1 && value <= 2)) << value;
    }
  };
  expect_untouched([](const auto& p) { return std::make_unique<Adam>(p, optim::AdamOptions{.eps = 0}); });
  expect_untouched(
      [](const auto& p) { return std::make_unique<Adam>(p, optim::AdamOptions{.eps = 0, .amsgrad = true}); });
  expect_untouched(
      [](const auto& p) { return std::make_unique<RMSprop>(p, optim::RMSpropOptions{.eps = 0, .momentum = 0.9}); });
  expect_untouched([](const auto& p) { return std::make_unique<Adagrad>(p, optim::AdagradOptions{.eps = 0}); });
}

// The variance of a constant gradient is zero except for rounding.
TEST(RMSprop, CenteredWithAConstantGradientStaysFinite) {
  const Tensor p = zeros({1000}, {.requires_grad = true});
  RMSprop rmsprop({p}, {.lr = 1e-3, .alpha = 0.5, .eps = 1e-3, .centered = true});
  for (int step = 0; step < 100; ++step) {
    p.zero_grad();
    p.backward(arange(1000.0) * 0.37);
    rmsprop.step();
  }
  for (const double value : p.to_vector<double>()) {
    ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace tandem
