#include <tandem/nn/module_ref.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/nn/container.h>
#include <tandem/nn/init.h>
#include <tandem/nn/stateless.h>
#include <tandem/nn/summary.h>
#include <tandem/nn/utils.h>

#include "models.h"
#include "support/message.h"

// Tests of walking, querying and printing a tree of modules.

namespace tandem {
namespace {

using test::message_of;
using test::Mixed;
using test::Mlp;
using test::names_of;
using ::testing::ElementsAre;

template <class T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::vector<std::string> names_of_modules(const nn::NamedModules& named) {
  std::vector<std::string> names;
  for (const auto& [name, module] : named) {
    names.push_back(name + ":" + module.type_name());
  }
  return names;
}

struct TiedCoder : nn::Module<TiedCoder> {
  nn::Linear encode = child("encode", nn::Linear(3, 3));
  nn::Linear decode = child("decode", nn::Linear(3, 3));
  TiedCoder() { tie(decode.weight, encode.weight); }
};

// Nests `levels` Sequentials around a Linear.
nn::Sequential deep(int levels) {
  nn::Sequential net(nn::Linear(2, 2));
  for (int i = 1; i < levels; ++i) {
    nn::Sequential around;
    around.push_back(std::move(net));
    net = std::move(around);
  }
  return net;
}

// ---- modules and tensors by name ----

TEST(ModuleTree, ListsModulesEachBeforeItsChildren) {
  const Mixed model;
  EXPECT_THAT(names_of_modules(model.named_modules()),
              ElementsAre(":Mixed", "first:Linear", "inner:Mlp", "inner.fc1:Linear", "inner.fc2:Linear"));
  EXPECT_THAT(names_of_modules(model.named_children()), ElementsAre("first:Linear", "inner:Mlp"));
  EXPECT_EQ(model.modules().size(), 5u);
  EXPECT_EQ(model.children()[1].path(), "inner");
  EXPECT_THAT(names_of_modules(model.inner.named_modules()), ElementsAre(":Mlp", "fc1:Linear", "fc2:Linear"))
      << "names are seen from where one asks";
  EXPECT_TRUE(nn::ReLU().children().empty());
}

TEST(ModuleTree, OwnTensorsAreThoseWithoutRecursion) {
  const Mixed model;
  EXPECT_THAT(names_of(model.named_parameters(false)), ElementsAre("scale", "shift"));
  EXPECT_EQ(model.parameters(false).size(), 2u);
  EXPECT_EQ(model.buffers(false).size(), 2u);
  EXPECT_TRUE(model.inner.parameters(false).empty());
}

TEST(ModuleTree, FindsByName) {
  const Mixed model;
  EXPECT_EQ(model.get_parameter("inner.fc1.weight").unresolved(), model.inner.fc1.weight.unresolved());
  EXPECT_EQ(model.get_parameter("shift").unresolved(), model.shift.unresolved());
  EXPECT_EQ(model.get_buffer("count").dtype(), DType::i64);
  EXPECT_EQ(model.get_submodule("inner.fc2").path(), "inner.fc2");
  EXPECT_EQ(model.get_submodule("").type_name(), "Mixed");
  EXPECT_EQ(model.get_submodule("inner").get_parameter("fc1.bias").numel(), 3);
  EXPECT_EQ(message_of<ConfigError>([&] { model.get_parameter("inner.fc1.wieght"); }),
            "Mixed: there is no parameter 'inner.fc1.wieght' (is it 'inner.fc1.weight'?)");
  EXPECT_EQ(message_of<ConfigError>([&] { model.get_parameter("count"); }), "Mixed: there is no parameter 'count'");
  EXPECT_EQ(message_of<ConfigError>([&] { model.get_buffer("maen"); }), "Mixed: there is no buffer 'maen'");
  EXPECT_EQ(message_of<ConfigError>([&] { model.get_submodule("inner.fc3"); }),
            "Mixed: there is no module 'inner.fc3' (is it 'inner.fc1'?)");
  for (const char* wrong : {".", "inner.", ".inner", "inner..fc1", "first.x.y"}) {
    EXPECT_THROW(model.get_submodule(wrong), ConfigError) << wrong;
    EXPECT_THROW(model.get_parameter(wrong), ConfigError) << wrong;
  }
}

TEST(ModuleTree, TiedParametersAreFoundUnderBothNames) {
  const TiedCoder model;
  EXPECT_EQ(model.get_parameter("decode.weight").unresolved(), model.get_parameter("encode.weight").unresolved());
}

// ---- apply ----

TEST(Apply, SeesChildrenBeforeTheirParent) {
  const Mixed model;
  std::vector<std::string> seen;
  model.apply([&](const nn::ModuleRef& m) { seen.push_back(m.path() + ":" + m.type_name()); });
  EXPECT_THAT(seen, ElementsAre("first:Linear", "inner.fc1:Linear", "inner.fc2:Linear", "inner:Mlp", ":Mixed"));
}

TEST(Apply, InitialisesByTypeAndName) {
  const Mixed model;
  model.apply([](const nn::ModuleRef& m) {
    if (m.type_name() == "Linear") {
      nn::init::eye_(m.get_parameter("weight"));
      nn::init::constant_(m.get_parameter("bias"), 0.5);
    }
  });
  EXPECT_EQ(model.inner.fc1.weight.to_vector<double>(), (std::vector<double>{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(model.inner.fc2.bias.to_vector<double>(), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(model.scale.to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_TRUE(model.first.weight.requires_grad());
}

TEST(Apply, MayChangeModesAndAddModules) {
  Mlp model;
  model.apply([](nn::ModuleRef m) {
    if (m.type_name() == "Linear") {
      m.eval();
    }
  });
  EXPECT_TRUE(model.is_training());
  EXPECT_FALSE(model.fc1.is_training());
  nn::Sequential net{nn::ReLU()};
  int calls = 0;
  net.apply([&](const nn::ModuleRef&) {
    if (++calls == 1) {
      net.push_back(nn::ReLU());
    }
  });
  EXPECT_EQ(calls, 3);
}

TEST(ModuleHandle, IsTheModuleWhereverThatMoves) {
  std::optional<nn::ModuleRef> handle;
  {
    Mlp model;
    handle = model.get_submodule("fc1");
    const Mlp moved = std::move(model);
    handle->eval();
    EXPECT_FALSE(moved.fc1.is_training());
  }
  EXPECT_EQ(handle->get_parameter("weight").shape(), (Shape{8, 4})) << "and keeps what it needs";
  EXPECT_EQ(handle->type_name(), "Linear");
}

TEST(ModuleHandle, DoesWhatAModuleDoes) {
  Mlp model;
  nn::ModuleRef fc1 = model.get_submodule("fc1");
  fc1.to(DType::f64);
  EXPECT_EQ(model.fc1.weight.dtype(), DType::f64);
  EXPECT_EQ(model.fc2.weight.dtype(), DType::f32);
  EXPECT_EQ(fc1.state_dict().size(), 2u);
  EXPECT_NO_THROW(fc1.load_state_dict(fc1.state_dict()));
}

TEST(ModuleHandle, OfAModuleThatWasMovedFromSaysSo) {
  Mlp model;
  const Mlp taken = std::move(model);
  const std::string expected = "this module was moved from: use the one that it was moved to";
  // NOLINTBEGIN(bugprone-use-after-move)
  EXPECT_EQ(message_of<ConfigError>([&] { model.modules(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.children(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.get_submodule(""); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.get_parameter("x"); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.apply([](const nn::ModuleRef&) {}); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.num_parameters(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.num_bytes(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { model.requires_grad_(); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { printed(model); }), expected);
  EXPECT_EQ(message_of<ConfigError>([&] { nn::summary(model); }), expected);
  // NOLINTEND(bugprone-use-after-move)
}

// ---- counting ----

TEST(ModuleSize, CountsElementsAndBytesOfEachTensorOnce) {
  Mixed model;  // 2 + 2, Linear 4 + 2, Mlp 6 + 3 + 6 + 2; buffers: one i64, 2 f32
  EXPECT_EQ(model.num_parameters(), 27);
  EXPECT_EQ(model.num_bytes(), 27 * 4 + 8 + 2 * 4);
  model.inner.requires_grad_(false);
  EXPECT_EQ(model.num_parameters(), 27);
  EXPECT_EQ(model.num_parameters(true), 10);
  model.to(DType::f16);
  EXPECT_EQ(model.num_bytes(), 27 * 2 + 8 + 2 * 2);
  EXPECT_EQ(TiedCoder().num_parameters(), 9 + 3 + 3);
  EXPECT_EQ(nn::ReLU().num_parameters(), 0);
  EXPECT_EQ(nn::Sequential().num_bytes(), 0);
}

// ---- printing ----

TEST(PrintedModule, ReadsLikePyTorchs) {
  EXPECT_EQ(printed(nn::Linear(64, 256)), "Linear(in_features=64, out_features=256, bias=true)");
  EXPECT_EQ(printed(nn::Linear(2, 1, {.bias = false})), "Linear(in_features=2, out_features=1, bias=false)");
  EXPECT_EQ(printed(nn::Dropout(0.1)), "Dropout(p=0.1)");
  EXPECT_EQ(printed(nn::ReLU()), "ReLU()");
  EXPECT_EQ(printed(nn::Sequential()), "Sequential()");
  EXPECT_EQ(printed(Mixed()), R"(Mixed(
  (first): Linear(in_features=2, out_features=2, bias=true)
  (inner): Mlp(
    (fc1): Linear(in_features=2, out_features=3, bias=true)
    (fc2): Linear(in_features=3, out_features=2, bias=true)
  )
))");
}

TEST(PrintedModule, ShowsTheOptionsOfUsersModules) {
  struct Scaled : nn::Module<Scaled> {
    explicit Scaled(double factor) { describe("factor=" + std::to_string(factor)); }
    nn::ReLU act = child("act", nn::ReLU());
  };
  EXPECT_EQ(printed(Scaled(2)), "Scaled(\n  factor=2.000000\n  (act): ReLU()\n)");
  EXPECT_EQ(Scaled(0.5).description(), "factor=0.500000");
}

TEST(Summary, IsATable) {
  Mlp model(64, 256, 10);
  model.fc1.requires_grad_(false);
  EXPECT_EQ(printed(nn::summary(model)),
            "name     type    parameters                     count  trainable\n"
            "----------------------------------------------------------------\n"
            "(model)  Mlp\n"
            "fc1      Linear  weight [256, 64], bias [256]  16,640          0\n"
            "fc2      Linear  weight [10, 256], bias [10]    2,570      2,570\n"
            "----------------------------------------------------------------\n"
            "19,210 parameters, 2,570 trainable, 76,840 bytes\n");
}

TEST(Summary, CountsTiedParametersWhereTheyComeFirst) {
  const nn::Summary s = nn::summary(TiedCoder());
  ASSERT_EQ(s.rows.size(), 3u);
  EXPECT_EQ(s.rows[0].name, "");
  EXPECT_EQ(s.rows[1].num_parameters, 12);
  EXPECT_EQ(s.rows[2].parameters, "weight [3, 3] (tied), bias [3]");
  EXPECT_EQ(s.rows[2].num_parameters, 3);
  EXPECT_EQ(s.num_parameters, 15);
  EXPECT_EQ(s.trainable_parameters, 15);
  EXPECT_EQ(s.num_bytes, 60);
}

TEST(Summary, FitsIntoAHundredColumns) {
  struct AModuleWithAVeryLongName : nn::Module<AModuleWithAVeryLongName> {
    nn::Linear layer = child("a_layer_with_a_name_that_does_not_end", nn::Linear(10'000, 1'000));
  };
  struct Outer : nn::Module<Outer> {
    AModuleWithAVeryLongName block = child("another_long_name", AModuleWithAVeryLongName());
  };
  const std::string table = printed(nn::summary(Outer()));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
  }
  EXPECT_THAT(table, ::testing::HasSubstr("...ame_that_does_not_end  Linear          weight [1000, 10000], bias [1...  "
                                          "10,001,000  10,001,000\n"));
  EXPECT_THAT(table, ::testing::HasSubstr("another_long_name         AModuleWith...\n"));
}

TEST(Summary, OfWhatHasNoParameters) {
  EXPECT_EQ(printed(nn::summary(nn::ReLU())),
            "name     type  parameters  count  trainable\n"
            "-------------------------------------------\n"
            "(model)  ReLU\n"
            "-------------------------------------------\n"
            "0 parameters, 0 trainable, 0 bytes\n");
}

// ---- deep trees ----

TEST(DeepTree, OfAThousandLevels) {
  constexpr int kLevels = 1000;
  nn::Sequential net = deep(kLevels);
  EXPECT_EQ(net(ones({1, 2})).shape(), (Shape{1, 2}));
  EXPECT_EQ(net.modules().size(), kLevels + 1u);
  EXPECT_EQ(net.num_parameters(), 6);
  std::string target = "0";
  for (int i = 1; i < kLevels; ++i) {
    target += ".0";
  }
  EXPECT_EQ(net.get_submodule(target).type_name(), "Linear");
  EXPECT_EQ(net.get_parameter(target + ".bias").numel(), 2);
  int calls = 0;
  net.apply([&](const nn::ModuleRef&) { ++calls; });
  EXPECT_EQ(calls, kLevels + 1);
  net.requires_grad_(false);
  EXPECT_EQ(net.num_parameters(true), 0);
  net.eval();
  EXPECT_FALSE(net.get_submodule(target).is_training());
  EXPECT_THAT(printed(net), ::testing::HasSubstr("Linear(in_features=2, out_features=2, bias=true)"));
  EXPECT_EQ(nn::summary(net).rows.size(), kLevels + 1u);
}

// ---- all parameters as one vector ----

TEST(ParametersToVector, AndBack) {
  const Mlp model(2, 3, 1);
  const Tensor vector = nn::utils::parameters_to_vector(model.parameters());
  EXPECT_EQ(vector.shape(), (Shape{13}));
  EXPECT_EQ(vector.narrow(0, 6, 3).to_vector<double>(), model.fc1.bias.to_vector<double>());
  (vector * vector).sum().backward();
  EXPECT_EQ(model.fc1.bias.grad().to_vector<double>(), (model.fc1.bias.detach() * 2).to_vector<double>());
  const std::uint32_t version = model.fc1.weight.version();
  nn::utils::vector_to_parameters(arange(13.0), model.parameters());
  EXPECT_EQ(model.fc1.weight.to_vector<double>(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(model.fc2.bias.item(), 12);
  EXPECT_GT(model.fc1.weight.version(), version);
  EXPECT_TRUE(model.fc1.weight.is_leaf() && model.fc1.weight.requires_grad());
}

TEST(ParametersToVector, WantTheRightNumber) {
  const Mlp model(2, 3, 1);
  const auto before = test::values_of(model);
  EXPECT_EQ(message_of<ShapeError>([&] { nn::utils::vector_to_parameters(zeros({14}), model.parameters()); }),
            "vector_to_parameters: the parameters have 13 elements together, the vector is [14]");
  EXPECT_THROW(nn::utils::vector_to_parameters(zeros({13, 1}), model.parameters()), ShapeError);
  EXPECT_EQ(test::values_of(model), before);
  EXPECT_EQ(message_of<ConfigError>([] { nn::utils::parameters_to_vector({}); }),
            "parameters_to_vector: the list of parameters is empty");
  EXPECT_NO_THROW(nn::utils::vector_to_parameters(zeros({0}), {}));
}

}  // namespace
}  // namespace tandem
