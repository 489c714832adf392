#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/pipeline/stages.h"
#include "support/message.h"

// Errors of pipelines over devices of one process.

namespace tandem::test {
namespace {

using parallel::Pipeline;
using testing::HasSubstr;
using testing::StartsWith;

TEST(PipelineErrors, NameWhatDoesNotFit) {
  nn::Sequential model = plain_net();
  EXPECT_THAT(message_of<ConfigError>([&] { Pipeline(model, std::vector<Device>{}); }),
              HasSubstr("Pipeline: no devices are given"));
  EXPECT_THAT(message_of<ConfigError>([&] { Pipeline(model, cpus(6)); }),
              HasSubstr("6 stages for a Sequential of 5 layers"));
  EXPECT_THAT(message_of<ConfigError>([&] { Pipeline(model, cpus(2), {.microbatches = 0}); }),
              HasSubstr("microbatches must be at least 1, got 0"));
  for (const std::vector<std::size_t>& split : {std::vector<std::size_t>{5}, {2, 2}, {5, 0}, {3, 3}, {1, 1, 3}}) {
    EXPECT_THAT(message_of<ConfigError>([&] { Pipeline(model, cpus(2), {.split = split}); }),
                HasSubstr("must have 2 stages of at least one layer each, 5 layers in all"));
  }
}

TEST(PipelineErrors, OfAStepAreThrownBeforeAnyStageRuns) {
  nn::Sequential model = plain_net();
  Pipeline pipeline(model, cpus(2));
  const Batch batch = rows_of_step(0, 8);
  EXPECT_THAT(message_of<ShapeError>([&] { pipeline.step(batch.x, batch.y.narrow(0, 0, 7), mean_loss); }),
              HasSubstr("x and y must have the same number of rows, got [8, 6] and [7]"));
  EXPECT_THAT(message_of<ShapeError>([&] { pipeline.step(batch.x, Tensor(), mean_loss); }),
              HasSubstr("got [8, 6] and an undefined tensor"));
  EXPECT_THAT(message_of<ConfigError>([&] { pipeline.step(batch.x, batch.y, mean_loss, Reduction::none); }),
              HasSubstr("joined by their mean or their sum"));
  const auto without_gradients = [&] {
    const NoGradGuard no_grad;
    pipeline.step(batch.x, batch.y, mean_loss);
  };
  EXPECT_THAT(message_of<AutogradError>(without_gradients), HasSubstr("NoGradGuard forbids them"));
  EXPECT_FALSE(model.parameters().front().grad().defined());
}

TEST(PipelineErrors, RefuseALossWithoutHistory) {
  nn::Sequential model = plain_net();
  Pipeline pipeline(model, cpus(2));
  const Batch batch = rows_of_step(0, 8);
  const auto cut_off = [](const Tensor& output, const Tensor& y) { return mean_loss(output, y).detach(); };
  EXPECT_THAT(message_of<AutogradError>([&] { pipeline.step(batch.x, batch.y, cut_off); }),
              HasSubstr("the loss depends on nothing that requires a gradient"));
}

TEST(PipelineErrors, RefuseAModelThatHasChanged) {
  nn::Sequential model = plain_net();
  Pipeline pipeline(model, cpus(2));
  model.push_back(nn::Tanh());
  const Batch batch = rows_of_step(0, 8);
  EXPECT_THAT(message_of<ConfigError>([&] { pipeline.step(batch.x, batch.y, mean_loss); }),
              HasSubstr("layers or parameters of its model were added or replaced since it was made"));
  EXPECT_THROW(pipeline(batch.x), ConfigError);
}

TEST(PipelineErrors, NameTheStageAndLeaveThePipelineUsable) {
  nn::Sequential model = plain_net();
  Pipeline pipeline(model, cpus(2));
  const Batch batch = rows_of_step(0, 8);
  const Tensor narrow = batch.x.narrow(1, 0, 5);
  const std::string text = message_of<ShapeError>([&] { pipeline.step(narrow, batch.y, mean_loss); });
  EXPECT_THAT(text, HasSubstr("in stage 0 of 2, layers 0-1, on cpu:0, micro-batch 0 of 4"));
  const auto no_scalar = [](const Tensor& output, const Tensor&) { return output; };
  EXPECT_THAT(message_of<ShapeError>([&] { pipeline.step(batch.x, batch.y, no_scalar); }),
              HasSubstr("the loss of a micro-batch must be a scalar, got [2, 3]"));
  const auto fails = [](const Tensor&, const Tensor&) -> Tensor { throw std::runtime_error("mine"); };
  EXPECT_THROW(pipeline.step(batch.x, batch.y, fails), std::runtime_error);
  EXPECT_EQ(pipeline.report().stages[0].passes, 0);  // steps that failed do not count
  EXPECT_EQ(to_string(pipeline.report()), "pipeline: 2 stages, no steps yet\n");
  model.zero_grad();
  nn::Sequential alone = plain_net();
  EXPECT_NEAR(pipeline.step(batch.x, batch.y, mean_loss).item(), mean_loss(alone(batch.x), batch.y).item(), 1e-14);
}

}  // namespace
}  // namespace tandem::test
