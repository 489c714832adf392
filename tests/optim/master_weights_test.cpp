#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/grad_mode.h>
#include <tandem/nn/linear.h>
#include <tandem/optim/grad_scaler.h>

#include "training_run.h"

// Tests that an optimiser with masters treats 16-bit parameters like f32 ones that get the same gradients.

namespace tandem {
namespace {

using optim::Adam;
using optim::SGD;
using test::Values;

std::vector<Parameter> parameters_of(DType dtype, DType rounded_to) {
  manual_seed(5);
  std::vector<Parameter> all;
  for (const Shape& sizes : test::kSizes) {
    all.emplace_back(randn(sizes).to(rounded_to).to(dtype));
  }
  return all;
}

void step(optim::Optimizer& optimizer, std::vector<Parameter>& parameters, int number, DType rounded_to,
          unsigned mask = ~0u) {
  optimizer.zero_grad();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if ((mask >> i & 1u) == 0) continue;
    parameters[i].backward(test::gradient_at(number, i, rounded_to).to(parameters[i].dtype()));
  }
  optimizer.step();
}

std::vector<std::unique_ptr<optim::Optimizer>> optimizers(const std::vector<Parameter>& p, bool master) {
  const std::vector<Tensor> all(p.begin(), p.end());
  std::vector<std::unique_ptr<optim::Optimizer>> result;
  const auto add = [&]<class O>(auto options, O*) {
    options.master_weights = master;
    result.push_back(std::make_unique<O>(all, options));
  };
  add(optim::SGDOptions{.lr = 1e-3}, static_cast<SGD*>(nullptr));
  add(optim::SGDOptions{.lr = 1e-3, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
      static_cast<SGD*>(nullptr));
  add(optim::AdamOptions{.lr = 1e-3, .weight_decay = 0.1}, static_cast<Adam*>(nullptr));
  add(optim::AdamWOptions{.lr = 1e-3, .amsgrad = true, .maximize = true}, static_cast<optim::AdamW*>(nullptr));
  add(optim::RMSpropOptions{.lr = 1e-3, .eps = 0.1, .momentum = 0.9, .centered = true},
      static_cast<optim::RMSprop*>(nullptr));
  add(optim::RMSpropOptions{.lr = 1e-3}, static_cast<optim::RMSprop*>(nullptr));
  add(optim::AdagradOptions{.lr = 1e-2}, static_cast<optim::Adagrad*>(nullptr));
  return result;
}

std::string name(std::size_t i, const char* what) { return fmt::format("state.{}.{}", i, what); }

TEST(MasterWeights, AreF32TrainingToTheBit) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::size_t count = optimizers(parameters_of(DType::f32, dtype), false).size();
    for (std::size_t o = 0; o < count; ++o) {
      std::vector<Parameter> narrow = parameters_of(dtype, dtype);
      std::vector<Parameter> wide = parameters_of(DType::f32, dtype);
      const auto with_master = std::move(optimizers(narrow, true)[o]);
      const auto in_f32 = std::move(optimizers(wide, false)[o]);
      for (int number = 0; number < 20; ++number) {
        const unsigned mask = number < 10 ? ~0u : ~2u;
        step(*with_master, narrow, number, dtype, mask);
        step(*in_f32, wide, number, dtype, mask);
      }
      const StateDict state = with_master->state_dict();
      const StateDict expected = in_f32->state_dict();
      for (std::size_t i = 0; i < wide.size(); ++i) {
        EXPECT_EQ(state.at(name(i, "master")).to_vector<float>(), wide[i].to_vector<float>()) << o;
        EXPECT_EQ(narrow[i].to_vector<float>(), wide[i].to(dtype).to_vector<float>()) << o;
      }
      for (const auto& [key, value] : expected) {
        EXPECT_EQ(state.at(key).to_vector<double>(), value.to_vector<double>()) << key;
        EXPECT_EQ(state.at(key).dtype(), value.dtype()) << key;
      }
      EXPECT_EQ(state.size(), expected.size() + wide.size());
    }
  }
}

TEST(MasterWeights, KeepStepsThatAreTooSmallForBf16) {
  Parameter p(ones({4}, {.dtype = DType::bf16}));
  Parameter alone(ones({4}, {.dtype = DType::bf16}));
  SGD sgd({p}, {.lr = 1e-3, .master_weights = true});
  SGD without({alone}, {.lr = 1e-3});
  for (int i = 0; i < 100; ++i) {
    for (auto* each : {&p, &alone}) {
      auto& optimizer = each == &p ? sgd : without;
      optimizer.zero_grad();
      each->sum().backward();
      optimizer.step();
    }
  }
  EXPECT_NEAR(p[0].item(), 0.9, 0.002);
  EXPECT_EQ(alone[0].item(), 1);
}

TEST(MasterWeights, OfF32ParametersAreTheParameters) {
  std::vector<Parameter> a = parameters_of(DType::f32, DType::f32);
  std::vector<Parameter> b = parameters_of(DType::f32, DType::f32);
  const auto with = std::move(optimizers(a, true)[2]);
  const auto without = std::move(optimizers(b, false)[2]);
  for (int number = 0; number < 5; ++number) {
    step(*with, a, number, DType::f32);
    step(*without, b, number, DType::f32);
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].to_vector<float>(), b[i].to_vector<float>());
  }
  EXPECT_EQ(with->state_dict().size(), without->state_dict().size());
  EXPECT_EQ(with->state_dict().find(name(0, "master")), nullptr);
}

TEST(MasterWeights, FollowAParameterThatIsChangedOtherwise) {
  Parameter p(ones({3}, {.dtype = DType::bf16}));
  SGD sgd({p}, {.lr = 1e-3, .master_weights = true});
  const auto train = [&] {
    sgd.zero_grad();
    p.sum().backward();
    sgd.step();
  };
  train();
  {
    const NoGradGuard no_grad;
    p[1].fill_(5);
  }
  train();
  const std::vector<float> master = sgd.state_dict().at("state.0.master").to_vector<float>();
  EXPECT_FLOAT_EQ(master[0], 0.998F);  // keeps digits that bf16 can't hold
  EXPECT_FLOAT_EQ(master[1], 4.999F);
  EXPECT_FLOAT_EQ(master[2], 0.998F);
}

TEST(MasterWeights, GoOnFromALoadedStateToTheBit) {
  for (const bool with_state : {true, false}) {
    std::vector<Parameter> straight = parameters_of(DType::bf16, DType::bf16);
    std::vector<Parameter> again = parameters_of(DType::bf16, DType::bf16);
    const auto first = std::move(optimizers(straight, true)[2]);
    const auto second = std::move(optimizers(again, true)[2]);
    for (int number = 0; number < 7; ++number) {
      step(*first, straight, number, DType::bf16);
    }
    {
      const NoGradGuard no_grad;
      for (std::size_t i = 0; i < again.size(); ++i) {
        again[i].copy_(straight[i]);
      }
    }
    StateDict state;
    for (const auto& [key, value] : first->state_dict()) {
      if (with_state || key.find("master") == std::string::npos) {
        state.set(key, value);
      }
    }
    second->load_state_dict(state);
    for (int number = 7; number < 14; ++number) {
      step(*first, straight, number, DType::bf16);
      step(*second, again, number, DType::bf16);
    }
    const Values a = first->state_dict().at("state.0.master").to_vector<double>();
    const Values b = second->state_dict().at("state.0.master").to_vector<double>();
    EXPECT_EQ(a == b, with_state);  // without the state, masters start from rounded parameters
    EXPECT_NEAR(a[0], b[0], 0.02);
  }
}

TEST(MasterWeights, OfAStateAreNoBurdenToF32Parameters) {
  std::vector<Parameter> narrow = parameters_of(DType::f16, DType::f16);
  std::vector<Parameter> wide = parameters_of(DType::f32, DType::f16);
  const auto from = std::move(optimizers(narrow, true)[2]);
  const auto to = std::move(optimizers(wide, true)[2]);
  step(*from, narrow, 0, DType::f16);
  to->load_state_dict(from->state_dict());
  EXPECT_EQ(to->state_dict().find(name(0, "master")), nullptr);
  EXPECT_EQ(to->state_dict().at(name(0, "exp_avg")).to_vector<float>(),
            from->state_dict().at(name(0, "exp_avg")).to_vector<float>());
  step(*to, wide, 1, DType::f32);
}

TEST(MasterWeights, MoveWithTheModule) {
  nn::Linear layer(3, 2);
  layer.to(DType::bf16);
  Adam adam(layer.parameters(), {.lr = 0.01, .master_weights = true});
  const auto train = [&](DType dtype) {
    adam.zero_grad();
    layer(ones({4, 3}, {.dtype = dtype})).sum().backward();
    adam.step();
  };
  train(DType::bf16);
  layer.to(DType::f32);
  train(DType::f32);
  EXPECT_EQ(adam.state_dict().find("state.0.master"), nullptr);
  layer.to(DType::f16);
  train(DType::f16);
  const StateDict state = adam.state_dict();
  EXPECT_EQ(state.at("state.0.step").item(), 3);
  EXPECT_EQ(state.at("state.0.exp_avg").dtype(), DType::f32);
  EXPECT_EQ(state.at("state.0.master").to(DType::f16).to_vector<float>(), layer.weight.to_vector<float>());
}

TEST(MasterWeights, WithAScalerOfGradientsThatAreTooSmallForF16) {
  Parameter p(ones({5}, {.dtype = DType::f16}));
  Adam adam({p}, {.lr = 1e-3, .eps = 1e-12, .master_weights = true});
  optim::GradScaler scaler({.init_scale = 65536, .growth_interval = 3});
  for (int i = 0; i < 8; ++i) {
    adam.zero_grad();
    scaler.scale((p.to(DType::f32) * (i == 1 ? INFINITY : 1e-9)).sum()).backward();
    scaler.step(adam);
    scaler.update();
  }
  EXPECT_NEAR(adam.state_dict().at("state.0.master").to_vector<float>()[4], 1 - 7e-3, 1e-5);
  EXPECT_EQ(adam.state_dict().at("state.0.step").item(), 7);
}

}  // namespace
}  // namespace tandem
