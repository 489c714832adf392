#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/isa.h>
#include <tandem/graph/capture.h>
#include <tandem/kernels/fused_update.h>
#include <tandem/nn/container.h>
#include <tandem/nn/loss.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/optim/rmsprop.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

// Steps whose optimiser updates the weights inside the products that give their gradients.

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr graph::CaptureOptions kFused{.fuse_update = true};

struct Training {
  nn::Sequential model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::function<void(Training&, const Tensor& loss)> after_forward = [](Training& self, const Tensor& loss) {
    self.optimizer->zero_grad();
    loss.backward();
    self.optimizer->step();
  };

  Tensor step(const Tensor& x, const Tensor& y) {
    Tensor loss = nn::cross_entropy(model(x), y);
    after_forward(*this, loss);
    return loss;
  }
};

using Make = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>&)>;

const Make kAdam = [](const auto& parameters) {
  return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{});
};
const Make kSgd = [](const auto& parameters) {
  return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
};

nn::Sequential mlp() { return nn::Sequential(nn::Linear(20, 33), nn::ReLU(), nn::Linear(33, 17), nn::Linear(17, 7)); }

std::unique_ptr<Training> make_training(const Make& make, nn::Sequential model = mlp()) {
  auto optimizer = make(model.parameters());
  return std::make_unique<Training>(Training{.model = std::move(model), .optimizer = std::move(optimizer)});
}

Tensor inputs(std::int64_t batch, int i) {
  Generator generator(static_cast<std::uint64_t>(i));
  const GeneratorScope scope(generator);
  return randn({batch, 20});
}
Tensor classes(std::int64_t batch, int i) {
  Generator generator(static_cast<std::uint64_t>(100 + i));
  const GeneratorScope scope(generator);
  return randint(0, 7, {batch});
}

struct Result {
  std::vector<std::vector<double>> values;
  graph::CaptureStats stats;
};

Result train(const std::function<std::unique_ptr<Training>()>& make, bool fused, std::int64_t batch) {
  Generator generator(5);
  const GeneratorScope scope(generator);
  const std::unique_ptr<Training> training = make();
  auto step = graph::capture([&](const Tensor& x, const Tensor& y) { return training->step(x, y); }, kFused);
  Result result;
  for (int i = 0; i < 8; ++i) {
    const Tensor x = inputs(batch, i);
    const Tensor y = classes(batch, i);
    result.values.push_back((fused ? step(x, y) : training->step(x, y)).to_vector<double>());
  }
  for (const auto& [name, value] : training->model.state_dict())
    result.values.push_back(value.to_vector<double>());
  for (const auto& [name, value] : training->optimizer->state_dict())
    result.values.push_back(value.to_vector<double>());
  result.stats = step.stats();
  return result;
}

// Trains eagerly and with fused updates, and returns how many weights were fused.
std::size_t expect_eager_bits(const std::function<std::unique_ptr<Training>()>& make, std::int64_t batch = 16) {
  const Result eager = train(make, false, batch);
  const Result fused = train(make, true, batch);
  EXPECT_EQ(fused.values, eager.values);
  EXPECT_GT(fused.stats.replayed, 0u);
  return fused.stats.fused_updates;
}

// `count` on machines that fuse.
std::size_t fusing(std::size_t count) {
  return core::thread_state().device.type == DeviceType::cpu && core::isa() != core::Isa::baseline ? count : 0;
}
#define SKIP_UNLESS_FUSING()                                  \
  if (fusing(1) == 0) {                                       \
    GTEST_SKIP() << "no update is fused on this machine yet"; \
  }                                                           \
  static_assert(true)

class CaptureFused : public testing::Test {
 protected:
  void SetUp() override { kernels::set_least_fused_update(1); }
  void TearDown() override { kernels::set_least_fused_update(kernels::kLeastFusedUpdate); }
};

TEST_F(CaptureFused, HasTheBitsOfEagerSteps) {
  for (const Make& make : {kAdam, kSgd})
    for (const std::int64_t batch : {1, 16, 300})
      EXPECT_EQ(expect_eager_bits([&] { return make_training(make); }, batch), batch > 1 ? fusing(3) : 0) << batch;
}

TEST_F(CaptureFused, SmallAndLargeWeightsAreUpdatedWithTheirOwnStates) {
  const Make decayed = [](const std::vector<Tensor>& parameters) {
    return std::make_unique<optim::AdamW>(
        std::vector<optim::ParamGroup>{{.params = {parameters[0], parameters[1]}, .lr = 0.01},
                                       {.params = {parameters[2], parameters[3]}, .weight_decay = 0.1}},
        optim::AdamWOptions{.amsgrad = true});
  };
  EXPECT_EQ(expect_eager_bits([&] {
              return make_training(decayed, nn::Sequential(nn::Linear(20, 7000), nn::ReLU(), nn::Linear(7000, 7)));
            }),
            fusing(2));
}

TEST_F(CaptureFused, AnEagerStepBeforeKeepsItsState) {
  EXPECT_EQ(expect_eager_bits([] {
              auto training = make_training(kAdam);
              training->step(inputs(16, 50), classes(16, 50));
              return training;
            }),
            fusing(3));
}

// The gradient of w reads x against its rows, which takes two passes.
TEST_F(CaptureFused, ProductsOfMatricesAreFused) {
  const auto step_of = [](Tensor& w, Tensor& v, optim::SGD& sgd) {
    return [&](const Tensor& x) {
      sgd.zero_grad();
      Tensor loss = w.matmul(x).matmul(v).sum();
      loss.backward();
      sgd.step();
      return loss;
    };
  };
  std::vector<std::vector<float>> results;
  for (const bool fused : {false, true}) {
    Tensor w = full({9, 20}, 0.5).requires_grad_();
    Tensor v = full({12, 5}, 0.25).requires_grad_();
    optim::SGD sgd({w, v}, {.lr = 0.1});
    auto step = graph::capture(step_of(w, v, sgd), {.fuse_update = fused});
    for (int i = 0; i < 5; ++i)
      step(inputs(12, i).transpose(0, 1));
    EXPECT_EQ(step.stats().fused_updates, fused ? fusing(1) : 0);
    results.push_back(w.to_vector<float>());
    results.push_back(v.to_vector<float>());
  }
  EXPECT_EQ(results[2], results[0]);
  EXPECT_EQ(results[3], results[1]);
}

TEST_F(CaptureFused, WithoutTheOptionNothingIsFused) {
  const auto training = make_training(kSgd);
  auto step = graph::capture([&](const Tensor& x, const Tensor& y) { return training->step(x, y); });
  for (int i = 0; i < 4; ++i)
    step(inputs(4, i), classes(4, i));
  EXPECT_EQ(step.stats().fused_updates, 0u);
  EXPECT_TRUE(training->model.parameters()[0].grad().defined());
}

// ---- whoever reads a gradient before the update gets it ----

std::size_t fused_with(const std::function<void(Training&, const Tensor&)>& after_forward, const Make& make = kSgd) {
  return expect_eager_bits([&] {
    auto training = make_training(make);
    training->after_forward = after_forward;
    return training;
  });
}

TEST_F(CaptureFused, AGradientThatTheStepReadsIsComputed) {
  const std::size_t fused = fused_with([](Training& self, const Tensor& loss) {
    self.optimizer->zero_grad();
    loss.backward();
    const Tensor weight = self.model.parameters()[0];
    weight.grad().mul_(2.0);
    self.optimizer->step();
  });
  EXPECT_EQ(fused, fusing(2));
}

TEST_F(CaptureFused, ClippingSeesAllGradients) {
  EXPECT_EQ(fused_with([](Training& self, const Tensor& loss) {
              self.optimizer->zero_grad();
              loss.backward();
              optim::clip_grad_norm_(self.model.parameters(), 0.01);
              self.optimizer->step();
            }),
            0u);
  EXPECT_EQ(fused_with([](Training& self, const Tensor& loss) {
              self.optimizer->zero_grad();
              loss.backward();
              optim::clip_grad_value_(self.model.parameters(), 0.001);
              self.optimizer->step();
            }),
            0u);
}

TEST_F(CaptureFused, AGradScalerSeesAllGradients) {
  const auto scaler = [] { return std::make_shared<optim::GradScaler>(optim::GradScalerOptions{.init_scale = 8}); };
  EXPECT_EQ(expect_eager_bits([&] {
              auto training = make_training(kAdam);
              training->after_forward = [scaler = scaler()](Training& self, const Tensor& loss) {
                self.optimizer->zero_grad();
                scaler->scale(loss).backward();
                scaler->step(*self.optimizer);
                scaler->update();
              };
              return training;
            }),
            0u);
}

TEST_F(CaptureFused, SkipNonfiniteSeesAllGradients) {
  EXPECT_EQ(expect_eager_bits([&] {
              auto training = make_training(kAdam);
              training->optimizer->skip_nonfinite();
              return training;
            }),
            0u);
}

TEST_F(CaptureFused, TwoPassesAddUp) {
  EXPECT_EQ(fused_with([](Training& self, const Tensor& loss) {
              self.optimizer->zero_grad();
              loss.backward({}, true);
              loss.backward();
              self.optimizer->step();
            }),
            0u);
}

TEST_F(CaptureFused, AWeightThatTwoLayersShareGetsBothContributions) {
  std::vector<std::vector<float>> results;
  for (const bool fuse : {false, true}) {
    Tensor w = full({20, 20}, 0.1).requires_grad_();
    optim::Adam adam({w});
    auto step = graph::capture(
        [&](const Tensor& x) {
          adam.zero_grad();
          linear(linear(x, w, {}), w, {}).sum().backward();
          adam.step();
        },
        {.fuse_update = fuse});
    for (int i = 0; i < 4; ++i)
      step(inputs(6, i));
    EXPECT_EQ(step.stats().fused_updates, 0u);
    results.push_back(w.to_vector<float>());
  }
  EXPECT_EQ(results[1], results[0]);
}

TEST_F(CaptureFused, HooksSeeTheGradient) {
  std::vector<std::vector<double>> sums;
  for (const bool fuse : {false, true}) {
    Generator generator(5);
    const GeneratorScope scope(generator);
    const auto training = make_training(kSgd);
    const Tensor sum = zeros({});
    const HookHandle hook =
        training->model.parameters()[0].register_post_accumulate_grad_hook([&](const Tensor& weight) {
          Tensor total = sum;
          total.add_(weight.grad().sum());
        });
    auto step =
        graph::capture([&](const Tensor& x, const Tensor& y) { return training->step(x, y); }, {.fuse_update = fuse});
    for (int i = 0; i < 4; ++i)
      step(inputs(4, i), classes(4, i));
    EXPECT_EQ(step.stats().fused_updates, fuse ? fusing(2) : 0);
    sums.push_back(sum.to_vector<double>());
  }
  EXPECT_EQ(sums[1], sums[0]);
}

TEST_F(CaptureFused, AnOptimizerThatDoesNotFuseFindsItsGradients) {
  EXPECT_EQ(expect_eager_bits([] {
              return make_training([](const auto& parameters) {
                return std::make_unique<optim::RMSprop>(parameters, optim::RMSpropOptions{});
              });
            }),
            0u);
}

TEST_F(CaptureFused, AStepWithoutAnUpdateLeavesTheGradients) {
  const auto training = make_training(kSgd);
  training->after_forward = [](Training& self, const Tensor& loss) {
    self.optimizer->zero_grad();
    loss.backward();
  };
  auto step = graph::capture([&](const Tensor& x, const Tensor& y) { return training->step(x, y); }, kFused);
  for (int i = 0; i < 4; ++i)
    step(inputs(4, i), classes(4, i));
  const Tensor weight = training->model.parameters()[0];
  const std::vector<float> got = weight.grad().to_vector<float>();
  training->step(inputs(4, 3), classes(4, 3));
  EXPECT_EQ(got, weight.grad().to_vector<float>());
  EXPECT_EQ(step.stats().fused_updates, 0u);
}

// ---- afterwards there is none ----

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const AutogradError& error) {
    return error.what();
  }
  return "no AutogradError";
}

class CaptureFusedGone : public CaptureFused {
 protected:
  void SetUp() override {
    CaptureFused::SetUp();
    SKIP_UNLESS_FUSING();
    for (int i = 0; i < 4; ++i)
      step_(inputs(4, i), classes(4, i));
    ASSERT_GT(step_.stats().replayed, 0u);
  }
  Tensor take(const Tensor& x, const Tensor& y) { return training_->step(x, y); }

  std::unique_ptr<Training> training_ = make_training(kSgd);
  graph::CapturedStep<std::function<Tensor(const Tensor&, const Tensor&)>> step_{
      [this](const Tensor& x, const Tensor& y) { return take(x, y); }, kFused};
  Tensor weight_ = training_->model.parameters()[0];
};

TEST_F(CaptureFusedGone, GradNamesTheParameterAndTheOption) {
  EXPECT_THAT(message_of([&] { weight_.grad(); }),
              HasSubstr("the gradient of parameter '0.weight' [33, 20] went straight into the optimiser's update "
                        "(fuse_update)"));
  EXPECT_TRUE(training_->model.parameters()[1].grad().defined());  // a bias
}

TEST_F(CaptureFusedGone, ZeroGradMakesEagerStepsPossible) {
  EXPECT_THAT(message_of([&] { nn::cross_entropy(training_->model(inputs(4, 9)), classes(4, 9)).backward(); }),
              HasSubstr("call zero_grad()"));
  training_->optimizer->zero_grad();
  EXPECT_FALSE(weight_.grad().defined());
  training_->step(inputs(4, 9), classes(4, 9));
  EXPECT_TRUE(weight_.grad().defined());
}

TEST_F(CaptureFusedGone, AReplayAfterZeroGradTakesTheGradientAgain) {
  const std::uint64_t replayed = step_.stats().replayed;
  training_->optimizer->zero_grad();
  step_(inputs(4, 5), classes(4, 5));
  EXPECT_EQ(step_.stats().replayed, replayed + 1);
  EXPECT_THAT(message_of([&] { weight_.grad(); }), HasSubstr("fuse_update"));
}

TEST_F(CaptureFusedGone, ClippingBehindTheUpdateIsAnError) {
  EXPECT_THAT(message_of([&] { optim::clip_grad_norm_(training_->model.parameters(), 1); }), HasSubstr("fuse_update"));
}

TEST_F(CaptureFusedGone, AnotherUpdateIsAnError) {
  EXPECT_THAT(message_of([&] { training_->optimizer->step(); }), HasSubstr("fuse_update"));
  const auto other = kSgd({weight_});
  EXPECT_THAT(message_of([&] { other->step(); }), HasSubstr("fuse_update"));
}

TEST_F(CaptureFusedGone, AStepThatAddsToTheGradientIsRecordedAgainAndFails) {
  auto adding =
      graph::capture([&](const Tensor& x, const Tensor& y) { nn::cross_entropy(training_->model(x), y).backward(); });
  training_->optimizer->zero_grad();
  for (int i = 0; i < 5; ++i)
    adding(inputs(4, i), classes(4, i));
  ASSERT_GT(adding.stats().replayed, 0u);
  step_(inputs(4, 0), classes(4, 0));
  EXPECT_THAT(message_of([&] { adding(inputs(4, 0), classes(4, 0)); }), HasSubstr("fuse_update"));
}

TEST_F(CaptureFusedGone, TheModelMayBeConverted) {
  training_->model.to(DType::f64);
  EXPECT_EQ(weight_.dtype(), DType::f64);
  EXPECT_FALSE(weight_.grad().defined());
}

TEST_F(CaptureFused, AnOperandThatChangesBeforeTheUpdateIsAnError) {
  SKIP_UNLESS_FUSING();
  const auto training = make_training(kSgd);
  auto step = graph::capture(
      [&](const Tensor& x, const Tensor& y) {
        training->optimizer->zero_grad();
        const Tensor loss = nn::cross_entropy(training->model(x), y);
        loss.backward();
        Tensor input = x;
        input.zero_();
        training->optimizer->step();
      },
      kFused);
  EXPECT_THAT(message_of([&] { step(inputs(4, 0), classes(4, 0)); }),
              HasSubstr("the gradient of parameter '0.weight' [33, 20] was left to the optimiser's update"));
}

TEST_F(CaptureFused, AnOperandThatChangesBeforeTheUpdateUpdatesNothing) {
  SKIP_UNLESS_FUSING();
  const auto training = make_training(kAdam);
  const std::vector<float> before = training->model.parameters()[5].to_vector<float>();
  auto step = graph::capture(
      [&](const Tensor& x, const Tensor& y) {
        training->optimizer->zero_grad();
        nn::cross_entropy(training->model(x), y).backward();
        Tensor input = x;
        input.zero_();
        training->optimizer->step();
      },
      kFused);
  EXPECT_THROW(step(inputs(4, 0), classes(4, 0)), AutogradError);
  EXPECT_EQ(training->model.parameters()[5].to_vector<float>(), before);
  EXPECT_FALSE(training->model.parameters()[0].grad().defined());  // can't be computed any more
  EXPECT_EQ(training->optimizer->state_dict().size(), kAdam(mlp().parameters())->state_dict().size());
}

// Slices that eager steps have cut hold several weights and biases.
TEST_F(CaptureFused, AfterAStepThatFailedInTheMiddleAnEagerUpdateIsRight) {
  std::vector<std::vector<float>> results;
  for (const bool fuse : {false, true}) {
    Generator generator(5);
    const GeneratorScope scope(generator);
    const auto training = make_training(kAdam);
    training->step(inputs(4, 9), classes(4, 9));
    training->after_forward = [](Training& self, const Tensor& loss) {
      self.optimizer->zero_grad();
      loss.backward();
      throw ValueError("the disk is full");
    };
    auto step =
        graph::capture([&](const Tensor& x, const Tensor& y) { return training->step(x, y); }, {.fuse_update = fuse});
    EXPECT_THROW(step(inputs(4, 0), classes(4, 0)), ValueError);
    training->optimizer->step();
    for (const Tensor& parameter : training->model.parameters())
      results.push_back(parameter.to_vector<float>());
  }
  EXPECT_TRUE(std::equal(results.begin(), results.begin() + 6, results.begin() + 6, results.end()));
}

TEST_F(CaptureFused, AWeightWhoseGradientSomebodyHoldsIsNotFused) {
  EXPECT_EQ(expect_eager_bits([] {
              auto training = make_training(kSgd);
              training->step(inputs(16, 50), classes(16, 50));
              training->after_forward = [held = training->model.parameters()[0].grad()](Training& self,
                                                                                        const Tensor& loss) mutable {
                self.optimizer->zero_grad();
                loss.backward();
                held.mul_(0.5);
                self.optimizer->step();
              };
              return training;
            }),
            fusing(2));
}

// The gradient of each factor needs the other one as it was before the update.
TEST_F(CaptureFused, FactorsOfAWeightAreTrained) {
  std::vector<std::vector<float>> results;
  for (const bool fuse : {false, true}) {
    Tensor a = full({9, 6}, 0.5).requires_grad_();
    Tensor b = full({6, 20}, 0.25).requires_grad_();
    optim::SGD sgd({a, b}, {.lr = 0.01});
    auto step = graph::capture(
        [&](const Tensor& x) {
          sgd.zero_grad();
          linear(x, a.matmul(b), {}).pow(2.0).sum().backward();
          sgd.step();
        },
        {.fuse_update = fuse});
    for (int i = 0; i < 5; ++i)
      step(inputs(12, i));
    results.push_back(a.to_vector<float>());
    results.push_back(b.to_vector<float>());
  }
  EXPECT_EQ(results[2], results[0]);
  EXPECT_EQ(results[3], results[1]);
}

TEST_F(CaptureFused, StatsCountUpdatesWhoseGradientsTheStepDropsAtItsEnd) {
  EXPECT_EQ(fused_with([](Training& self, const Tensor& loss) {
              loss.backward();
              self.optimizer->step();
              self.optimizer->zero_grad();
            }),
            fusing(3));
}

}  // namespace
}  // namespace tandem
