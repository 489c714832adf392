#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/pipeline/stages.h"

// Pipelines over devices of one process.

namespace tandem::test {
namespace {

using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::Schedule;

// The difference between two models' parameters and buffers.
double model_difference(const nn::ModuleRef& a, const nn::ModuleRef& b) {
  double most = 0;
  const StateDict expected = b.state_dict();
  for (const auto& [name, tensor] : a.state_dict()) {
    most = std::max(most, difference(tensor.to(DType::f64), expected.at(name).to(DType::f64)));
  }
  return most;
}

// Trains one device on whole batches, or on micro-batches whose gradients it adds up.
void train_alone(nn::Sequential& model, int steps, std::int64_t rows, std::int64_t microbatches = 1) {
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  for (int i = 0; i < steps; ++i) {
    adam.zero_grad();
    const Batch batch = rows_of_step(i, rows);
    for (std::int64_t begin = 0; begin < rows; begin += rows / microbatches) {
      const std::int64_t count = rows / microbatches;
      const Tensor loss = mean_loss(model(batch.x.narrow(0, begin, count)), batch.y.narrow(0, begin, count));
      (loss * (static_cast<double>(count) / static_cast<double>(rows))).backward();
    }
    adam.step();
  }
}

void train(nn::Sequential& model, const std::vector<Device>& devices, const PipelineOptions& options, int steps,
           std::int64_t rows) {
  Pipeline pipeline(model, devices, options);
  optim::Adam adam(pipeline.parameters(), {.lr = 0.01});
  for (int i = 0; i < steps; ++i) {
    adam.zero_grad();
    const Batch batch = rows_of_step(i, rows);
    pipeline.step(batch.x, batch.y, mean_loss);
    adam.step();
  }
}

TEST(Pipeline, TrainsAsOneDeviceDoes) {
  for (const int stages : {1, 2, 3}) {
    for (const std::int64_t rows : {1, 5, 8}) {
      nn::Sequential alone = plain_net();
      train_alone(alone, 50, rows);
      for (const std::int64_t microbatches : {1, 3, 8}) {
        for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
          nn::Sequential model = plain_net();
          train(model, cpus(stages), {.microbatches = microbatches, .schedule = schedule}, 50, rows);
          EXPECT_LT(model_difference(model, alone), 1e-12) << stages << " stages, " << microbatches << " of " << rows;
        }
      }
    }
  }
}

TEST(Pipeline, ReturnsTheLossOfTheWholeBatch) {
  nn::Sequential model = plain_net();
  const Batch batch = rows_of_step(0, 7);
  const double expected = mean_loss(model(batch.x), batch.y).item();
  Pipeline pipeline(model, cpus(2), {.microbatches = 3});
  const Tensor loss = pipeline.step(batch.x, batch.y, mean_loss);
  EXPECT_NEAR(loss.item(), expected, 1e-14);
  EXPECT_FALSE(loss.requires_grad());
  const auto sum = [](const Tensor& output, const Tensor& y) {
    return nn::cross_entropy(output, y, {.reduction = Reduction::sum});
  };
  EXPECT_NEAR(pipeline.step(batch.x, batch.y, sum, Reduction::sum).item(), 7 * expected, 1e-13);
}

TEST(Pipeline, AddsToGradientsThatAreThere) {
  nn::Sequential model = plain_net();
  Pipeline pipeline(model, cpus(2));
  const Batch batch = rows_of_step(0, 8);
  pipeline.step(batch.x, batch.y, mean_loss);
  const std::vector<double> once = model.parameters().front().grad().to_vector<double>();
  pipeline.step(batch.x, batch.y, mean_loss);
  const std::vector<double> twice = model.parameters().front().grad().to_vector<double>();
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_NEAR(twice[i], 2 * once[i], 1e-15);
  }
}

Values trained_noisy(const std::vector<Device>& devices, const PipelineOptions& options) {
  nn::Sequential model = noisy_net();
  manual_seed(9);
  train(model, devices, options, 6, 12);
  return values_of(model);
}

TEST(Pipeline, HasTheSameBitsForEachScheduleAndNumberOfThreads) {
  const PipelineOptions options{.microbatches = 4, .split = {3, 1, 3}};
  const Values expected = trained_noisy(cpus(3), options);
  PipelineOptions gpipe = options;
  gpipe.schedule = Schedule::gpipe;
  EXPECT_EQ(trained_noisy(cpus(3), gpipe), expected);
  const Device one("cpu:0");
  EXPECT_EQ(trained_noisy({one, one, one}, options), expected);
  const int before = num_threads();
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_EQ(trained_noisy(cpus(3), options), expected) << threads << " threads";
  }
  set_num_threads(before);
}

TEST(Pipeline, DrawsOtherNumbersInEachStepAndStage) {
  manual_seed(3);
  nn::Sequential model(nn::Dropout(0.5), nn::Dropout(0.5));
  model.to(DType::f64);
  Pipeline pipeline(model, cpus(2), {.microbatches = 1});
  std::vector<double> sums;
  const auto keep = [&](const Tensor& output, const Tensor&) {
    sums.push_back(output.sum().item());
    return output.sum();
  };
  const Tensor x = ones({1000, 1}, {.dtype = DType::f64});
  pipeline.step(x, x, keep, Reduction::sum);
  pipeline.step(x, x, keep, Reduction::sum);
  EXPECT_NE(sums[0], sums[1]);
  EXPECT_NEAR(sums[0], 1000, 250);  // a quarter is kept, times 4; the same draws in both stages would keep half
}

TEST(Pipeline, NormalisesEachMicroBatchInTurn) {
  const auto make = [] {
    manual_seed(5);
    nn::Sequential model(nn::Linear(6, 9), nn::BatchNorm1d(9), nn::ReLU(), nn::Linear(9, 3));
    model.to(DType::f64);
    return model;
  };
  nn::Sequential alone = make();
  train_alone(alone, 10, 12, 3);
  nn::Sequential model = make();
  train(model, cpus(2), {.microbatches = 3, .split = {2, 2}}, 10, 12);
  EXPECT_LT(model_difference(model, alone), 1e-12);  // running statistics, too
}

TEST(Pipeline, AddsUpTheGradientsOfTiedLayers) {
  const auto batch_of_step = [](int step) {
    Generator generator(static_cast<std::uint64_t>(step));
    const GeneratorScope draws(generator);
    return Batch{randint(0, 7, {8}), randint(0, 7, {8})};
  };
  TiedNet alone = tied_net();
  optim::Adam adam(alone.parameters(), {.lr = 0.01});
  for (int i = 0; i < 50; ++i) {
    adam.zero_grad();
    const Batch batch = batch_of_step(i);
    mean_loss(alone(batch.x), batch.y).backward();
    adam.step();
  }
  for (const std::vector<Device>& devices : {cpus(2), cpus(3), std::vector<Device>{Device("cpu:0"), Device("cpu:0")}}) {
    TiedNet model = tied_net();
    Pipeline pipeline(model, devices, {.microbatches = 4});
    optim::Adam optimizer(pipeline.parameters(), {.lr = 0.01});
    for (int i = 0; i < 50; ++i) {
      optimizer.zero_grad();
      const Batch batch = batch_of_step(i);
      pipeline.step(batch.x, batch.y, mean_loss);
      optimizer.step();
    }
    EXPECT_EQ(model.parameters().size(), 5U);
    EXPECT_LT(model_difference(model, alone), 1e-12);
    const Tensor x = batch_of_step(0).x;
    EXPECT_LT(difference(pipeline(x), alone(x)), 1e-12);
    optimizer.zero_grad();
    pipeline(x).sum().backward();  // through both of the tied layers
    alone.zero_grad();
    alone(x).sum().backward();
    EXPECT_LT(difference(model.get_parameter("0.weight").grad(), alone.get_parameter("0.weight").grad()), 1e-12);
  }
}

TEST(Pipeline, IsAModelOnSeveralDevices) {
  nn::Sequential alone = plain_net();
  nn::Sequential model = plain_net();
  Pipeline pipeline(model, cpus(3), {.split = {2, 2, 1}});
  EXPECT_EQ(model.get_parameter("2.weight").device(), Device("cpu:1"));
  EXPECT_EQ(model.get_parameter("4.weight").device(), Device("cpu:2"));
  const Batch batch = rows_of_step(0, 8);
  const Tensor output = pipeline(batch.x);
  EXPECT_EQ(output.device(), Device("cpu:2"));
  EXPECT_EQ(difference(output, alone(batch.x)), 0);
  mean_loss(output, batch.y.to("cpu:2")).backward();
  mean_loss(alone(batch.x), batch.y).backward();
  for (std::size_t i = 0; i < alone.parameters().size(); ++i) {
    EXPECT_EQ(difference(model.parameters()[i].grad(), alone.parameters()[i].grad()), 0);
  }
}

TEST(Pipeline, LeavesFrozenLayersAlone) {
  for (const char* frozen : {"0", "2", "4"}) {
    nn::Sequential alone = plain_net();
    alone.get_submodule(frozen).requires_grad_(false);
    train_alone(alone, 5, 8);
    nn::Sequential model = plain_net();
    model.get_submodule(frozen).requires_grad_(false);
    train(model, cpus(3), {.split = {2, 2, 1}}, 5, 8);
    EXPECT_LT(model_difference(model, alone), 1e-12) << frozen;
  }
}

TEST(Pipeline, TellsItsWaitingApartInTheTimesOfSteps) {
  nn::Sequential model = plain_net();
  Pipeline pipeline(model, cpus(2));
  optim::SGD sgd(pipeline.parameters(), {.lr = 0.1});
  const Batch batch = rows_of_step(0, 8);
  const StepTimes times;
  for (int i = 0; i < 3; ++i) {
    pipeline.step(batch.x, batch.y, mean_loss);
    sgd.step();
  }
  for (const Phase phase : {Phase::pipeline, Phase::forward, Phase::backward, Phase::optimizer}) {
    EXPECT_GT(times.seconds(phase), 0) << to_string(phase);
  }
  EXPECT_EQ(times.seconds(Phase::collective), 0);
}

TEST(Pipeline, CapturedStepsHaveTheBitsOfEagerOnes) {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    for (const int stages : {1, 2, 3}) {
      const PipelineOptions options{.microbatches = 4, .schedule = schedule};
      const auto train_with = [&](const auto& run) {
        nn::Sequential model = noisy_net();
        manual_seed(9);
        Pipeline pipeline(model, cpus(stages), options);
        optim::Adam adam(pipeline.parameters(), {.lr = 0.01});
        const auto step = [&](const Tensor& x, const Tensor& y) {
          adam.zero_grad();
          const Tensor loss = pipeline.step(x, y, mean_loss);
          adam.step();
          return loss;
        };
        std::vector<double> losses;
        run(step, losses);
        return std::pair(losses, values_of(model));
      };
      const auto eager = train_with([](const auto& step, std::vector<double>& losses) {
        for (int i = 0; i < 6; ++i) {
          const Batch batch = rows_of_step(i, 12);
          losses.push_back(step(batch.x, batch.y).item());
        }
      });
      const auto captured = train_with([](const auto& step, std::vector<double>& losses) {
        auto replayed = graph::capture(step);
        for (int i = 0; i < 6; ++i) {
          const Batch batch = rows_of_step(i, 12);
          losses.push_back(replayed(batch.x, batch.y).item());
        }
        EXPECT_GE(replayed.stats().replayed, 3U);
      });
      EXPECT_EQ(captured, eager) << stages << " stages";
    }
  }
}

TEST(Pipeline, CountsWhatEachStageDid) {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    nn::Sequential model = plain_net();
    Pipeline pipeline(model, cpus(2), {.microbatches = 4, .schedule = schedule});
    const Batch batch = rows_of_step(0, 8);
    for (int i = 0; i < 3; ++i) {
      pipeline.step(batch.x, batch.y, mean_loss);
    }
    const parallel::PipelineReport report = pipeline.report();
    EXPECT_EQ(report.steps, 2);  // without the first one
    EXPECT_EQ(report.microbatches, 4U);
    ASSERT_EQ(report.stages.size(), 2U);
    EXPECT_EQ(report.stages[0].name, "stage 0 of 2, layers 0-1, on cpu:0");
    EXPECT_EQ(report.stages[0].passes, 8);
    EXPECT_EQ(report.stages[0].most_in_flight, schedule == Schedule::gpipe ? 4U : 2U);
    EXPECT_EQ(report.stages[1].most_in_flight, schedule == Schedule::gpipe ? 4U : 1U);
    EXPECT_GT(report.bubble(), 0);
    EXPECT_LT(report.bubble(), 1);
  }
}

}  // namespace
}  // namespace tandem::test
