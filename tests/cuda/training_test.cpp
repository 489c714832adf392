#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/nn/batch_norm.h>
#include <tandem/nn/container.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/layer_norm.h>
#include <tandem/nn/loss.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip.h>

#include "cuda/gpu_test.h"

// Tests of models that move to a GPU and back, on one GPU and on two.

namespace tandem {
namespace {

using test::all_are;
using test::filled;
using test::message_of;
using test::same_bits;

nn::Sequential model_on(Device device) {  // no bias before a norm: its gradient is rounding error, which Adam enlarges
  const core::DeviceScope on(device);
  Generator generator(5);
  const GeneratorScope draws(generator);
  return nn::Sequential(nn::Linear(6, 40, {.bias = false}), nn::BatchNorm1d(40), nn::ReLU(), nn::Dropout(0.1),
                        nn::Linear(40, 24), nn::LayerNorm({24}), nn::Tanh(), nn::Linear(24, 4));
}

double step(nn::Sequential& model, optim::Optimizer& optimizer, std::uint64_t seed, Device device) {
  const core::DeviceScope on(device);
  Generator generator(seed);
  const GeneratorScope draws(generator);
  const Tensor x = randn({33, 6});
  const Tensor y = randint(0, 4, {33});
  optimizer.zero_grad();
  Tensor loss = nn::cross_entropy(model(x), y);
  loss.backward();
  optim::clip_grad_norm_(model.parameters(), 0.5);
  optimizer.step();
  return loss.item();
}

// Losses and weights of a short training run.
std::vector<Tensor> trained(Device device, int steps = 5) {
  nn::Sequential model = model_on(device);
  optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
  std::vector<Tensor> result;
  for (int i = 0; i < steps; ++i) {
    result.push_back(full({}, step(model, optimizer, static_cast<std::uint64_t>(i), device), {.dtype = DType::f64}));
  }
  for (const auto& [name, value] : model.state_dict())
    result.push_back(value.detach().to("cpu").clone());
  return result;
}

// The largest difference, relative to the largest value.
double distance(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detach().to("cpu").to(DType::f64);
  const Tensor y = b.detach().to("cpu").to(DType::f64);
  return x.numel() == 0 ? 0 : (x - y).abs().max().item() / std::max(1.0, y.abs().max().item());
}

TEST(CudaTraining, ComesToWhatTheCpuComesTo) {
  TANDEM_NEEDS_GPUS(1);
  const auto here = trained("cpu");
  const auto there = trained("cuda:0");
  ASSERT_EQ(here.size(), there.size());
  for (std::size_t i = 0; i < here.size(); ++i)
    EXPECT_LT(distance(here[i], there[i]), 1e-3) << i;
}

TEST(CudaTraining, GivesTheSameBitsEachTime) {
  TANDEM_NEEDS_GPUS(1);
  const auto first = trained("cuda:0");
  for (int run = 0; run < 3; ++run) {
    const cuda::Stream side;
    std::unique_ptr<cuda::StreamScope> scope;
    if (run == 1) scope = std::make_unique<cuda::StreamScope>(side);
    const auto again = trained(run == 2 && cuda::device_count() > 1 ? "cuda:1" : "cuda:0");
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(same_bits(first[i], again[i])) << run << " " << i;
  }
}

TEST(CudaTraining, OnTwoGpusByTwoThreads) {
  TANDEM_NEEDS_GPUS(2);
  const auto expected = trained("cuda:0");
  std::vector<std::vector<Tensor>> results(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] { results[t] = trained(Device(static_cast<int>(t % 2))); });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& result : results) {
    ASSERT_EQ(result.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(same_bits(result[i], expected[i])) << i;
  }
}

TEST(CudaTraining, MovesToAGpuAndBack) {
  TANDEM_NEEDS_GPUS(1);
  nn::Sequential model = model_on("cpu");
  optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
  nn::Sequential stays = model_on("cpu");
  optim::AdamW its(stays.parameters(), {.lr = 0.01});
  std::vector<Device> way{"cpu", "cuda:0", "cpu", "cuda:0", "cuda:0"};
  if (cuda::device_count() > 1) way.emplace_back("cuda:1");
  way.emplace_back("cpu");
  std::uint64_t seed = 0;
  for (const Device device : way) {
    model.to(device);
    for (const Tensor& parameter : model.parameters()) {
      EXPECT_EQ(parameter.device(), device);
      EXPECT_TRUE(parameter.requires_grad());
    }
    EXPECT_NEAR(step(model, optimizer, seed, device), step(stays, its, seed, "cpu"), 1e-3) << device;
    ++seed;
  }
  const auto expected = stays.parameters();
  const auto found = model.parameters();
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_LT(distance(found[i], expected[i]), 2e-3) << i;
}

TEST(CudaTraining, StatesAreSavedAndLoadedThroughTheCpu) {
  TANDEM_NEEDS_GPUS(1);
  nn::Sequential model = model_on("cuda:0");
  optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
  for (std::uint64_t i = 0; i < 3; ++i)
    step(model, optimizer, i, "cuda:0");
  StateDict weights;
  for (const auto& [name, value] : model.state_dict())
    weights.set(name, value.detach().to("cpu").clone());
  StateDict moments;
  for (const auto& [name, value] : optimizer.state_dict())
    moments.set(name, value.detach().to("cpu").clone());
  std::vector<Device> devices{"cuda:0"};
  if (cuda::device_count() > 1) devices.emplace_back("cuda:1");
  const double expected = step(model, optimizer, 9, "cuda:0");
  for (const Device device : devices) {
    nn::Sequential other(nn::Linear(6, 40, {.bias = false, .device = device}), nn::BatchNorm1d(40), nn::ReLU(),
                         nn::Dropout(0.1), nn::Linear(40, 24), nn::LayerNorm({24}), nn::Tanh(), nn::Linear(24, 4));
    other.to(device);
    optim::AdamW its(other.parameters(), {.lr = 0.5});
    other.load_state_dict(weights);
    its.load_state_dict(moments);
    EXPECT_EQ(step(other, its, 9, device), expected);
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
      EXPECT_TRUE(same_bits(other.parameters()[i], model.parameters()[i]));
    }
  }
}

// A model on two GPUs, and on a GPU and the CPU.
TEST(CudaTraining, BackwardThroughSeveralDevices) {
  TANDEM_NEEDS_GPUS(1);
  const auto gradients = [](Device a, Device b) {
    Generator generator(3);
    const GeneratorScope draws(generator);
    Tensor u = randn({30, 20}, {.device = "cpu"}).to(a).requires_grad_();
    Tensor v = randn({20, 30}, {.device = "cpu"}).to(b).requires_grad_();
    Tensor x = randn({16, 30}, {.device = "cpu"}).to(a);
    Tensor h = x;
    for (int i = 0; i < 3; ++i)
      h = h.matmul(u).tanh().to(b).matmul(v).tanh().to(a);
    (h.sum() + (v.sum() * v.sum()).to(a)).backward();
    return std::vector<Tensor>{u.grad(), v.grad()};
  };
  std::vector<Device> devices{"cpu", "cuda:0"};
  if (cuda::device_count() > 1) devices.emplace_back("cuda:1");
  const auto expected = gradients("cuda:0", "cuda:0");
  for (const Device a : devices) {
    for (const Device b : devices) {
      for (int run = 0; run < 3; ++run) {
        const auto found = gradients(a, b);
        EXPECT_EQ(found[0].device(), a);
        EXPECT_EQ(found[1].device(), b);
        for (std::size_t i = 0; i < found.size(); ++i) {
          if (a.type == DeviceType::cuda && b.type == DeviceType::cuda) {
            EXPECT_TRUE(same_bits(found[i], expected[i])) << a << b;
          } else {
            EXPECT_LT(distance(found[i], expected[i]), 1e-3) << a << b;
          }
        }
      }
    }
  }
}

TEST(CudaTraining, ModelAndInputOnDifferentDevices) {
  TANDEM_NEEDS_GPUS(1);
  nn::Sequential model = model_on("cuda:0");
  const std::string text = message_of<DeviceError>([&] { model(ones({2, 6}, {.device = "cpu"})); });
  EXPECT_NE(text.find("cpu:0"), std::string::npos) << text;
  EXPECT_NE(text.find("cuda:0"), std::string::npos) << text;
  EXPECT_THROW(
      nn::cross_entropy(ones({2, 3}, {.device = "cuda:0"}), zeros({2}, {.dtype = DType::i64, .device = "cpu"})),
      DeviceError);
  EXPECT_THROW(nn::embedding(zeros({2}, {.dtype = DType::i64, .device = "cpu"}), ones({2, 3}, {.device = "cuda:0"})),
               DeviceError);
}

TEST(CudaTraining, SixteenBitTypes) {
  TANDEM_NEEDS_GPUS(1);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    nn::Sequential model(nn::Linear(6, 16), nn::ReLU(), nn::Linear(16, 4));
    model.to("cuda:0");
    model.to(dtype);
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01, .eps = 1e-4});
    const Tensor x = ones({8, 6}, {.dtype = dtype, .device = "cuda:0"});
    const Tensor y = zeros({8}, {.dtype = DType::i64, .device = "cuda:0"});
    double first = 0;
    double last = 0;
    for (int i = 0; i < 10; ++i) {
      optimizer.zero_grad();
      Tensor loss = nn::cross_entropy(model(x), y);
      loss.backward();
      optimizer.step();
      last = loss.item();
      first = i == 0 ? last : first;
    }
    EXPECT_LT(last, first) << dtype;
  }
}

}  // namespace
}  // namespace tandem
