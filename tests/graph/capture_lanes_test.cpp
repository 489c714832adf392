#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/graph/capture.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/thread_count.h"

// Captured steps on several devices, whose backward pass has a lane for each device.

namespace tandem {
namespace {

const std::vector<Device>& lane_devices() {
  static const std::vector<Device> devices{"cpu:0", "cpu:1", "cpu:2"};
  return devices;
}

// A random net whose values go from device to device.
class Wanderer {
 public:
  explicit Wanderer(std::uint32_t seed) : seed_(seed) {
    manual_seed(seed);
    for (int i = 0; i < kWeights; ++i) {
      weights_.push_back(randn({5}).to(lane_devices()[static_cast<std::size_t>(i) % lane_devices().size()]));
      weights_.back().requires_grad_();
    }
  }

  Tensor loss(const Tensor& x) const {
    std::mt19937 random(seed_);
    std::vector<Tensor> values{x};
    const auto any = [&] { return values[random() % values.size()]; };
    for (int i = 0; i < 25; ++i) {
      const Device device = lane_devices()[random() % lane_devices().size()];
      const Tensor& weight = weights_[random() % weights_.size()];
      values.push_back(tanh(any().to(device) * weight.to(device)) + any().to(device));
    }
    Tensor sum = x.sum();
    for (const Tensor& value : values) {
      sum = sum + value.mean().to("cpu:0");
    }
    return sum;
  }

  // Loss and gradients of a few steps.
  template <class Step>
  std::vector<std::vector<float>> run(Step&& step) const {
    std::vector<std::vector<float>> results;
    for (int i = 0; i < 5; ++i) {
      results.push_back(step(full({4, 5}, 0.1 * (i + 1))).detach().template to_vector<float>());
      for (const Tensor& weight : weights_) {
        results.push_back(weight.grad().template to_vector<float>());
      }
    }
    return results;
  }

  Tensor differentiate(const Tensor& x) const {
    for (const Tensor& weight : weights_) {
      weight.zero_grad();
    }
    Tensor result = loss(x);
    result.backward();
    for (const Tensor& weight : weights_) {
      if (!weight.grad().defined()) {
        (weight.sum() * 0).backward();
      }
    }
    return result;
  }

 private:
  static constexpr int kWeights = 7;
  std::uint32_t seed_;
  std::vector<Tensor> weights_;
};

TEST(CaptureLanes, ReplaysHaveTheBitsOfEagerSteps) {
  TANDEM_SKIP_ON_GPU("it uses several devices of the host");
  const test::ThreadCount threads(2);
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const Wanderer net(seed);
    const auto eager = net.run([&](const Tensor& x) { return net.differentiate(x); });
    auto step = graph::capture([&](const Tensor& x) { return net.differentiate(x); });
    ASSERT_EQ(net.run(step), eager) << "seed " << seed;
    ASSERT_GT(step.stats().replayed, 0u);
  }
}

TEST(CaptureLanes, AFailureInALaneIsThrownAndTheNextStepIsRight) {
  TANDEM_SKIP_ON_GPU("it uses several devices of the host");
  const test::ThreadCount threads(2);
  const Tensor table = ones({4, 2}, {.requires_grad = true});
  auto step = graph::capture([&](const Tensor& x) {
    table.zero_grad();
    Tensor loss = embedding(x, table).sum() + (table.to("cpu:1") * 3).sum().to("cpu:0");
    loss.backward();
    return loss;
  });
  const Tensor good = tensor<std::int64_t>({1, 2});
  while (step.stats().replayed < 2) {
    step(good);
  }
  EXPECT_THROW(step(tensor<std::int64_t>({1, 9})), ValueError);
  EXPECT_EQ(step(good).item(), 28);
  EXPECT_EQ(table.grad().to_vector<float>(), (std::vector<float>{3, 3, 4, 4, 4, 4, 3, 3}));
}

}  // namespace
}  // namespace tandem
