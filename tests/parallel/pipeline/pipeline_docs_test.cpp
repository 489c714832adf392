#include <iostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

// The example of docs/pipeline.md.

namespace tandem::test {
namespace {

Tensor loss_function(const Tensor& output, const Tensor& y) { return nn::cross_entropy(output, y); }

double trained_loss(const Tensor& x, const Tensor& y) {
  // clang-format off
nn::Sequential model(nn::Linear(64, 96), nn::ReLU(), nn::Linear(96, 96), nn::ReLU(), nn::Linear(96, 10));
const auto split = parallel::split_by_time(model, x.narrow(0, 0, 16), 2);
parallel::Pipeline pipeline(model, {"cpu:0", "cpu:1"}, {.microbatches = 4, .split = split.layers});
optim::Adam adam(pipeline.parameters());
for (int i = 0; i < 20; ++i) {
  adam.zero_grad();
  const Tensor loss = pipeline.step(x, y, loss_function);  // forward and backward pass
  adam.step();
}
std::cout << to_string(split) << to_string(pipeline.report());
  // clang-format on
  return pipeline.step(x, y, loss_function).item();
}

TEST(PipelineDocs, ExampleLearnsAndReports) {
  manual_seed(1);
  testing::internal::CaptureStdout();
  const double loss = trained_loss(randn({64, 64}), randint(0, 10, {64}));
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_LT(loss, 2.0);  // 2.3 before
  EXPECT_THAT(text, testing::HasSubstr("pipeline: 2 stages, 4 micro-batches, 1F1B; 19 steps"));
}

}  // namespace
}  // namespace tandem::test
