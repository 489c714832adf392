#include <tandem/nn/container.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "models.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;
using test::Mlp;
using test::names_of;
using ::testing::ElementsAre;

using Layers = nn::ModuleList<nn::Linear>;

static_assert(!std::is_copy_constructible_v<Layers> && std::is_nothrow_move_constructible_v<Layers>);
static_assert(std::random_access_iterator<decltype(std::declval<Layers&>().begin())>);
static_assert(std::random_access_iterator<decltype(std::declval<const Layers&>().begin())>);

struct Deep : nn::Module<Deep> {
  Layers layers = child("layers", Layers());
  Deep() {
    layers.push_back(nn::Linear(3, 4));
    layers.emplace_back(4, 2);
  }
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (const auto& layer : layers) {
      y = layer(y);
    }
    return y;
  }
};

TEST(ModuleList, NumbersItsModules) {
  const Deep model;
  EXPECT_THAT(names_of(model.named_parameters()),
              ElementsAre("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"));
  EXPECT_EQ(model.layers.type_name(), "ModuleList");
  EXPECT_EQ(model.layers[1].path(), "layers.1");
  EXPECT_EQ(model.layers.size(), 2u);
  EXPECT_EQ(model(ones({5, 3})).shape(), (Shape{5, 2}));
  EXPECT_EQ(message_of<ShapeError>([&] { model(ones({5, 2})); }),
            "Linear 'layers.0': input [5, 2] has 2 features, layer expects 3 (weight [4, 3])");
}

TEST(ModuleList, IsMadeOfModulesAndMayBeEmpty) {
  const Layers list(nn::Linear(2, 3), nn::Linear(3, 1));
  EXPECT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].weight.shape(), (Shape{1, 3}));
  const Layers none;
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(none.begin() == none.end());
  EXPECT_TRUE(none.parameters().empty());
  EXPECT_EQ(message_of<ConfigError>([&] { none[0]; }), "ModuleList: there is no module 0, it holds 0");
  Deep model;
  EXPECT_EQ(message_of<ConfigError>([&] { model.layers[2]; }), "ModuleList 'layers': there is no module 2, it holds 2");
}

TEST(ModuleList, ElementsStayInPlace) {
  Layers list;
  const nn::Linear& first = list.push_back(nn::Linear(1, 1));
  for (int i = 0; i < 100; ++i) {
    list.emplace_back(1, 1);
  }
  EXPECT_EQ(&first, &list[0]);
  const Layers moved = std::move(list);
  EXPECT_EQ(&first, &moved[0]);
  EXPECT_EQ(first.path(), "0");
  EXPECT_EQ(moved[100].path(), "100");
}

TEST(ModuleList, IsFilledBeforeOrAfterItIsRegistered) {
  struct Parent : nn::Module<Parent> {
    explicit Parent(Layers given) : layers(child("layers", std::move(given))) {}
    Layers layers;
  };
  Layers list;
  list.emplace_back(2, 2);
  Parent parent(std::move(list));
  parent.layers.emplace_back(2, 2, nn::LinearOptions{.bias = false});
  EXPECT_THAT(names_of(parent.named_parameters()), ElementsAre("layers.0.weight", "layers.0.bias", "layers.1.weight"));
  std::vector<Parent> parents;
  parents.push_back(std::move(parent));
  parents.emplace_back(Layers());
  parents[0].layers.emplace_back(2, 2);
  EXPECT_EQ(parents[0].parameters().size(), 5u);
  EXPECT_EQ(autograd::parameter_name(parents[0].layers[2].bias), "layers.2.bias");
  EXPECT_EQ(message_of<ConfigError>([&] { list.emplace_back(1, 1); }),  // NOLINT(bugprone-use-after-move)
            "this module was moved from: use the one that it was moved to");
}

TEST(ModuleList, IsWalkedInBothDirectionsAndByAlgorithms) {
  Layers list(nn::Linear(1, 1), nn::Linear(1, 2), nn::Linear(1, 3));
  for (nn::Linear& layer : list) {
    layer.eval();
  }
  EXPECT_TRUE(std::ranges::none_of(list, [](const nn::Linear& layer) { return layer.is_training(); }));
  const auto wide = std::ranges::find_if(list, [](const nn::Linear& layer) { return layer.weight.size(0) == 3; });
  EXPECT_EQ(wide - list.begin(), 2);
  EXPECT_EQ(list.end()[-2].weight.size(0), 2);
  auto it = list.end();
  EXPECT_EQ((--it)->path(), "2");
  EXPECT_EQ((it--)->path(), "2");
  EXPECT_EQ((it++)->path(), "1");
  EXPECT_TRUE(1 + list.begin() < it && it - 1 > list.begin());
}

TEST(ModuleList, HoldsModelsAndLists) {
  nn::ModuleList<Mlp> models(Mlp(2, 3, 1), Mlp(2, 4, 1));
  EXPECT_EQ(models[1].fc1.path(), "1.fc1");
  nn::ModuleList<Layers> grid;
  grid.push_back(Layers(nn::Linear(1, 1)));
  grid[0].emplace_back(1, 1);
  EXPECT_EQ(grid[0][1].path(), "0.1");
}

TEST(ModuleList, ElementsAreReplacedByOthersThatAreFree) {
  Layers list(nn::Linear(1, 1));
  list[0] = nn::Linear(1, 3);
  EXPECT_EQ(list.get_parameter("0.weight").shape(), (Shape{3, 1}));
  Deep model;
  EXPECT_EQ(message_of<ConfigError>([&] { list.push_back(std::move(model.layers[0])); }),
            "ModuleList: child '1' belongs to another module already");
  EXPECT_EQ(list.size(), 1u);
}

TEST(ModuleList, PrintsNeighboursThatAreAlikeOnce) {
  nn::ModuleList<Mlp> models(Mlp(2, 3, 1), Mlp(2, 3, 1), Mlp(2, 4, 1));
  std::ostringstream out;
  out << models;
  EXPECT_EQ(out.str(), R"(ModuleList(
  (0-1): 2 x Mlp(
    (fc1): Linear(in_features=2, out_features=3, bias=true)
    (fc2): Linear(in_features=3, out_features=1, bias=true)
  )
  (2): Mlp(
    (fc1): Linear(in_features=2, out_features=4, bias=true)
    (fc2): Linear(in_features=4, out_features=1, bias=true)
  )
))");
}

// ---- Sequential: named layers, and access by type ----

TEST(NamedSequential, HasTheNamesGiven) {
  nn::Sequential net = nn::Sequential().add("fc1", nn::Linear(4, 8)).add("act", nn::ReLU());
  net.add("fc2", nn::Linear(8, 3)).push_back(nn::ReLU());
  EXPECT_THAT(names_of(net.named_parameters()), ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_EQ(net.named_children().back().first, "3");
  EXPECT_EQ(net(ones({2, 4})).shape(), (Shape{2, 3}));
  EXPECT_EQ(message_of<ConfigError>([&] { net.add("act", nn::ReLU()); }),
            "Sequential: the name 'act' is taken already");
  EXPECT_EQ(net.size(), 4u);
}

TEST(NamedSequential, GivesItsLayersWithTheirType) {
  nn::Sequential net = nn::Sequential().add("fc1", nn::Linear(4, 8)).add("act", nn::ReLU());
  EXPECT_EQ(net.get<nn::Linear>(0).weight.shape(), (Shape{8, 4}));
  EXPECT_EQ(std::as_const(net).get<nn::ReLU>(1).path(), "act");
  EXPECT_EQ(message_of<ConfigError>([&] { net.get<nn::Linear>(1); }),
            "Sequential: get: layer 1 'act' is a ReLU, not a Linear");
  EXPECT_EQ(message_of<ConfigError>([&] { net.get<nn::Linear>(2); }), "Sequential: there is no module 2, it holds 2");
}

// An aggregate: it has no constructor of its own.
struct Plain : nn::Module<Plain> {
  nn::Linear fc = child("fc", nn::Linear(2, 2));
  Tensor forward(const Tensor& x) const { return fc(x); }
};

TEST(Module, WithoutConstructorsIsMadeWithBraces) {
  Plain model{};
  EXPECT_THAT(names_of(model.named_parameters()), ElementsAre("fc.weight", "fc.bias"));
  EXPECT_EQ(Plain{}(zeros({3, 2})).shape(), (Shape{3, 2}));
  const nn::ModuleList<Plain> list(Plain{}, Plain{});
  EXPECT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1].fc.path(), "1.fc");
  EXPECT_EQ(nn::Sequential(Plain{}, nn::ReLU(), Plain{}).size(), 3U);
}

struct Further : Plain {};
struct Stranger : nn::Module<Plain> {
  Tensor forward(const Tensor& x) const { return x; }
};
static_assert(nn::OwnModule<Plain> && nn::OwnModule<Further> && nn::OwnModule<nn::Linear>);
static_assert(nn::OwnModule<nn::ModuleList<Plain>> && nn::OwnModule<nn::Sequential>);
static_assert(!nn::OwnModule<Stranger>, "its call would run Plain::forward on something else");
static_assert(!nn::Layer<Stranger>);

}  // namespace
}  // namespace tandem
