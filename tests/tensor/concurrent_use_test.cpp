#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_state.h>
#include <tandem/nn/linear.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"

// Const use of one handle from many threads is safe; the thread sanitizer checks these tests.

namespace tandem {
namespace {

using Floats = std::vector<float>;

constexpr int kThreads = 4;

template <class Body>
void on_threads(Body&& body) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([body, t, device = core::thread_state().device]() mutable {
      const core::DeviceScope scope(device);
      body(t);  // each thread has its own copy of the captures
    });
  }
}

TEST(ConcurrentUse, ReadingOneTensor) {
  const Tensor x = arange(1000).reshape({10, 100}).to(DType::f32);
  std::atomic<int> wrong{0};
  on_threads([&](int) {
    for (int round = 0; round < 50; ++round) {
      const Tensor copy = x;
      wrong += copy.shape() != Shape{10, 100};
      wrong += x.t().contiguous()[5][3].item() != 305;
      wrong += (x + x).sum().item() != 999000;
      wrong += x.to_vector<float>()[999] != 999;
      wrong += x.to(Device("cpu:1")).sum({0}).numel() != 100;
      wrong += test::as_on_cpu(to_string(x.slice(0, 0, 1).slice(1, 0, 2))) != "tensor([[0., 1.]])";
      wrong += x.version() != 0;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ConcurrentUse, HandlesComeAndGo) {
  Tensor x = rand({64});
  const std::vector<Tensor> handles(20, x);
  x = Tensor();
  on_threads([&](int t) {
    for (int round = 0; round < 500; ++round) {
      Tensor mine = handles[static_cast<std::size_t>((t + round) % 20)];
      const Tensor view = mine[3];
      mine = view;
    }
  });
  EXPECT_EQ(handles[0].numel(), 64);
}

TEST(ConcurrentUse, LastOwnerMayBeAnyThread) {
  for (int round = 0; round < 200; ++round) {
    Tensor leaf = rand({8}).requires_grad_();
    Tensor result = (leaf * 2.0).exp();
    std::vector<std::pair<Tensor, Tensor>> owners(kThreads, {leaf, result});
    leaf = result = Tensor();
    on_threads([&](int t) { owners[static_cast<std::size_t>(t)] = {}; });
  }
}

// The parameters are shared and each thread has its own graph: forward passes do not disturb each other.
TEST(ConcurrentUse, ForwardThroughOneLayer) {
  const nn::Linear layer(16, 8);
  const Tensor x = rand({5, 16});
  const Floats expected = layer(x).to_vector<float>();
  std::atomic<int> wrong{0};
  on_threads([&](int t) {
    for (int round = 0; round < 100; ++round) {
      if (t % 2 == 0) {
        const NoGradGuard no_grad;
        wrong += layer(x).to_vector<float>() != expected;
      } else {
        const Tensor y = layer(x);
        wrong += y.to_vector<float>() != expected || !y.requires_grad();
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ConcurrentUse, GraphsWithLeavesOfTheirOwnOverSharedData) {
  const Tensor x = rand({20, 10});
  const Tensor y = rand({20, 3});
  std::vector<Floats> gradients(kThreads);
  on_threads([&](int t) {
    Tensor w = full({3, 10}, 0.1).requires_grad_();
    for (int round = 0; round < 50; ++round) {
      w.zero_grad();
      mse_loss(linear(x, w), y).backward();
    }
    gradients[static_cast<std::size_t>(t)] = w.grad().to_vector<float>();
  });
  for (const Floats& gradient : gradients)
    EXPECT_EQ(gradient, gradients[0]);
}

TEST(ConcurrentUse, ErrorsAreTheThreadsOwn) {
  const Tensor a = zeros({2, 3});
  const Tensor b = zeros({4});
  std::atomic<int> wrong{0};
  on_threads([&](int) {
    for (int round = 0; round < 100; ++round) {
      try {
        a + b;
        ++wrong;
      } catch (const Error& error) {
        wrong += std::string(error.what()).find("[2, 3] and [4]") == std::string::npos;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ConcurrentUse, DrawsFromOneGeneratorDoNotOverlap) {
  Generator generator(1);
  std::vector<std::vector<double>> draws(kThreads);
  on_threads([&](int t) {
    const GeneratorScope scope(generator);
    for (int round = 0; round < 50; ++round) {
      for (const double value : rand({7}, {.dtype = DType::f64}).to_vector<double>()) {
        draws[static_cast<std::size_t>(t)].push_back(value);
      }
    }
  });
  std::vector<double> all;
  for (const auto& part : draws)
    all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

}  // namespace
}  // namespace tandem
