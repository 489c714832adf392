#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/module.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/sgd.h>

#include "models.h"
#include "support/message.h"

// Freezing parts of a model, and training them again.

namespace tandem {
namespace {

using test::message_of;
using test::Mixed;
using test::Mlp;
using test::values_of;

using Values = std::vector<double>;

Tensor input() { return arange(8.0).reshape({2, 4}) * 0.1; }

void train_step(const Mlp& model, optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  model(input()).pow(2).sum().backward();
  optimizer.step();
}

TEST(Freezing, ReachesAllBelowAndComesBack) {
  Mixed model;
  model.inner.requires_grad_(false);
  EXPECT_FALSE(model.inner.fc1.weight.requires_grad());
  EXPECT_TRUE(model.first.weight.requires_grad());
  model.requires_grad_(false);
  EXPECT_EQ(model.num_parameters(true), 0);
  model.requires_grad_();
  EXPECT_EQ(model.num_parameters(true), model.num_parameters());
  model.get_submodule("inner.fc2").requires_grad_(false);
  EXPECT_FALSE(model.inner.fc2.bias.requires_grad());
  EXPECT_EQ(autograd::parameter_name(model.inner.fc2.bias), "inner.fc2.bias");
}

TEST(Freezing, TheHeadIsTrainedAlone) {
  Mlp model;
  model.fc1.requires_grad_(false);
  optim::SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
  const auto before = values_of(model);
  for (int step = 0; step < 3; ++step) {
    train_step(model, sgd);
    EXPECT_FALSE(model.fc1.weight.grad().defined());
  }
  const auto after = values_of(model);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[1]);
  EXPECT_NE(after[2], before[2]);
  EXPECT_NE(after[3], before[3]);
  EXPECT_FALSE(model.fc1(input()).requires_grad()) << "nothing is recorded for what is frozen";
}

// A frozen parameter resumes like one of an optimiser that never saw it frozen, or that starts when it is trained.
TEST(Freezing, OptimizersGoOnWhenItIsTrainedAgain) {
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late ? "frozen when the optimiser was made" : "frozen afterwards");
    const auto run = [&](bool by_freezing) {
      manual_seed(3);
      Mlp model;
      if (by_freezing && late) {
        model.fc1.requires_grad_(false);
      }
      optim::Adam adam(model.parameters(), {.lr = 0.01});
      model.fc1.requires_grad_(!by_freezing);
      for (int step = 0; step < 2; ++step) {
        adam.zero_grad();
        model(input()).pow(2).sum().backward();
        if (!by_freezing) {
          model.fc1.weight.zero_grad();
          model.fc1.bias.zero_grad();
        }
        adam.step();
      }
      model.fc1.requires_grad_();
      for (int step = 0; step < 3; ++step) {
        train_step(model, adam);
      }
      return values_of(model);
    };
    EXPECT_EQ(run(true), run(false));
  }
}

TEST(Freezing, KeepsMomentsAndStepCounts) {
  const auto run = [](bool pause) {
    manual_seed(4);
    Mlp model;
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    train_step(model, adam);
    if (pause) {
      model.requires_grad_(false);
      adam.step();
      adam.zero_grad();
      model.requires_grad_();
    }
    train_step(model, adam);
    return values_of(model);
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Freezing, DropsTheGradientSoThatNoStepIsTaken) {
  Mlp model;
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  model(input()).sum().backward();
  model.fc1.requires_grad_(false);
  const auto before = values_of(model);
  sgd.step();
  EXPECT_EQ(values_of(model)[0], before[0]);
  EXPECT_NE(values_of(model)[2], before[2]);
  model.fc1.requires_grad_();
  EXPECT_FALSE(model.fc1.weight.grad().defined());
}

// As in PyTorch, a frozen parameter accumulates no gradient.
TEST(Freezing, AGraphFromBeforeDeliversNothing) {
  const Mlp model;
  int calls = 0;
  Tensor weight = model.fc1.weight;
  weight.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  const Tensor loss = model(input()).sum();
  weight.requires_grad_(false);
  loss.backward();
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(model.fc1.bias.grad().defined());
  weight.requires_grad_();
  EXPECT_FALSE(weight.grad().defined());
  model(input()).sum().backward();
  EXPECT_EQ(calls, 1) << "hooks wait";
  EXPECT_TRUE(weight.grad().defined());
}

TEST(Freezing, FrozenParametersAreChangedInPlaceFreely) {
  Mlp model;
  EXPECT_THROW(model.fc1.weight.mul_(2), AutogradError) << "a leaf that requires a gradient";
  model.fc1.requires_grad_(false);
  const Values before = model.fc1.weight.to_vector<double>();
  model.fc1.weight.mul_(2);
  EXPECT_EQ(model.fc1.weight.to_vector<double>()[5], before[5] * 2);
  EXPECT_TRUE(model.fc1.weight.is_leaf());
  model.fc1.requires_grad_();
  model(input()).sum().backward();
  EXPECT_TRUE(model.fc1.weight.grad().defined());
}

TEST(Freezing, AChangeOfWhatAGraphSavedIsNoticed) {
  Mlp model;
  model.fc2.requires_grad_(false);
  const Tensor loss = model(input()).sum();  // saves fc2's weight to compute the gradient of fc1
  model.fc2.weight.mul_(2);
  EXPECT_THROW(loss.backward(), AutogradError);
}

TEST(Freezing, SurvivesAMove) {
  Mlp model;
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  model.fc1.requires_grad_(false);
  model.to(DType::f64);
  EXPECT_FALSE(model.fc1.weight.requires_grad());
  EXPECT_EQ(model.fc1.weight.dtype(), DType::f64);
  model.fc1.requires_grad_();
  const auto before = values_of(model);
  sgd.zero_grad();
  model(input().to(DType::f64)).sum().backward();
  sgd.step();
  EXPECT_NE(values_of(model)[0], before[0]);
}

TEST(Freezing, OfTiedParametersHoldsForBothNames) {
  struct Tied : nn::Module<Tied> {
    nn::Linear encode = child("encode", nn::Linear(3, 3));
    nn::Linear decode = child("decode", nn::Linear(3, 3));
    Tied() { tie(decode.weight, encode.weight); }
  };
  Tied model;
  model.encode.requires_grad_(false);
  EXPECT_FALSE(model.decode.weight.requires_grad());
  EXPECT_TRUE(model.decode.bias.requires_grad());
  model.decode.requires_grad_();
  EXPECT_TRUE(model.encode.weight.requires_grad());
  EXPECT_FALSE(model.encode.bias.requires_grad());
}

TEST(Freezing, OfAModuleWithoutParametersDoesNothing) {
  nn::ReLU layer;
  EXPECT_NO_THROW(layer.requires_grad_(false));
}

// ---- recorded in-place changes of a leaf's memory ----

TEST(FrozenLeaf, MayBecomeTheResultOfAnOpInPlace) {
  Tensor x = ones({3}, {.requires_grad = true});
  const Tensor w = full({3}, 2.0, {.requires_grad = true});
  Tensor view = x.detach();
  EXPECT_EQ(message_of<AutogradError>([&] { view.mul_(w); }),
            "mul_: [3] shares its elements with a leaf that requires a gradient; change a copy (.clone()), or do it "
            "under NoGradGuard");
  x.requires_grad_(false);
  x.mul_(w);
  x.sum().backward();
  EXPECT_EQ(w.grad().to_vector<double>(), Values(3, 1));
}

TEST(FrozenLeaf, NoLongerHoldsItsMemoryWhenItIsGone) {
  const Tensor w = full({3}, 2.0, {.requires_grad = true});
  Tensor view;
  {
    const Tensor leaf = ones({3}, {.requires_grad = true});
    view = leaf.detach();
    EXPECT_THROW(view.mul_(w), AutogradError);
  }
  EXPECT_NO_THROW(view.mul_(w));
}

TEST(FrozenLeaf, OneOfTwoLeavesStillHoldsItsMemory) {
  const Tensor w = full({3}, 2.0, {.requires_grad = true});
  Tensor first = ones({3}, {.requires_grad = true});
  Tensor second = first.detach().requires_grad_();
  first.requires_grad_(false);
  Tensor view = first.detach();
  EXPECT_THROW(view.mul_(w), AutogradError);
  second.requires_grad_(false);
  EXPECT_NO_THROW(view.mul_(w));
}

TEST(FrozenLeaf, MemoryIsHeldAfterAMoveAndInAStore) {
  const Tensor w = full({8}, 2.0, {.requires_grad = true});
  Mlp model;
  Tensor old = model.fc1.bias.detach();
  model.to(DType::f64);
  EXPECT_NO_THROW(old.mul_(w)) << "the old memory is free";
  Tensor now = model.fc1.bias.detach();
  EXPECT_THROW(now.mul_(w), AutogradError);
  const optim::SGD sgd(model.parameters(), {.lr = 0.1});
  EXPECT_NO_THROW(now.mul_(w)) << "packing moved it once more";
  now = model.fc1.bias.detach();
  EXPECT_THROW(now.mul_(w), AutogradError);
  model.fc1.requires_grad_(false);
  model.to(DType::f32);
  now = model.fc1.bias.detach();
  EXPECT_NO_THROW(now.mul_(w)) << "frozen";
  model.fc1.requires_grad_();
  now = model.fc1.bias.detach();
  EXPECT_THROW(now.mul_(w), AutogradError);
}

}  // namespace
}  // namespace tandem
