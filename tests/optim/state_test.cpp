#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/parameter.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/container.h>
#include <tandem/optim/lr_scheduler.h>
#include <tandem/optim/one_cycle_lr.h>

#include "support/gpu.h"
#include "support/message.h"
#include "training_run.h"

// Tests that a new optimiser continues from a loaded state, to the bit.

namespace tandem {
namespace {

using test::gradient_at;
using test::kSizes;
using test::message_of;
using test::Values;
using ::testing::ElementsAre;

std::vector<std::string> names(const StateDict& state) {
  std::vector<std::string> all;
  for (const auto& [name, value] : state) {
    all.push_back(name);
  }
  return all;
}

// Parameters of kSizes and an optimiser with two groups that are not neighbours in memory.
struct GroupedRun {
  std::vector<Parameter> parameters;
  std::unique_ptr<optim::Optimizer> optimizer;

  GroupedRun(const test::Case& c, DType dtype, Device device = "cpu:0") {
    manual_seed(5);
    for (const Shape& sizes : kSizes) {
      parameters.emplace_back(randn(sizes, {.dtype = dtype}).to(device));
    }
    parameters[3].requires_grad_(false);
    optimizer = c.make_groups({{.params = {parameters[0], parameters[2], parameters[3]}},
                               {.params = {parameters[4], parameters[1]}, .lr = 0.03, .weight_decay = 0.2}});
  }

  // Parameter 1 gets a gradient in some steps, parameter 3 never.
  void train(int first, int last) {
    for (int step = first; step < last; ++step) {
      optimizer->zero_grad();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (i == 3 || (i == 1 && step % 3 != 0)) continue;
        parameters[i].backward(gradient_at(step, i, parameters[i].dtype()).to(parameters[i].device()));
      }
      optimizer->step();
    }
  }
  std::vector<Values> values() const {
    std::vector<Values> all;
    for (const Parameter& p : parameters)
      all.push_back(p.to_vector<double>());
    return all;
  }
  void take_values(const std::vector<Values>& all) {
    const NoGradGuard no_grad;
    for (std::size_t i = 0; i < all.size(); ++i)
      parameters[i].copy_(from_data(all[i], parameters[i].shape()));
  }
};

class EveryState : public ::testing::TestWithParam<test::Case> {};

TEST_P(EveryState, TrainingGoesOnToTheBit) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    GroupedRun whole(GetParam(), dtype);
    whole.train(0, 5);
    const StateDict state = whole.optimizer->state_dict();
    const auto values = whole.values();
    whole.train(5, 12);

    GroupedRun other(GetParam(), dtype);
    other.train(20, 23);  // the load must erase all traces of this
    other.take_values(values);
    other.optimizer->load_state_dict(state);
    other.train(5, 12);
    EXPECT_EQ(other.values(), whole.values());

    GroupedRun there(GetParam(), dtype, "cpu:1");
    there.take_values(values);
    there.optimizer->load_state_dict(state);
    there.train(5, 12);
    EXPECT_EQ(there.values(), whole.values()) << "on another device";
  }
}

TEST_P(EveryState, LoadedBetweenBackwardAndStep) {
  GroupedRun whole(GetParam(), DType::f32);
  whole.train(0, 5);
  GroupedRun other(GetParam(), DType::f32);
  other.take_values(whole.values());
  for (GroupedRun* run : {&whole, &other}) {
    run->parameters[0].zero_grad();
    run->parameters[0].backward(gradient_at(5, 0, DType::f32).to(run->parameters[0].device()));
  }
  other.optimizer->load_state_dict(whole.optimizer->state_dict());
  for (const std::size_t i : {1u, 2u, 4u})
    whole.parameters[i].zero_grad();
  whole.optimizer->step();
  other.optimizer->step();
  EXPECT_EQ(other.values(), whole.values());
}

TEST_P(EveryState, IsACopyAndSurvivesARoundTrip) {
  GroupedRun run(GetParam(), DType::f64);
  run.train(0, 4);
  const StateDict state = run.optimizer->state_dict();
  std::vector<Values> before;
  for (const auto& [name, value] : state)
    before.push_back(value.to_vector<double>());
  run.train(4, 8);
  GroupedRun other(GetParam(), DType::f64);
  other.optimizer->load_state_dict(state);
  const StateDict again = other.optimizer->state_dict();
  EXPECT_EQ(names(again), names(state));
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ((again.begin() + static_cast<std::ptrdiff_t>(i))->second.to_vector<double>(), before[i]);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryState, ::testing::ValuesIn(test::kCases),
                         [](const auto& test) { return std::string(test.param.name); });

Tensor leaf(const Shape& sizes) { return zeros(sizes, {.requires_grad = true}); }

TEST(OptimizerState, HasPyTorchsNames) {
  const Tensor a = leaf({2, 3});
  const Tensor b = leaf({});
  optim::Adam adam({{.params = {a}}, {.params = {b}, .lr = 0.5}}, {.weight_decay = 0.1, .amsgrad = true});
  a.sum().backward();
  adam.step();
  adam.step();
  const StateDict state = adam.state_dict();
  EXPECT_THAT(names(state),
              ElementsAre("state.0.step", "state.0.exp_avg", "state.0.exp_avg_sq", "state.0.max_exp_avg_sq",
                          "param_groups.0.lr", "param_groups.0.weight_decay", "param_groups.0.momentum",
                          "param_groups.0.params", "param_groups.1.lr", "param_groups.1.weight_decay",
                          "param_groups.1.momentum", "param_groups.1.params"));
  EXPECT_EQ(state.at("state.0.step").dtype(), DType::i64);
  EXPECT_EQ(state.at("state.0.step").item<std::int64_t>(), 2);
  EXPECT_EQ(state.at("state.0.exp_avg").shape(), a.shape());
  EXPECT_EQ(state.at("param_groups.1.lr").item(), 0.5);
  EXPECT_EQ(state.at("param_groups.1.params").to_vector<std::int64_t>(), std::vector<std::int64_t>{1});
  optim::RMSprop rmsprop({a}, {.momentum = 0.5, .centered = true});
  rmsprop.step();
  EXPECT_THAT(names(rmsprop.state_dict()),
              ElementsAre("state.0.step", "state.0.square_avg", "state.0.momentum_buffer", "state.0.grad_avg",
                          "param_groups.0.lr", "param_groups.0.weight_decay", "param_groups.0.momentum",
                          "param_groups.0.params"));
}

TEST(OptimizerState, HoldsTheRatesOfGroups) {
  const Tensor a = leaf({2});
  const Tensor b = leaf({2});
  optim::SGD sgd({{.params = {a}}, {.params = {b}}}, {.momentum = 0.9});
  sgd.param_groups()[1].set_lr(0.25);
  sgd.param_groups()[1].set_weight_decay(0.125);
  sgd.param_groups()[0].set_momentum(0.5);
  optim::SGD other({{.params = {b}}, {.params = {a}}}, {.momentum = 0.9});
  other.load_state_dict(sgd.state_dict());
  EXPECT_EQ(other.param_groups()[1].lr(), 0.25);
  EXPECT_EQ(other.param_groups()[1].weight_decay(), 0.125);
  EXPECT_EQ(other.param_groups()[0].momentum(), 0.5);
}

// The optimiser's buffers are still on the module's old device.
TEST(OptimizerState, FollowsAModuleThatMoved) {
  manual_seed(1);
  nn::Sequential model(nn::Linear(3, 4), nn::Linear(4, 1));
  optim::Adam adam(model.parameters(), {.lr = 0.1});
  const Tensor x = ones({2, 3});
  const auto train = [&](nn::Sequential& net, optim::Adam& optimizer) {
    optimizer.zero_grad();
    net(x.to(net.parameters()[0].dtype()).to(net.parameters()[0].device())).sum().backward();
    optimizer.step();
  };
  train(model, adam);
  model.to("cpu:1");
  model.to(DType::f64);
  const StateDict state = adam.state_dict();
  nn::Sequential other(nn::Linear(3, 4), nn::Linear(4, 1));
  optim::Adam second(other.parameters(), {.lr = 0.1});
  other.to(DType::f64);
  other.load_state_dict(model.state_dict());
  second.load_state_dict(state);
  second.load_state_dict(second.state_dict());
  for (int step = 0; step < 3; ++step) {
    train(model, adam);
    train(other, second);
  }
  test::expect_same_up_to_gpu(other.parameters()[0].to_vector<double>(), model.parameters()[0].to_vector<double>());
}

TEST(OptimizerState, TellsOfEverythingThatDoesNotFitAtOnce) {
  const Tensor a = leaf({2});
  const Tensor b = leaf({3});
  optim::Adam adam({a, b});
  (a.sum() + b.sum()).backward();
  adam.step();
  StateDict state;
  state.set("state.0.step", tensor(0));
  state.set("state.0.exp_avg", zeros({5}));
  state.set("state.0.exp_avg_sq", zeros({2}, {.dtype = DType::i64}));
  state.set("state.1.exp_avgs", zeros({3}));
  state.set("state.1.exp_avg_sq", zeros({3}));
  state.set("state.1.step", tensor(2.5));
  state.set("state.7.step", tensor(1));
  state.set("param_groups.0.lr", tensor(-1.0));
  state.set("param_groups.0.weight_decay", Tensor());
  state.set("param_groups.0.momentum", tensor(0.5));
  state.set("param_groups.0.params", tensor({1, 0}));
  EXPECT_EQ(message_of<ConfigError>([&] { adam.load_state_dict(state); }),
            "load_state_dict: the state does not fit Adam; nothing was loaded\n"
            "  value of 'state.0.step': Adam needs an integer >= 1, the state has 0\n"
            "  shape of 'state.0.exp_avg': Adam has [2], the state [5]\n"
            "  dtype of 'state.0.exp_avg_sq': Adam needs floating point, the state has i64\n"
            "  value of 'state.1.step': Adam needs an integer >= 1, the state has 2.5\n"
            "  value of 'param_groups.0.weight_decay': the state has an undefined tensor\n"
            "  group 0: Adam: the learning rate must be a number >= 0, got -1\n"
            "  value of 'param_groups.0.params': Adam has parameters 0 ... 1 in this group, the state others\n"
            "  missing: 'state.1.exp_avg'\n"
            "  unexpected: 'state.1.exp_avgs' (is it 'state.1.exp_avg'?)\n"
            "  unexpected: 'state.7.step'");
  EXPECT_EQ(adam.state_dict().at("state.0.step").item(), 1) << "nothing was loaded";
  EXPECT_EQ(adam.learning_rate(), 1e-3);
}

TEST(OptimizerState, OfAnotherOptimizerIsRefused) {
  const Tensor a = leaf({2});
  a.sum().backward();
  optim::SGD plain({a});
  optim::SGD heavy({a}, {.momentum = 0.9});
  heavy.step();
  EXPECT_EQ(message_of<ConfigError>([&] { plain.load_state_dict(heavy.state_dict()); }),
            "load_state_dict: the state does not fit SGD; nothing was loaded\n"
            "  group 0: SGD: momentum cannot change from 0 to 0.9: choose when the optimiser is made whether there is "
            "any\n"
            "  unexpected: 'state.0.momentum_buffer'");
  optim::SGD two({{.params = {a}}, {.params = {leaf({1})}}});
  EXPECT_THROW(two.load_state_dict(plain.state_dict()), ConfigError);
  EXPECT_THROW(plain.load_state_dict(two.state_dict()), ConfigError);
}

// ---- schedules ----

TEST(SchedulerState, GoesOnToTheBitWithItsOptimizer) {
  const auto make = [] {
    return std::make_unique<optim::SGD>(
        std::vector<optim::ParamGroup>{{.params = {leaf({1})}}, {.params = {leaf({1})}, .lr = 0.2}},
        optim::SGDOptions{.lr = 0.5, .momentum = 0.9});
  };
  struct Schedules {
    optim::LinearLR warm_up;
    optim::CosineAnnealingLR cosine;
    optim::SequentialLR sequence;
    explicit Schedules(optim::Optimizer& optimizer)
        : warm_up(optimizer, {.total_iters = 3}),
          cosine(optimizer, {.T_max = 9}),
          sequence(optimizer, {&warm_up, &cosine}, {3}) {}
  };
  const auto sgd = make();
  Schedules schedules(*sgd);
  for (int i = 0; i < 5; ++i)
    schedules.sequence.step();
  const StateDict optimizer_state = sgd->state_dict();
  const StateDict state = schedules.sequence.state_dict();
  EXPECT_THAT(names(state), ElementsAre("last_epoch", "base_lrs", "last_lrs", "schedulers.0.last_epoch",
                                        "schedulers.0.base_lrs", "schedulers.0.last_lrs", "schedulers.1.last_epoch",
                                        "schedulers.1.base_lrs", "schedulers.1.last_lrs"));
  std::vector<std::vector<double>> rates;
  for (int i = 0; i < 5; ++i) {
    schedules.sequence.step();
    rates.push_back(schedules.sequence.last_lrs());
  }
  for (const bool optimizer_first : {true, false}) {
    const auto other = make();
    if (optimizer_first) other->load_state_dict(optimizer_state);
    Schedules again(*other);
    again.sequence.load_state_dict(state);
    if (!optimizer_first) other->load_state_dict(optimizer_state);
    EXPECT_EQ(other->param_groups()[1].lr(), optimizer_state.at("param_groups.1.lr").item());
    for (const auto& expected : rates) {
      again.sequence.step();
      EXPECT_EQ(again.sequence.last_lrs(), expected);
    }
  }
}

TEST(SchedulerState, OneCycleGoesOnWithItsMomentum) {
  const auto make = [] { return optim::SGD({leaf({1})}, {.momentum = 0.9}); };
  optim::SGD sgd = make();
  optim::OneCycleLR cycle(sgd, {.max_lr = {0.5}, .total_steps = 20});
  for (int i = 0; i < 8; ++i)
    cycle.step();
  optim::SGD other = make();
  optim::OneCycleLR again(other, {.max_lr = {0.5}, .total_steps = 20});
  other.load_state_dict(sgd.state_dict());
  again.load_state_dict(cycle.state_dict());
  EXPECT_EQ(other.param_groups()[0].momentum(), sgd.param_groups()[0].momentum());
  cycle.step();
  again.step();
  EXPECT_EQ(other.learning_rate(), sgd.learning_rate());
  EXPECT_EQ(other.param_groups()[0].momentum(), sgd.param_groups()[0].momentum());
}

TEST(SchedulerState, TellsOfEverythingThatDoesNotFitAtOnce) {
  optim::SGD sgd({leaf({1})});
  optim::StepLR schedule(sgd, {.step_size = 2});
  StateDict state;
  state.set("last_epochs", tensor(3));
  state.set("base_lrs", zeros({2}));
  state.set("last_lrs", full({1}, std::nan(""), {.dtype = DType::f64}));
  EXPECT_EQ(message_of<ConfigError>([&] { schedule.load_state_dict(state); }),
            "load_state_dict: the state does not fit StepLR; nothing was loaded\n"
            "  shape of 'base_lrs': StepLR has [1], the state [2]\n"
            "  value of 'last_lrs': a rate must be a number >= 0, got nan\n"
            "  missing: 'last_epoch'\n"
            "  unexpected: 'last_epochs' (is it 'last_epoch'?)");
}

}  // namespace
}  // namespace tandem
