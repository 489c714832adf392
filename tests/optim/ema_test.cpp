#include <tandem/optim/ema.h>

#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/container.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

namespace tandem {
namespace {

using optim::EMA;
using test::message_of;
using Values = std::vector<double>;

std::vector<Values> values_of(const std::vector<Tensor>& tensors) {
  std::vector<Values> all;
  for (const Tensor& t : tensors)
    all.push_back(t.to_vector<double>());
  return all;
}

struct AveragedTraining {
  nn::Sequential model{nn::Linear(3, 4), nn::Linear(4, 2)};
  optim::SGD sgd{model.parameters(), {.lr = 0.1}};

  void step() {
    sgd.zero_grad();
    const Tensor out = model(ones({2, 3}, {.dtype = model.parameters()[0].dtype()}));
    (out * out).sum().backward();
    sgd.step();
  }
};

TEST(EMA, IsTheMovingAverageOfTheParameters) {
  manual_seed(3);
  AveragedTraining run;
  run.model.to(DType::f64);
  EMA ema(run.model.parameters(), {.decay = 0.75});
  EXPECT_EQ(values_of(ema.averages()), values_of(run.model.parameters()));
  std::vector<Values> expected;
  for (int step = 0; step < 20; ++step) {
    run.step();
    ema.update();
    const auto now = values_of(run.model.parameters());
    if (step == 0) {
      expected = now;  // the first update copies
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
      const Values got = ema.averages()[i].to_vector<double>();
      for (std::size_t j = 0; j < now[i].size(); ++j) {
        expected[i][j] = 0.75 * expected[i][j] + 0.25 * now[i][j];
        ASSERT_NEAR(got[j], expected[i][j], 1e-13);
      }
    }
  }
  EXPECT_EQ(ema.num_updates(), 20);
}

TEST(EMA, ScopeGivesTheModelTheAveragesAndTakesThemBack) {
  AveragedTraining run;
  EMA ema(run.model.parameters(), {.decay = 0.5});
  for (int step = 0; step < 3; ++step) {
    run.step();
    ema.update();
  }
  const auto own = values_of(run.model.parameters());
  const auto averages = values_of(ema.averages());
  ASSERT_NE(own, averages);
  {
    const EMA::Scope averaged(ema);
    EXPECT_EQ(values_of(run.model.parameters()), averages);
    EXPECT_TRUE(run.model.parameters()[0].is_leaf());
    EXPECT_EQ(message_of<ConfigError>([&] { ema.update(); }),
              "EMA: update() within a Scope: the parameters are the averages there");
    EXPECT_EQ(message_of<ConfigError>([&] { EMA::Scope again(ema); }),
              "EMA: the averages are in the parameters already; scopes do not nest");
  }
  EXPECT_EQ(values_of(run.model.parameters()), own);
  EXPECT_EQ(values_of(ema.averages()), averages);
  run.step();
  ema.update();
}

TEST(EMA, FollowsTheModelToAnotherDeviceAndDType) {
  AveragedTraining run;
  EMA ema(run.model.parameters(), {.decay = 0.5});
  ema.update();
  const auto before = values_of(ema.averages());
  run.model.to("cpu:1");
  run.model.to(DType::f64);
  ema.update();
  EXPECT_EQ(ema.averages()[0].device(), Device("cpu:1"));
  EXPECT_EQ(ema.averages()[0].dtype(), DType::f64);
  EXPECT_EQ(values_of(ema.averages()), before);
  const EMA::Scope averaged(ema);
  EXPECT_EQ(values_of(run.model.parameters()), before);
}

TEST(EMA, StateGoesOnToTheBit) {
  manual_seed(4);
  AveragedTraining run;
  EMA ema(run.model.parameters(), {.decay = 0.9});
  for (int step = 0; step < 4; ++step) {
    run.step();
    ema.update();
  }
  const StateDict state = ema.state_dict();
  const auto saved = values_of(ema.averages());
  EMA other(run.model.parameters(), {.decay = 0.9});
  other.load_state_dict(state);
  run.step();
  ema.update();
  other.update();
  EXPECT_EQ(values_of(other.averages()), values_of(ema.averages()));
  EXPECT_EQ(other.num_updates(), 5);
  EXPECT_EQ(state.at("n_averaged").item(), 4);
  EXPECT_EQ(state.at("average.0").to_vector<double>(), saved[0]) << "a copy";
}

TEST(EMA, TransposedAndEmptyLeaves) {
  Tensor transposed = arange(6.0).reshape({2, 3}).t();
  transposed.requires_grad_();
  EMA ema({transposed, zeros({0, 3})}, {.decay = 0.5});
  ema.update();
  {
    const NoGradGuard no_grad;
    transposed.mul_(3);
  }
  ema.update();
  EXPECT_EQ(ema.averages()[0].to_vector<double>(), (Values{0, 6, 2, 8, 4, 10}));
}

TEST(EMA, WrongUseIsAnError) {
  const Tensor p = zeros({2}, {.requires_grad = true});
  EXPECT_EQ(message_of<ConfigError>([&] { EMA({p}, {.decay = 1.5}); }), "EMA: decay must be in [0, 1], got 1.5");
  EXPECT_EQ(message_of<ConfigError>([&] { EMA(std::vector<Tensor>{}); }),
            "EMA: the list of parameters is empty (did the model register its layers?)");
  EXPECT_EQ(message_of<ConfigError>([&] { EMA({p, Tensor()}); }), "EMA: parameter 1 is undefined");
  EXPECT_EQ(message_of<ConfigError>([&] { EMA({p, p}); }), "EMA: parameter 1 appears twice");
  EXPECT_EQ(message_of<ConfigError>([&] { EMA({p, arange(3)}); }),
            "EMA: parameter 1 is i64; only floating point can be averaged");
  EMA ema({p});
  StateDict state;
  state.set("average.0", zeros({3}));
  EXPECT_EQ(message_of<ConfigError>([&] { ema.load_state_dict(state); }),
            "load_state_dict: the state does not fit EMA; nothing was loaded\n"
            "  shape of 'average.0': EMA has [2], the state [3]\n"
            "  missing: 'n_averaged'");
}

}  // namespace
}  // namespace tandem
