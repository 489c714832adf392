#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/pipeline/stages.h"
#include "parallel/ranks.h"
#include "support/message.h"

// Pipelines over ranks whose optimisers make or leave out a step together.

namespace tandem::test {
namespace {

using parallel::DeviceMesh;
using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::ProcessGroup;

constexpr int kSteps = 4;
constexpr int kBadStep = 1;
constexpr std::int64_t kRows = 8;
const PipelineOptions kThreeStages{.microbatches = 2, .split = {2, 2, 1}};

// The weights of one device that leaves out the bad step.
Values expected_weights(const std::vector<std::string>& frozen = {}) {
  nn::Sequential model = plain_net();
  for (const std::string& name : frozen) {
    model.get_parameter(name).requires_grad_(false);
  }
  Pipeline pipeline(model, cpus(3), kThreeStages);
  optim::SGD sgd(pipeline.parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int i = 0; i < kSteps; ++i) {
    sgd.zero_grad();
    const Batch batch = rows_of_step(i, kRows);
    pipeline.step(batch.x, batch.y, mean_loss);
    if (i != kBadStep) {
      sgd.step();
    }
  }
  return values_of(model);
}

// The training of a rank, with a scaled loss. In the bad step a gradient of this rank is infinite, if it `is_bad`.
struct ScaledTraining {
  bool is_bad = false;
  bool clips = false;
  optim::GradScaler scaler{{.init_scale = 1024}};

  void run(Pipeline& pipeline, const std::function<Batch(int step)>& batch_of_step) {
    const std::vector<Tensor> parameters = pipeline.parameters();
    int step = 0;
    parameters.front().register_hook([&](const Tensor& gradient) {
      return is_bad && step == kBadStep ? gradient * std::numeric_limits<double>::infinity() : gradient;
    });
    optim::SGD sgd(parameters, {.lr = 0.1, .momentum = 0.9});
    for (; step < kSteps; ++step) {
      sgd.zero_grad();
      const Batch batch = batch_of_step(step);
      pipeline.step(batch.x, batch.y,
                    [&](const Tensor& output, const Tensor& y) { return scaler.scale(mean_loss(output, y)); });
      if (clips) {
        scaler.unscale_(sgd);
        pipeline.clip_grad_norm_(1e9);
      }
      scaler.step(sgd);
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), step < kBadStep ? 1024 : 512) << "step " << step;
    }
    pipeline.gather_parameters();
  }
};

Batch whole_batch(int step) { return rows_of_step(step, kRows); }

TEST(PipelineScaler, AnInfinityOnAnyRankLeavesTheStepOutOnAll) {
  const Values expected = expected_weights();
  for (int bad = 0; bad < 3; ++bad) {
    for (const bool clips : {false, true}) {
      as_ranks(3, [&](ProcessGroup& group) {
        nn::Sequential model = plain_net();
        Pipeline pipeline(model, group, kThreeStages);
        ScaledTraining{.is_bad = group.rank() == bad, .clips = clips}.run(pipeline, whole_batch);
        EXPECT_EQ(values_of(model), expected) << "bad rank " << bad << ", rank " << group.rank();
      });
    }
  }
}

TEST(PipelineScaler, AnInfinityInAnyPipelineLeavesTheStepOutInAll) {
  const Values expected = expected_weights();
  for (int bad = 0; bad < 6; ++bad) {
    as_ranks(6, [&](ProcessGroup& group) {
      const DeviceMesh mesh(group, {{"data", 2}, {"pipeline", 3}});
      nn::Sequential model = plain_net();
      Pipeline pipeline(model, mesh["pipeline"],
                        {.microbatches = 1, .split = kThreeStages.split, .average_over = &mesh["data"]});
      ScaledTraining{.is_bad = group.rank() == bad}.run(pipeline, [&](int step) {
        const Batch batch = whole_batch(step);
        const std::int64_t first = kRows / 2 * mesh.rank("data");
        return Batch{batch.x.narrow(0, first, kRows / 2), batch.y.narrow(0, first, kRows / 2)};
      });
      EXPECT_EQ(values_of(model).size(), expected.size());
      std::size_t i = 0;
      for (const auto& values : values_of(model)) {
        EXPECT_LT(difference(from_data(values), from_data(expected[i++])), 1e-12)
            << "bad rank " << bad << ", rank " << group.rank();
      }
    });
  }
}

TEST(PipelineScaler, AStageWhoseLayersAreFrozenMakesNoStepAndNobodyWaitsForIt) {
  const std::vector<std::string> frozen{"0.weight", "0.bias"};
  const Values expected = expected_weights(frozen);
  for (int bad = 1; bad < 3; ++bad) {
    as_ranks(3, [&](ProcessGroup& group) {
      nn::Sequential model = plain_net();
      Pipeline pipeline(model, group, kThreeStages);
      pipeline.step(whole_batch(0).x, whole_batch(0).y, mean_loss);  // when all stages are trained
      model.zero_grad();
      for (const std::string& name : frozen) {
        model.get_parameter(name).requires_grad_(false);
      }
      if (group.rank() > 0) {
        ScaledTraining{.is_bad = group.rank() == bad}.run(pipeline, whole_batch);
      } else {
        for (int step = 0; step < kSteps; ++step) {
          pipeline.step(whole_batch(step).x, whole_batch(step).y, mean_loss);
        }
        pipeline.gather_parameters();
      }
      EXPECT_EQ(values_of(model), expected) << "bad rank " << bad << ", rank " << group.rank();
    });
  }
}

TEST(PipelineScaler, OptimisersThatLookForInfinitiesAgreeToo) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Sequential model = plain_net();
    Pipeline pipeline(model, group, {.split = {2, 3}});
    optim::Adam adam(pipeline.parameters(), {.lr = 0.1});
    adam.skip_nonfinite();
    const Batch batch = rows_of_step(0, kRows);
    pipeline.step(batch.x, batch.y, mean_loss);
    if (group.rank() == 1) {
      pipeline.parameters().back().grad().fill_(std::numeric_limits<double>::quiet_NaN());
    }
    adam.step();
    EXPECT_TRUE(adam.found_nonfinite());
    EXPECT_EQ(values_of(model), values_of(plain_net())) << "rank " << group.rank();
  });
}

TEST(PipelineScaler, APipelineThatIsGoneHasNoPartners) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Sequential model = plain_net();
    const Batch batch = rows_of_step(0, kRows);
    std::vector<Tensor> parameters;
    {
      Pipeline pipeline(model, group, {.split = {2, 3}});
      pipeline.step(batch.x, batch.y, mean_loss);
      parameters = pipeline.parameters();
    }
    optim::Adam adam(parameters, {.lr = 0.1});
    adam.skip_nonfinite();
    if (group.rank() == 0) {
      adam.step();  // does not wait for the other rank
    }
    EXPECT_FALSE(adam.found_nonfinite());
  });
}

}  // namespace
}  // namespace tandem::test
