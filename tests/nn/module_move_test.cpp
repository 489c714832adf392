#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/parameter.h>

#include <tandem/core/error.h>
#include <tandem/nn/container.h>
#include <tandem/nn/module.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/sgd.h>

#include "models.h"
#include "support/message.h"

// Tests that moving C++ objects does not disturb the tree they belong to.

namespace tandem {
namespace {

using test::message_of;
using test::Mixed;
using test::Mlp;
using test::names_of;
using ::testing::ElementsAre;

static_assert(!std::is_copy_constructible_v<Mlp> && !std::is_copy_assignable_v<Mlp>);
static_assert(!std::is_copy_constructible_v<Parameter> && !std::is_copy_assignable_v<Buffer>);
static_assert(std::is_nothrow_move_constructible_v<nn::Linear> && std::is_move_assignable_v<nn::Linear>);

Tensor rows() { return arange(8.0).reshape({2, 4}) * 0.1; }

// Checks everything that a user sees of a model.
void expect_works(Mlp& model, const std::vector<double>& output) {
  EXPECT_EQ(model(rows()).to_vector<double>(), output);
  EXPECT_THAT(names_of(model.named_parameters()), ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_EQ(model.parameters()[2].unresolved(), model.fc2.weight.unresolved());
  EXPECT_EQ(model.fc2.path(), "fc2");
  model.eval();
  EXPECT_FALSE(model.fc1.is_training());
  model.train();
  EXPECT_TRUE(model.fc1.is_training());
  model.zero_grad();
  model(rows()).sum().backward();
  EXPECT_TRUE(model.fc1.weight.grad().defined());
}

TEST(ModuleMove, Constructor) {
  Mlp model;
  const auto output = model(rows()).to_vector<double>();
  Mlp moved = std::move(model);
  expect_works(moved, output);
}

TEST(ModuleMove, Assignment) {
  Mlp model;
  const auto output = model(rows()).to_vector<double>();
  Mlp other;
  other = std::move(model);
  expect_works(other, output);
}

TEST(ModuleMove, Swap) {
  Mlp a;
  Mlp b;
  const auto of_a = a(rows()).to_vector<double>();
  const auto of_b = b(rows()).to_vector<double>();
  std::swap(a, b);
  expect_works(a, of_b);
  expect_works(b, of_a);
}

// Assignment replaces a layer, like assigning an attribute in Python.
TEST(ModuleMove, AChildIsReplacedInItsTree) {
  Mlp a;
  a.fc2 = nn::Linear(8, 5);
  EXPECT_EQ(a(rows()).size(-1), 5);
  EXPECT_EQ(a.fc2.path(), "fc2");
  EXPECT_EQ(a.get_parameter("fc2.weight").shape(), (Shape{5, 8}));
  EXPECT_EQ(a.named_parameters().size(), 4U);
  EXPECT_EQ(autograd::parameter_name(a.fc2.weight), "fc2.weight");
  a(rows()).sum().backward();
  EXPECT_TRUE(a.fc2.weight.grad().defined());
  a.eval();
  EXPECT_FALSE(a.fc2.is_training());
  nn::Sequential net(nn::Linear(4, 3), nn::ReLU(), nn::Linear(3, 2));
  net.get<nn::Linear>(2) = nn::Linear(3, 7);
  EXPECT_EQ(net(rows()).size(-1), 7);
  EXPECT_EQ(net.get_parameter("2.weight").shape(), (Shape{7, 3}));
}

TEST(ModuleMove, AChildOfAnotherModuleReplacesNothing) {
  Mlp a;
  Mlp b;
  const auto output = a(rows()).to_vector<double>();
  EXPECT_EQ(message_of<ConfigError>([&] { a.fc1 = std::move(b.fc1); }),
            "Linear 'fc1' cannot be replaced by 'fc1', which is a child of another module");
  EXPECT_EQ(a(rows()).to_vector<double>(), output);
  EXPECT_THROW(a.fc1.weight = std::move(b.fc1.weight), ConfigError);
}

struct TiedPair : nn::Module<TiedPair> {
  nn::Linear a = child("a", nn::Linear(2, 2));
  nn::Linear b = child("b", nn::Linear(2, 2));
  TiedPair() { tie(b.weight, a.weight); }
  Tensor forward(const Tensor& x) const { return b(a(x)); }
};

TEST(ModuleMove, AssignmentOfAModelWithTiedWeights) {
  TiedPair model;
  TiedPair other;
  const Tensor x = ones({1, 2});
  const auto output = other(x).to_vector<double>();
  model = std::move(other);
  EXPECT_EQ(model(x).to_vector<double>(), output);
  EXPECT_EQ(model.num_parameters(), 8);
}

TEST(ModuleMove, OutOfAFunction) {
  std::vector<double> output;
  const auto make = [&] {
    Mlp model;
    output = model(rows()).to_vector<double>();
    return std::optional<Mlp>(std::move(model));  // prevents elision
  };
  auto made = make();
  expect_works(*made, output);
}

TEST(ModuleMove, InAGrowingVector) {
  std::vector<Mlp> models;
  std::vector<std::vector<double>> outputs;
  for (int i = 0; i < 20; ++i) {
    models.emplace_back();
    outputs.push_back(models.back()(rows()).to_vector<double>());
  }
  models.erase(models.begin());
  outputs.erase(outputs.begin());
  for (std::size_t i = 0; i < models.size(); ++i) {
    expect_works(models[i], outputs[i]);
  }
}

TEST(ModuleMove, ChildrenInAVector) {
  struct Nested : nn::Module<Nested> {
    explicit Nested(int layers) {
      for (int i = 0; i < layers; ++i) {
        body.push_back(child("layer" + std::to_string(i), nn::Linear(4, 4)));
      }
    }
    Tensor forward(Tensor x) const {
      for (const nn::Linear& layer : body) {
        x = layer(x);
      }
      return x;
    }
    std::vector<nn::Linear> body;
  };
  std::vector<Nested> models;
  for (int i = 0; i < 3; ++i) {
    models.emplace_back(5);
  }
  for (const Nested& model : models) {
    EXPECT_EQ(model.parameters().size(), 10u);
    EXPECT_EQ(model.body[3].path(), "layer3");
    EXPECT_NO_THROW(model(rows()));
  }
}

TEST(ModuleMove, AMemberThatIsAssignedInTheConstructor) {
  struct Model : nn::Module<Model> {
    nn::Linear fc{1, 1};
    explicit Model(std::int64_t in) { fc = child("fc", nn::Linear(in, 2)); }
    Tensor forward(const Tensor& x) const { return fc(x); }
  };
  const Model model(4);
  EXPECT_EQ(model(rows()).shape(), (Shape{2, 2}));
  EXPECT_EQ(model.parameters().size(), 2u);
}

TEST(ModuleMove, IntoAParent) {
  struct Parent : nn::Module<Parent> {
    explicit Parent(Mlp m) : body(child("body", std::move(m))) {}
    Tensor forward(const Tensor& x) const { return body(x); }
    Mlp body;
  };
  Mlp model;
  const auto output = model(rows()).to_vector<double>();
  Parent parent(std::move(model));
  std::vector<Parent> parents;
  parents.push_back(std::move(parent));
  parents.emplace_back(Mlp());
  EXPECT_EQ(parents[0](rows()).to_vector<double>(), output);
  EXPECT_EQ(parents[0].body.fc1.path(), "body.fc1");
  EXPECT_EQ(autograd::parameter_name(parents[0].body.fc1.weight), "body.fc1.weight");
}

TEST(ModuleMove, KeepsOptimizersValid) {
  auto model = std::make_unique<Mlp>();
  optim::SGD sgd(model->parameters(), {.lr = 0.1});
  Mlp moved = std::move(*model);
  model.reset();
  const auto before = moved.fc1.weight.to_vector<double>();
  moved(rows()).sum().backward();
  sgd.step();
  EXPECT_NE(moved.fc1.weight.to_vector<double>(), before);
}

TEST(ModuleMove, SequentialsAndWhatTheyHold) {
  nn::Sequential net(nn::Linear(4, 4), nn::Dropout(0.5), nn::Sequential(nn::Linear(4, 2), nn::ReLU()));
  net.eval();
  const auto output = net(rows()).to_vector<double>();
  std::vector<nn::Sequential> nets;
  nets.push_back(std::move(net));
  nets.emplace_back(nn::Linear(1, 1));
  EXPECT_EQ(nets[0](rows()).to_vector<double>(), output);
  EXPECT_EQ(nets[0].size(), 3u);
  EXPECT_THAT(names_of(nets[0].named_parameters()), ElementsAre("0.weight", "0.bias", "2.0.weight", "2.0.bias"));
  nets[0].push_back(nn::Linear(2, 1));
  EXPECT_EQ(nets[0](rows()).shape(), (Shape{2, 1}));
  EXPECT_EQ(nets[0].parameters().size(), 6u);
}

TEST(ModuleMove, ChildrenSurviveTheirParent) {
  std::optional<nn::Linear> survivor;
  {
    Mlp model;
    survivor = std::move(model.fc1);
  }
  EXPECT_EQ((*survivor)(rows()).shape(), (Shape{2, 8}));
  EXPECT_EQ(survivor->parameters().size(), 2u);
  struct Parent : nn::Module<Parent> {
    explicit Parent(nn::Linear m) : body(child("body", std::move(m))) {}
    nn::Linear body;
  };
  const Parent parent(std::move(*survivor));
  EXPECT_EQ(parent.body.path(), "body") << "and may be adopted again";
}

// ---- moved-from modules ----

TEST(MovedFromModule, SaysSo) {
  Mlp model;
  const Mlp taken = std::move(model);
  const std::string expected = "this module was moved from: use the one that it was moved to";
  // NOLINTBEGIN(bugprone-use-after-move)
  EXPECT_EQ(message_of<ConfigError>([&] { model(rows()); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.parameters(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.named_parameters(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.buffers(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.named_buffers(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.state_dict(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.load_state_dict(taken.state_dict()); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.eval(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.is_training(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.to("cpu:1"); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.to(DType::f64); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.zero_grad(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.type_name(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.path(); }), expected);
  // NOLINTEND(bugprone-use-after-move)
}

TEST(MovedFromModule, CannotBeRegistered) {
  struct Parent : nn::Module<Parent> {
    explicit Parent(nn::Linear& m) { adopt("body", m); }
  };
  nn::Linear layer(2, 2);
  const nn::Linear taken = std::move(layer);
  EXPECT_THROW(Parent{layer}, ConfigError);  // NOLINT(bugprone-use-after-move)
}

TEST(MovedFromModule, MayBeAssignedAgain) {
  Mlp model;
  const Mlp taken = std::move(model);
  model = Mlp();
  EXPECT_NO_THROW(model(rows()));
}

}  // namespace
}  // namespace tandem
