#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/pipeline/stages.h"

// Tests of pipelines on GPUs, whose stages copy activations and gradients from GPU to GPU.

namespace tandem::test {
namespace {

using parallel::Pipeline;
using parallel::Schedule;

class PipelineOnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() < 2) {
      GTEST_SKIP() << "there are " << cuda::device_count() << " GPUs, this needs 2";
    }
  }
  const std::vector<Device> gpus_{"cuda:0", "cuda:1"};
};

TEST_F(PipelineOnGpus, TrainsAsPartsOfTheCpuDo) {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    const auto train = [&](nn::Sequential& model, const std::vector<Device>& devices) {
      Pipeline pipeline(model, devices, {.microbatches = 3, .schedule = schedule, .split = {2, 3}});
      optim::Adam adam(pipeline.parameters(), {.lr = 1e-2});
      for (int i = 0; i < 10; ++i) {
        adam.zero_grad();
        const Batch batch = rows_of_step(i, 8);
        pipeline.step(batch.x, batch.y, mean_loss);
        adam.step();
      }
    };
    nn::Sequential on_cpu = plain_net();
    train(on_cpu, cpus(2));
    nn::Sequential model = plain_net();
    train(model, gpus_);
    EXPECT_EQ(model.get_parameter("4.weight").device(), Device("cuda:1"));
    const StateDict expected = on_cpu.state_dict();
    for (const auto& [name, tensor] : model.state_dict()) {
      EXPECT_LE(difference(tensor, expected.at(name)), 1e-10) << name;
    }
  }
}

TEST_F(PipelineOnGpus, AddsUpTheGradientsOfTiedLayers) {
  TiedNet alone = tied_net();
  const Tensor x = from_data(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
  const Tensor y = from_data(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
  mean_loss(alone(x), y).backward();
  TiedNet model = tied_net();
  Pipeline pipeline(model, gpus_, {.microbatches = 2});
  pipeline.step(x, y, mean_loss);
  EXPECT_LE(difference(model.get_parameter("0.weight").grad(), alone.get_parameter("0.weight").grad()), 1e-12);
  EXPECT_LE(difference(pipeline(x), alone(x)), 1e-12);
}

}  // namespace
}  // namespace tandem::test
