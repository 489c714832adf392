#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/functional.h>
#include <tandem/nn/module.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/sgd.h>

#include "models.h"
#include "support/gpu.h"
#include "support/memory.h"
#include "support/message.h"

// Tests of moving a module to another device or dtype, also in the middle of training.

namespace tandem {
namespace {

using test::memory_of;
using test::message_of;
using test::Mixed;
using test::Mlp;
using test::values_of;
using ::testing::HasSubstr;

TEST(ModuleTo, MovesParametersGradientsAndBuffersAndKeepsTheirIdentity) {
  Mixed model;
  model(ones({3, 2})).sum().backward();
  const std::vector<Tensor> handles = model.parameters();
  const auto values = values_of(model);
  const auto gradients = test::gradients_of(model);
  model.to("cpu:1");
  for (const Tensor& p : handles) {
    EXPECT_EQ(p.device(), Device("cpu:1"));
    EXPECT_EQ(p.grad().device(), Device("cpu:1"));
    EXPECT_TRUE(p.requires_grad());
  }
  EXPECT_EQ(model.count.device(), Device("cpu:1"));
  EXPECT_EQ(model.parameters()[0].unresolved(), handles[0].unresolved());
  EXPECT_EQ(values_of(model), values);
  EXPECT_EQ(test::gradients_of(model), gradients);
  model(ones({3, 2}, {.device = "cpu:1"})).sum().backward();
  EXPECT_EQ(handles[0].grad().to_vector<double>()[0], 2 * gradients[0][0]) << "gradients go on adding up";
}

TEST(ModuleTo, ConvertsFloatingPointOnly) {
  Mixed model;
  model(ones({3, 2})).sum().backward();
  model.to(DType::f64);
  EXPECT_EQ(model.first.weight.dtype(), DType::f64);
  EXPECT_EQ(model.first.weight.grad().dtype(), DType::f64);
  EXPECT_EQ(model.mean.dtype(), DType::f64);
  EXPECT_EQ(model.count.dtype(), DType::i64);
  EXPECT_EQ(model(ones({3, 2}, {.dtype = DType::f64})).dtype(), DType::f64);
  EXPECT_EQ(message_of<DTypeError>([&] { model.to(DType::i64); }), "Mixed: to: a module is of floating point, not i64");
}

TEST(ModuleTo, ThePlaceWhereItIsChangesNothing) {
  Mlp model;
  const void* memory = memory_of(model.fc1.weight);
  model.to(model.fc1.weight.device());
  model.to(DType::f32);
  EXPECT_EQ(memory_of(model.fc1.weight), memory);
}

TEST(ModuleTo, AnUnknownDeviceIsAnErrorThatChangesNothing) {
  Mlp model;
  const Device here = model.fc1.weight.device();
  EXPECT_THROW(model.to("cpu:999"), DeviceError);
  EXPECT_EQ(model.fc1.weight.device(), here);
}

TEST(ModuleTo, KeepsFrozenParametersFrozenAndHooksInPlace) {
  Mlp model;
  model.fc1.weight.requires_grad_(false);
  int calls = 0;
  model.fc2.weight.register_post_accumulate_grad_hook([&](const Tensor& p) {
    EXPECT_EQ(p.device(), Device("cpu:1"));
    ++calls;
  });
  model.to("cpu:1");
  EXPECT_FALSE(model.fc1.weight.requires_grad());
  model(ones({2, 4}, {.device = "cpu:1"})).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(model.fc1.weight.grad().defined());
  model.fc1.weight.requires_grad_();
  model(ones({2, 4}, {.device = "cpu:1"})).sum().backward();
  EXPECT_EQ(model.fc1.weight.grad().device(), Device("cpu:1"));
}

// A graph from before the move would deliver gradients of another dtype or device.
TEST(ModuleTo, BetweenForwardAndBackwardIsAnError) {
  for (const bool to_device : {true, false}) {
    Mlp model;
    const Tensor loss = model(ones({2, 4})).sum();
    if (to_device) {
      model.to("cpu:1");
    } else {
      model.to(DType::f64);
    }
    EXPECT_THAT(message_of<AutogradError>([&] { loss.backward(); }),
                HasSubstr("was moved to another device or dtype after the forward pass"));
    for (const Tensor& p : model.parameters()) {
      EXPECT_FALSE(p.grad().defined());
    }
    TensorOptions options{.dtype = model.fc1.weight.dtype(), .device = model.fc1.weight.device()};
    model(ones({2, 4}, options)).sum().backward();
    EXPECT_TRUE(model.fc1.weight.grad().defined());
  }
}

TEST(ModuleTo, GradientsThatCameAlongSurviveAPassThatFailsAtOnce) {
  Mlp model;
  model(ones({2, 4})).sum().backward();
  model.to(DType::f64);
  const Tensor loss = model(ones({2, 4}, {.dtype = DType::f64})).sum();
  loss.register_hook([](const Tensor&) -> Tensor { throw ValueError("no"); });
  EXPECT_THROW(loss.backward(), ValueError);
  EXPECT_TRUE(model.fc1.weight.grad().defined());
}

// ---- in the middle of training ----

using MakeOptimizer = std::unique_ptr<optim::Optimizer> (*)(const std::vector<Tensor>&);

const std::vector<std::pair<std::string, MakeOptimizer>> kOptimizers{
    {"SGD",
     [](const std::vector<Tensor>& p) -> std::unique_ptr<optim::Optimizer> {
       return std::make_unique<optim::SGD>(p, optim::SGDOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01});
     }},
    {"Adam",
     [](const std::vector<Tensor>& p) -> std::unique_ptr<optim::Optimizer> {
       return std::make_unique<optim::Adam>(p, optim::AdamOptions{.lr = 0.01});
     }},
    {"AdamW", [](const std::vector<Tensor>& p) -> std::unique_ptr<optim::Optimizer> {
       return std::make_unique<optim::AdamW>(p, optim::AdamWOptions{.lr = 0.01});
     }}};

// Trains for 12 steps; `between(step, model)` may move the model.
template <class Model, class Between>
std::vector<std::vector<double>> trained(MakeOptimizer make, Between between) {
  manual_seed(11);
  Model model;
  const auto optimizer = make(model.parameters());
  const Tensor data = randn({5, 4});
  for (int step = 0; step < 12; ++step) {
    between(step, model);
    const Tensor x = data.to(model.parameters()[0].dtype()).to(model.parameters()[0].device());
    optimizer->zero_grad();
    const Tensor out = model(x);
    (out * out).mean().backward();
    optimizer->step();
  }
  return values_of(model);
}

template <class Model>
void expect_moving_changes_nothing() {
  for (const auto& [name, make] : kOptimizers) {
    SCOPED_TRACE(name);
    const auto expected = trained<Model>(make, [](int, Model&) {});
    const auto once = trained<Model>(make, [](int step, Model& model) {
      if (step == 5) model.to("cpu:1");
    });
    EXPECT_EQ(once, expected);
    const auto there_and_back = trained<Model>(make, [](int step, Model& model) {
      if (step == 5) {
        model.to("cpu:1");
        model.to("cpu:0");
      }
    });
    EXPECT_EQ(there_and_back, expected);
    const auto often = trained<Model>(make, [](int step, Model& model) {
      model.to(Device(DeviceType::cpu, step % 3));
      model.to(Device(DeviceType::cpu, (step + 1) % 3));
    });
    EXPECT_EQ(often, expected);
    const auto before = trained<Model>(make, [](int step, Model& model) {
      if (step == 0) model.to("cpu:2");
    });
    EXPECT_EQ(before, expected);
  }
}

TEST(TrainingWhileMoving, IsEqualToNeverMoving) {
  TANDEM_SKIP_ON_GPU("a GPU rounds sums in another order than a CPU");
  expect_moving_changes_nothing<Mlp>();
}

// One parameter of exactly 256 bytes: after two moves its elements are likely to have their old address again.
struct Small : nn::Module<Small> {
  Parameter weight = parameter("weight", randn({16, 4}));
  Tensor forward(const Tensor& x) const { return linear(x, weight); }
};
TEST(TrainingWhileMoving, IsEqualWhenMemoryIsUsedAgain) {
  TANDEM_SKIP_ON_GPU("a GPU rounds sums in another order than a CPU");
  expect_moving_changes_nothing<Small>();
}

TEST(TrainingWhileMoving, ThroughF64AndBackKeepsTheOptimizersState) {
  for (const auto& [name, make] : kOptimizers) {
    SCOPED_TRACE(name);
    // f32 values pass through f64 unchanged.
    const auto expected = trained<Small>(make, [](int, Small&) {});
    EXPECT_EQ(trained<Small>(make,
                             [](int step, Small& model) {
                               if (step == 5) {
                                 model.to(DType::f64);
                                 model.to(DType::f32);
                               }
                             }),
              expected);
  }
}

TEST(TrainingWhileMoving, GradientsFromBeforeTheMoveAreUsed) {
  for (const auto& [name, make] : kOptimizers) {
    SCOPED_TRACE(name);
    const auto run = [make = make](bool move) {
      manual_seed(12);
      Mlp model;
      const auto optimizer = make(model.parameters());
      const Tensor x = randn({5, 4});
      model(x).sum().backward();
      optimizer->step();
      model(x).sum().backward();
      if (move) model.to("cpu:1");
      optimizer->step();
      return values_of(model);
    };
    const auto moved = run(true);
    const auto stayed = run(false);
    ASSERT_EQ(moved.size(), stayed.size());
    for (std::size_t k = 0; k < moved.size(); ++k) {
      test::expect_same_up_to_gpu(moved[k], stayed[k]);
    }
  }
}

TEST(TrainingWhileMoving, AnOptimizerMadeAfterTheMoveIsTheSame) {
  for (const auto& [name, make] : kOptimizers) {
    SCOPED_TRACE(name);
    const auto run = [make = make](bool before) {
      manual_seed(13);
      Mlp model;
      std::unique_ptr<optim::Optimizer> optimizer;
      if (before) optimizer = make(model.parameters());
      model.to("cpu:1");
      if (!before) optimizer = make(model.parameters());
      const Tensor x = randn({5, 4}, {.device = "cpu:1"});
      for (int step = 0; step < 3; ++step) {
        optimizer->zero_grad();
        model(x).sum().backward();
        optimizer->step();
      }
      return values_of(model);
    };
    EXPECT_EQ(run(true), run(false));
  }
}

}  // namespace
}  // namespace tandem
