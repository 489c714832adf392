#include <tandem/nn/module.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/container.h>
#include <tandem/nn/loss.h>
#include <tandem/nn/stateless.h>

#include "models.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;
using test::Mixed;
using test::Mlp;
using test::names_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Module, ListsParametersOwnOnesFirstThenThoseOfChildren) {
  const Mixed model;
  EXPECT_THAT(names_of(model.named_parameters()),
              ElementsAre("scale", "shift", "first.weight", "first.bias", "inner.fc1.weight", "inner.fc1.bias",
                          "inner.fc2.weight", "inner.fc2.bias"));
  EXPECT_THAT(names_of(model.named_buffers()), ElementsAre("count", "mean"));
  const std::vector<Tensor> parameters = model.parameters();
  ASSERT_EQ(parameters.size(), 8u);
  EXPECT_EQ(parameters[0].unresolved(), model.scale.unresolved());
  EXPECT_EQ(parameters[7].unresolved(), model.inner.fc2.bias.unresolved());
  EXPECT_EQ(model.buffers().size(), 2u);
}

TEST(Module, KnowsItsTypeAndPath) {
  const Mixed model;
  EXPECT_EQ(model.type_name(), "Mixed");
  EXPECT_EQ(model.path(), "");
  EXPECT_EQ(model.inner.fc2.type_name(), "Linear");
  EXPECT_EQ(model.inner.fc2.path(), "inner.fc2");
}

template <class T>
struct Holder : nn::Module<Holder<T>> {
  Tensor forward(const Tensor& x) const { return x; }
};

TEST(Module, TypeNamesLeaveOutTemplateArguments) { EXPECT_EQ(Holder<int>().type_name(), "Holder"); }

TEST(Module, ParametersKnowTheirNamesOnceTheModuleHasAParent) {
  const Mixed model;
  for (const auto& [name, parameter] : model.named_parameters()) {
    EXPECT_EQ(autograd::parameter_name(parameter), name);
  }
}

TEST(Module, FrozenParametersKeepTheirNamesUpToDate) {
  struct Parent : nn::Module<Parent> {
    explicit Parent(nn::Linear m) : body(child("body", std::move(m))) {}
    nn::Linear body;
  };
  nn::Linear layer(2, 2);
  layer.weight.requires_grad_(false);
  Parent parent(std::move(layer));
  EXPECT_EQ(autograd::parameter_name(parent.body.weight), "body.weight");
  parent.body.weight.requires_grad_();
  EXPECT_EQ(autograd::parameter_name(parent.body.weight), "body.weight");
}

TEST(Module, PassesTheForwardOnAsItIs) {
  struct Two : nn::Module<Two> {
    std::pair<Tensor, int> forward(const Tensor& x, int k, Tensor& out) const {
      out = x * static_cast<double>(k);
      return {x, k};
    }
  };
  Tensor out;
  const auto [x, k] = Two()(ones({2}), 3, out);
  EXPECT_EQ(k, 3);
  EXPECT_EQ(out.to_vector<double>(), (std::vector<double>{3, 3}));
}

// ---- names ----

struct Named : nn::Module<Named> {
  void add_parameter(const std::string& name) { static_cast<void>(parameter(name, zeros({1}))); }
  void add_buffer(const std::string& name) { static_cast<void>(buffer(name, zeros({1}))); }
  void add_child(const std::string& name, nn::Linear module) { kept.push_back(child(name, std::move(module))); }
  std::vector<nn::Linear> kept;
};

TEST(ModuleNames, AreUniqueAcrossParametersBuffersAndChildren) {
  Named module;
  module.add_parameter("a");
  module.add_buffer("b");
  module.add_child("c", nn::Linear(1, 1));
  for (const std::string name : {"a", "b", "c"}) {
    const std::string expected = "Named: the name '" + name + "' is taken already";
    EXPECT_EQ(message_of<ConfigError>([&] { module.add_parameter(name); }), expected);
    EXPECT_EQ(message_of<ConfigError>([&] { module.add_buffer(name); }), expected);
    EXPECT_EQ(message_of<ConfigError>([&] { module.add_child(name, nn::Linear(1, 1)); }), expected);
  }
  EXPECT_EQ(module.parameters().size(), 3u) << "a refused name registers nothing";
}

TEST(ModuleNames, HoldNoDotAndAreNotEmpty) {
  Named module;
  EXPECT_EQ(message_of<ConfigError>([&] { module.add_parameter("a.b"); }),
            "Named: 'a.b' is no name for a member: it must not be empty nor hold a dot");
  EXPECT_EQ(message_of<ConfigError>([&] { module.add_child("", nn::Linear(1, 1)); }),
            "Named: '' is no name for a member: it must not be empty nor hold a dot");
  EXPECT_THROW(module.add_buffer("."), ConfigError);
}

TEST(ModuleRegistration, AModuleHasOneParent) {
  struct Greedy : nn::Module<Greedy> {
    void take(const std::string& name, nn::ModuleBase& module) { adopt(name, module); }
  };
  Greedy first;
  Greedy second;
  nn::Linear layer(1, 1);
  first.take("x", layer);
  EXPECT_EQ(message_of<ConfigError>([&] { second.take("y", layer); }),
            "Greedy: child 'y' belongs to another module already");
  EXPECT_EQ(layer.path(), "x");
  EXPECT_THROW(first.take("self", first), ConfigError) << "a module is not its own child";
}

TEST(ModuleRegistration, ParametersMustBePlainFloatingTensors) {
  struct Wrong : nn::Module<Wrong> {
    explicit Wrong(Tensor value) : weight(parameter("weight", std::move(value))) {}
    Parameter weight;
  };
  EXPECT_THROW(Wrong(tensor({1, 2})), DTypeError);
  const Tensor leaf = zeros({2}, {.requires_grad = true});
  EXPECT_EQ(message_of<ConfigError>([&] { Wrong(leaf * 2); }),
            "Wrong: parameter 'weight' is the result of an op, expected a plain tensor; call detach() first");
  EXPECT_THROW(Wrong{Tensor()}, ConfigError);
}

TEST(ModuleRegistration, RegisteredParametersAndBuffersCannotBeReplacedUnnoticed) {
  Mixed model;
  EXPECT_EQ(message_of<ConfigError>([&] { model.first.weight = Parameter(zeros({2, 2})); }),
            "Parameter 'first.weight' [2, 2] belongs to a module, which would go on with the old one: it cannot be "
            "assigned. Write its elements instead: copy_() under NoGradGuard");
  EXPECT_THROW(model.mean = Buffer(zeros({2})), ConfigError);
  EXPECT_NO_THROW(model(ones({1, 2}))) << "a refused assignment changes nothing";
  Parameter loose(zeros({2}));
  EXPECT_NO_THROW(loose = Parameter(ones({2})));
}

TEST(ModuleRegistration, LateChildrenAndParametersCount) {
  struct Late : nn::Module<Late> {
    nn::Sequential body = child("body", nn::Sequential());
    Tensor forward(const Tensor& x) const { return body(x); }
  };
  Late model;
  EXPECT_TRUE(model.parameters().empty());
  model.body.push_back(nn::Linear(2, 3));
  EXPECT_THAT(names_of(model.named_parameters()), ElementsAre("body.0.weight", "body.0.bias"));
  EXPECT_EQ(autograd::parameter_name(model.parameters()[0]), "body.0.weight");
  EXPECT_EQ(model(ones({1, 2})).shape(), (Shape{1, 3}));
}

// ---- unregistered layers ----

TEST(UnregisteredLayer, WithParametersIsAnError) {
  struct Forgot : nn::Module<Forgot> {
    nn::Linear fc1 = child("fc1", nn::Linear(2, 2));
    nn::Linear fc2{2, 2};
    Tensor forward(const Tensor& x) const { return fc2(fc1(x)); }
  };
  struct Outer : nn::Module<Outer> {
    Forgot block = child("block", Forgot());
    Tensor forward(const Tensor& x) const { return block(x); }
  };
  EXPECT_EQ(message_of<ConfigError>([] { Forgot()(ones({1, 2})); }),
            "Forgot: a Linear with parameters is called here but is no child of any module, so it would not be "
            "trained. Register it: child(\"name\", nn::Linear(...))");
  EXPECT_THAT(message_of<ConfigError>([] { Outer()(ones({1, 2})); }), HasSubstr("Forgot 'block': a Linear with"));
}

TEST(UnregisteredLayer, WithParametersFurtherBelowIsAnError) {
  struct Forgot : nn::Module<Forgot> {
    nn::Sequential body{nn::ReLU(), nn::Linear(2, 2)};
    Tensor forward(const Tensor& x) const { return body(x); }
  };
  EXPECT_THAT(message_of<ConfigError>([] { Forgot()(ones({1, 2})); }), HasSubstr("a Sequential with parameters"));
}

TEST(UnregisteredLayer, WithoutParametersIsFine) {
  struct Model : nn::Module<Model> {
    nn::Linear fc = child("fc", nn::Linear(2, 2));
    nn::ReLU activation;
    nn::Sequential empty;
    nn::MSELoss loss;
    Tensor forward(const Tensor& x) const { return loss(empty(activation(fc(x))), x); }
  };
  EXPECT_NO_THROW(Model()(ones({1, 2})));
}

// eval() would not reach the layer, so it would drop elements in evaluation too.
TEST(UnregisteredLayer, DropoutIsRefused) {
  struct Model : nn::Module<Model> {
    nn::Dropout drop{0.5};
    Tensor forward(const Tensor& x) const { return drop(x); }
  };
  EXPECT_EQ(message_of<ConfigError>([] { Model()(ones({2})); }),
            "Dropout: a Dropout is called here but is no child of any module, so train() and eval() do not reach it. "
            "Register it: child(\"name\", nn::Dropout(...))");
}

TEST(UnregisteredLayer, IsFoundWhenItsForwardIsCalled) {
  struct Forgot : nn::Module<Forgot> {
    nn::Linear fc1 = child("fc1", nn::Linear(2, 2));
    nn::Linear fc2{2, 2};
    Tensor forward(const Tensor& x) const { return fc2.forward(fc1.forward(x)); }
  };
  EXPECT_EQ(message_of<ConfigError>([] { Forgot()(ones({1, 2})); }),
            "Forgot: a Linear with parameters is called here but is no child of any module, so it would not be "
            "trained. Register it: child(\"name\", nn::Linear(...))");
  EXPECT_NO_THROW(Forgot().fc2.forward_relu(ones({1, 2})));
}

TEST(UnregisteredLayer, IsFoundByTheLayersThatItCalls) {
  struct Model : nn::Module<Model> {
    nn::Linear fc = child("fc", nn::Linear(4, 4));
    Mlp block;
    Tensor forward(const Tensor& x) const { return block.forward(fc(x)); }
  };
  EXPECT_EQ(message_of<ConfigError>([] { Model()(ones({1, 4})); }),
            "Model: Linear 'fc1' of a Mlp is called here, but that Mlp is no child of any module, so it would not be "
            "trained. Register it: child(\"name\", Mlp(...)), and call it as a function");
}

// Useful for a teacher, or the target of a moving average: nothing would be trained anyway.
TEST(UnregisteredLayer, FrozenOrWithoutRecordingIsFine) {
  struct Model : nn::Module<Model> {
    nn::Linear fc = child("fc", nn::Linear(4, 3));
    Mlp* teacher = nullptr;
    bool record = true;
    Tensor forward(const Tensor& x) const {
      const Tensor y = fc(x);
      const GradModeScope scope(record);
      return y - (*teacher)(x);
    }
  };
  Mlp teacher;
  Model model;
  model.teacher = &teacher;
  EXPECT_THROW(model(ones({1, 4})), ConfigError);
  model.record = false;
  EXPECT_NO_THROW(model(ones({1, 4})));
  model.record = true;
  teacher.requires_grad_(false);
  EXPECT_NO_THROW(model(ones({1, 4})));
}

TEST(ModuleScope, AModuleMayCallItself) {
  struct Twice : nn::Module<Twice> {
    nn::Linear fc = child("fc", nn::Linear(2, 2));
    nn::Dropout drop = child("drop", nn::Dropout(0));
    Tensor forward(const Tensor& x, int times) const {
      return times == 0 ? x : (*this)(drop(fc(x)), is_training() ? times - 1 : 0);
    }
  };
  EXPECT_EQ(Twice()(ones({1, 2}), 3).shape(), (Shape{1, 2}));
}

TEST(UnregisteredLayer, OutsideAnyModuleIsFine) {
  const nn::Linear alone(2, 2);
  EXPECT_NO_THROW(alone(ones({1, 2})));
}

TEST(UnregisteredParameter, CannotTakeThePlaceOfARegisteredOne) {
  Mlp model;
  EXPECT_THROW(model.fc1.weight = Parameter(zeros({8, 4})), ConfigError);
}

TEST(ModuleScope, IsClosedByAnException) {
  const Mlp model;
  EXPECT_THROW(model(ones({1, 7})), ShapeError);
  EXPECT_EQ(core::thread_state().scope, nullptr);
  const nn::Linear alone(2, 2);
  EXPECT_NO_THROW(alone(ones({1, 2}))) << "a scope left open would make this an unregistered layer";
}

TEST(ModuleErrors, NameTheWholePath) {
  const Mixed model;
  EXPECT_EQ(message_of<ShapeError>([&] { model(ones({5, 7})); }),
            "Linear 'first': input [5, 7] has 7 features, layer expects 2 (weight [2, 2])");
  EXPECT_EQ(message_of<ShapeError>([&] { model.inner(ones({5, 7})); }),
            "Linear 'inner.fc1': input [5, 7] has 7 features, layer expects 2 (weight [3, 2])");
  EXPECT_EQ(message_of<DTypeError>([&] { model(ones({5, 2}, {.dtype = DType::f64})); }),
            "Linear 'first': input is f64, weight f32. Convert the input: x.to(DType::f32)");
  EXPECT_EQ(message_of<DeviceError>([&] { model(ones({5, 2}, {.device = "cpu:1"})); }),
            "Linear 'first': input is on cpu:1, weight on cpu:0. Move the input: x.to(\"cpu:0\")");
  const nn::Sequential net(nn::Linear(2, 2), nn::ReLU(), nn::Sequential(nn::Linear(3, 2)));
  EXPECT_EQ(message_of<ShapeError>([&] { net(ones({5, 2})); }),
            "Linear '2.0': input [5, 2] has 2 features, layer expects 3 (weight [2, 3])");
}

// ---- training mode ----

TEST(TrainingMode, ReachesAllBelow) {
  Mixed model;
  EXPECT_TRUE(model.is_training());
  EXPECT_TRUE(model.inner.fc2.is_training());
  model.eval();
  EXPECT_FALSE(model.is_training());
  EXPECT_FALSE(model.inner.fc2.is_training());
  model.inner.train();
  EXPECT_FALSE(model.is_training());
  EXPECT_TRUE(model.inner.fc2.is_training());
  EXPECT_FALSE(model.first.is_training());
  model.train();
  EXPECT_TRUE(model.first.is_training());
}

// ---- ties ----

struct Tied : nn::Module<Tied> {
  nn::Linear encode = child("encode", nn::Linear(3, 3));
  nn::Linear decode = child("decode", nn::Linear(3, 3));
  Tied() { tie(decode.weight, encode.weight); }
  void tie_weight(Parameter& slot, const Parameter& other) { tie(slot, other); }
  Tensor forward(const Tensor& x) const { return decode(encode(x)); }
};

TEST(TiedParameters, AreOneParameterUnderTwoNames) {
  const Tied model;
  EXPECT_THAT(names_of(model.named_parameters()), ElementsAre("encode.weight", "encode.bias", "decode.bias"));
  EXPECT_EQ(model.decode.weight.unresolved(), model.encode.weight.unresolved());
  EXPECT_NE(model.state_dict().find("decode.weight"), nullptr) << "the state has both names, as PyTorch's";
  EXPECT_EQ(model.state_dict().size(), 4u);
}

TEST(TiedParameters, GetBothGradients) {
  const Tied model;
  const Tensor x = ones({1, 3});
  const auto forward = [&](const Tensor& w) {
    return linear(linear(x, w, model.encode.bias), w, model.decode.bias).sum();
  };
  const Tensor plain = model.encode.weight.detach().clone().requires_grad_();
  forward(plain).backward();
  model(x).sum().backward();
  EXPECT_EQ(model.encode.weight.grad().to_vector<double>(), plain.grad().to_vector<double>());
}

TEST(TiedParameters, StayTiedWhenTheModuleMoves) {
  Tied model;
  model.to("cpu:1");
  EXPECT_EQ(model.decode.weight.device(), Device("cpu:1"));
  EXPECT_EQ(model.decode.weight.unresolved(), model.encode.weight.unresolved());
  Tied moved = std::move(model);
  EXPECT_EQ(moved.parameters().size(), 3u);
  EXPECT_NO_THROW(moved(ones({1, 3}, {.device = "cpu:1"})));
}

TEST(TiedParameters, MustFitAndBelongToTheModule) {
  Tied model;
  Mlp other(3, 3, 3);
  EXPECT_EQ(message_of<ShapeError>([&] { model.tie_weight(model.decode.weight, model.encode.bias); }),
            "Tied: tie: f32 [3, 3] and f32 [3] differ");
  EXPECT_EQ(message_of<ConfigError>([&] { model.tie_weight(other.fc1.weight, model.encode.weight); }),
            "Tied: tie: the first parameter is not one of this module");
}

}  // namespace
}  // namespace tandem
