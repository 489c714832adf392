#include <tandem/nn/module_ref.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/container.h>
#include <tandem/optim/adam.h>

#include "models.h"
#include "support/memory.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::memory_of;
using test::message_of;
using test::Mixed;
using test::Mlp;
using test::values_of;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> names(const nn::StateDict& state) {
  std::vector<std::string> all;
  for (const auto& [name, value] : state) {
    all.push_back(name);
  }
  return all;
}

// Copies the state of another model.
nn::StateDict copy_of(const nn::StateDict& state) {
  nn::StateDict copy;
  for (const auto& [name, value] : state) {
    copy.set(name, value.clone());
  }
  return copy;
}

TEST(StateDict, HasPyTorchsOrder) {
  EXPECT_THAT(names(Mixed().state_dict()),
              ElementsAre("scale", "shift", "count", "mean", "first.weight", "first.bias", "inner.fc1.weight",
                          "inner.fc1.bias", "inner.fc2.weight", "inner.fc2.bias"));
}

TEST(StateDict, SharesMemoryWithoutHistory) {
  Mlp model;
  const nn::StateDict state = model.state_dict();
  EXPECT_EQ(memory_of(state.at("fc1.bias")), memory_of(model.fc1.bias));
  EXPECT_FALSE(state.at("fc1.bias").requires_grad());
}

TEST(StateDict, SetAddsOrReplaces) {
  nn::StateDict state;
  state.set("b", zeros({1}));
  state.set("a", zeros({2}));
  state.set("b", zeros({3}));
  EXPECT_THAT(names(state), ElementsAre("b", "a"));
  EXPECT_EQ(state.at("b").numel(), 3);
  EXPECT_EQ(state.find("c"), nullptr);
  EXPECT_EQ(message_of<ConfigError>([&] { state.at("c"); }), "state dict: there is no 'c'");
}

TEST(LoadStateDict, CopiesEverything) {
  Mixed from;
  from.count.fill_(7);
  from.mean.fill_(0.5);
  Mixed to;
  const void* memory = memory_of(to.first.weight);
  const nn::LoadReport report = to.load_state_dict(from.state_dict());
  EXPECT_THAT(report.missing, IsEmpty());
  EXPECT_THAT(report.unexpected, IsEmpty());
  EXPECT_EQ(values_of(to), values_of(from));
  EXPECT_EQ(to.count.item<std::int64_t>(), 7);
  EXPECT_EQ(to.mean.to_vector<double>(), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(memory_of(to.first.weight), memory) << "values are copied, memory is not shared";
  EXPECT_NE(memory_of(from.first.weight), memory);
}

TEST(LoadStateDict, OfItsOwnStateChangesNothing) {
  Mlp model;
  const auto before = values_of(model);
  model.load_state_dict(model.state_dict());
  EXPECT_EQ(values_of(model), before);
}

TEST(LoadStateDict, TakesValuesOnAnyDeviceAndLayout) {
  Mlp from;
  from.to("cpu:1");
  nn::StateDict state = copy_of(from.state_dict());
  state.set("fc1.weight", state.at("fc1.weight").t().contiguous().t());
  Mlp to;
  const Device here = to.fc1.weight.device();
  to.load_state_dict(state);
  EXPECT_EQ(values_of(to), values_of(from));
  EXPECT_EQ(to.fc1.weight.device(), here);
}

TEST(LoadStateDict, BumpsVersionsSoThatAGraphNotices) {
  Mlp model;
  const nn::StateDict state = copy_of(model.state_dict());
  const Tensor loss = model(ones({1, 4})).sum();
  model.load_state_dict(state);
  EXPECT_THROW(loss.backward(), AutogradError);
}

TEST(LoadStateDict, AllProblemsComeInOneMessageAndNothingIsLoaded) {
  Mlp model;
  const auto before = values_of(model);
  nn::StateDict state;
  state.set("fc1.weight", zeros({8, 5}));
  state.set("fc1.bias", zeros({8}, {.dtype = DType::f64}));
  state.set("fc2.wieght", zeros({3, 8}));
  state.set("fc2.bias", zeros({3}));
  state.set("something.else", zeros({1}));
  EXPECT_EQ(message_of<ConfigError>([&] { model.load_state_dict(state); }),
            "load_state_dict: the state does not fit Mlp; nothing was loaded\n"
            "  shape of 'fc1.weight': the module has [8, 4], the state [8, 5]\n"
            "  dtype of 'fc1.bias': the module has f32, the state f64\n"
            "  missing: 'fc2.weight'\n"
            "  unexpected: 'fc2.wieght' (is it 'fc2.weight'?)\n"
            "  unexpected: 'something.else'");
  EXPECT_EQ(values_of(model), before) << "fc2.bias fits, but nothing is loaded by halves";
}

TEST(LoadStateDict, UndefinedValuesAreAProblemToo) {
  Mlp model;
  const auto before = values_of(model);
  nn::StateDict state = copy_of(Mlp().state_dict());
  state.set("fc2.bias", Tensor());
  EXPECT_THROW(model.load_state_dict(state), ConfigError);
  EXPECT_THROW(model.load_state_dict(state, false), ConfigError);
  EXPECT_EQ(values_of(model), before);
}

TEST(LoadStateDict, NotStrictReportsAndLoadsTheRest) {
  const Mlp from;
  nn::StateDict state;
  state.set("fc1.weight", from.fc1.weight.detach());
  state.set("head.weight", zeros({3, 8}));
  Mlp to;
  const auto before = values_of(to);
  const nn::LoadReport report = to.load_state_dict(state, false);
  EXPECT_THAT(report.missing, ElementsAre("fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_THAT(report.unexpected, ElementsAre("head.weight"));
  EXPECT_EQ(values_of(to)[0], values_of(from)[0]);
  EXPECT_EQ(values_of(to)[1], before[1]);
}

TEST(LoadStateDict, NotStrictConvertsDTypesButNotShapes) {
  Mlp to;
  nn::StateDict state;
  state.set("fc1.bias", full({8}, 0.25, {.dtype = DType::f64}));
  to.load_state_dict(state, false);
  EXPECT_EQ(to.fc1.bias.dtype(), DType::f32);
  EXPECT_EQ(to.fc1.bias.to_vector<double>(), std::vector<double>(8, 0.25));
  state.set("fc2.bias", zeros({4}));
  EXPECT_EQ(message_of<ConfigError>([&] { to.load_state_dict(state, false); }),
            "load_state_dict: the state does not fit Mlp; nothing was loaded\n"
            "  shape of 'fc2.bias': the module has [3], the state [4]");
}

TEST(LoadStateDict, NotStrictWithNoNameInCommonIsAnError) {
  Mlp model;
  nn::StateDict state;
  state.set("student.fc1.weight", zeros({8, 4}));
  EXPECT_EQ(message_of<ConfigError>([&] { model.load_state_dict(state, false); }),
            "load_state_dict: the state does not fit Mlp; nothing was loaded\n"
            "  all 1 names in the state begin with 'student.', such as 'student.fc1.weight': it is of a model that was "
            "wrapped; take the prefix off");
  EXPECT_THROW(model.load_state_dict({}, false), ConfigError);
}

TEST(LoadStateDict, TakesThePrefixOfAWrappedModelOff) {
  const Mlp from;
  Mlp to;
  nn::StateDict state;
  for (const auto& [name, value] : from.state_dict()) {
    state.set("module." + name, value.clone());
  }
  EXPECT_EQ(to.load_state_dict(state).stripped, "module.");
  EXPECT_EQ(to.fc1.weight.to_vector<float>(), from.fc1.weight.to_vector<float>());
  EXPECT_EQ(to.load_state_dict(from.state_dict()).stripped, "");
  state.set("module.fc9.weight", zeros({1}));
  EXPECT_EQ(message_of<ConfigError>([&] { to.load_state_dict(state); }),
            "load_state_dict: the state does not fit Mlp; nothing was loaded\n  unexpected: 'fc9.weight'");
}

TEST(LoadStateDict, OfAModuleWithoutState) {
  nn::Sequential empty;
  EXPECT_NO_THROW(empty.load_state_dict({}));
  nn::StateDict state;
  state.set("x", zeros({1}));
  EXPECT_THROW(empty.load_state_dict(state), ConfigError);
}

TEST(LoadStateDict, WorksForPackedParametersAndResumesTraining) {
  Mlp model;
  optim::Adam adam(model.parameters());
  const Tensor x = ones({1, 4});
  model(x).sum().backward();
  adam.step();
  const nn::StateDict saved = copy_of(model.state_dict());
  const auto at_save = values_of(model);
  model.zero_grad();
  model(x).sum().backward();
  adam.step();
  EXPECT_NE(values_of(model), at_save);
  model.load_state_dict(saved);
  EXPECT_EQ(values_of(model), at_save);
}

TEST(StateDict, CloneKeepsTheValuesOfItsTime) {
  Mlp model;
  StateDict best = model.state_dict().clone();
  const auto before = model.fc1.weight.to_vector<double>();
  {
    const NoGradGuard no_grad;
    Tensor(model.fc1.weight).zero_();
  }
  EXPECT_EQ(best.at("fc1.weight").to_vector<double>(), before);
  EXPECT_TRUE(best.contains("fc1.bias"));
  EXPECT_TRUE(best.erase("fc1.bias"));
  EXPECT_FALSE(best.erase("fc1.bias"));
  EXPECT_FALSE(best.contains("fc1.bias"));
}

}  // namespace
}  // namespace tandem
