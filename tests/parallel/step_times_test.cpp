#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "support/clock.h"
#include "support/thread_count.h"

namespace tandem::parallel {
namespace {

using test::cpus;
using test::Mlp;
using test::sleep_ms;

std::map<std::string, double> all(const StepTimes& times) {
  std::map<std::string, double> seconds;
  for (std::size_t i = 0; i < kPhases; ++i) {
    seconds[to_string(static_cast<Phase>(i))] = times.seconds(static_cast<Phase>(i));
  }
  return seconds;
}

double sum(const std::map<std::string, double>& seconds) {
  double total = 0;
  for (const auto& [name, time] : seconds) {
    total += time;
  }
  return total;
}

// A data-parallel training step, counted like a user would count it. Returns its seconds.
class TrainedStep {
 public:
  explicit TrainedStep(int devices) : dp_(model_, cpus(devices)) {}

  double take(bool in_replicas) {
    const auto start = std::chrono::steady_clock::now();
    sgd_.zero_grad();
    Tensor loss = in_replicas ? dp_.loss(criterion_, batch_.x, batch_.y) : criterion_(dp_(batch_.x), batch_.y);
    loss.backward();
    sgd_.step();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  std::function<Tensor(const Tensor&, const Tensor&)> criterion_ = [](const Tensor& out, const Tensor& y) {
    return nn::cross_entropy(out, y);
  };
  test::ThreadCount threads_{2};
  Mlp model_ = test::seeded<Mlp>();
  test::Batch batch_ = test::batch_of(8);
  optim::SGD sgd_{model_.parameters(), {.lr = 0.1}};
  DataParallel<Mlp> dp_;
};

TEST(StepTimes, EveryPhaseOfAStepIsCountedOnce) {
  for (const bool in_replicas : {false, true}) {
    SCOPED_TRACE(in_replicas);
    TrainedStep step(2);
    step.take(in_replicas);
    const StepTimes times;
    const double whole = step.take(in_replicas);
    const auto seconds = all(times);
    for (const auto& [name, time] : seconds) {
      if (name != "input" && name != "collective" && name != "replay" && name != "pipeline") {
        EXPECT_GT(time, 0) << name;
      }
    }
    EXPECT_LE(sum(seconds), whole);
    EXPECT_EQ(times.steps(), 1);
  }
}

TEST(StepTimes, NothingIsAddedUpForOneDevice) {
  TrainedStep step(1);
  const StepTimes times;
  step.take(false);
  EXPECT_EQ(times.seconds(Phase::reduce), 0);
  EXPECT_GT(times.seconds(Phase::forward), 0);
}

TEST(StepTimes, EvaluationHasNoBackward) {
  Mlp model = test::seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  const StepTimes times;
  const NoGradGuard no_grad;
  dp(test::batch_of(8).x);
  EXPECT_GT(times.seconds(Phase::gather), 0);
  EXPECT_EQ(times.seconds(Phase::backward), 0);
  EXPECT_EQ(times.seconds(Phase::reduce), 0);
}

TEST(StepTimes, CountsWhileItExists) {
  {
    const SpanScope nobody_collects(Phase::forward);
    sleep_ms(1);
  }
  StepTimes outer;
  EXPECT_EQ(sum(all(outer)), 0);
  {
    const SpanScope timed(Phase::forward);
    sleep_ms(2);
  }
  const double before = outer.seconds(Phase::forward);
  EXPECT_GE(before, 2e-3);
  {
    const StepTimes inner;
    EXPECT_EQ(inner.seconds(Phase::forward), 0);
    {
      const SpanScope timed(Phase::forward);
      sleep_ms(1);
    }
    EXPECT_GE(inner.seconds(Phase::forward), 1e-3);
    EXPECT_NEAR(outer.seconds(Phase::forward), before + inner.seconds(Phase::forward), 1e-12);
  }
  outer.reset();
  EXPECT_EQ(sum(all(outer)), 0);
}

TEST(StepTimes, AStepThatAScalerRefusesIsNotCounted) {
  const nn::Linear model(2, 2);
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  optim::GradScaler scaler;
  const StepTimes times;
  scaler.scale(model(ones({4, 2})).sum()).backward();
  scaler.step(sgd);
  EXPECT_EQ(times.steps(), 1);
  EXPECT_THROW(scaler.step(sgd), ConfigError) << "there was no update()";
  EXPECT_EQ(times.steps(), 1);
}

TEST(StepTimes, APhaseWithinAnotherIsNoPartOfIt) {
  const StepTimes times;
  {
    const SpanScope backward(Phase::backward);
    sleep_ms(1);
    const SpanScope reduce(Phase::reduce);
    sleep_ms(50);
    const SpanScope within(Phase::backward);  // counts as part of `reduce`
    sleep_ms(1);
  }
  EXPECT_GE(times.seconds(Phase::reduce), 51e-3);
  EXPECT_GE(times.seconds(Phase::backward), 1e-3);
  EXPECT_LE(times.seconds(Phase::backward) + times.seconds(Phase::reduce), times.elapsed());
}

}  // namespace
}  // namespace tandem::parallel
