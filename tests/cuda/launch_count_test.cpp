#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "cuda/gpu_test.h"

#if __has_include("emulated_gpu.h")
#include "emulated_gpu.h"

// The number of kernels that a training step launches. In a small step each costs more time than its work.

namespace tandem {
namespace {

nn::Sequential mlp(DType dtype) {
  return nn::Sequential(nn::Linear(784, 512, {.dtype = dtype}), nn::ReLU(), nn::Linear(512, 512, {.dtype = dtype}),
                        nn::ReLU(), nn::Linear(512, 10, {.dtype = dtype}));
}

// The number of kernels in one step of 784-512-512-10 with 128 rows and Adam, after a few steps. A product of the
// library counts as one: how many kernels it takes is the library's choice.
std::size_t kernels_of_step(DType dtype, bool captured) {
  const core::DeviceScope on("cuda:0");
  nn::Sequential model = mlp(dtype);
  optim::Adam adam(model.parameters(), {.lr = 1e-3});
  const Tensor x = randn({128, 784}).to(dtype);
  const Tensor y = randint(0, 10, {128});
  const auto step = [&](const Tensor& input, const Tensor& target) {
    adam.zero_grad();
    Tensor loss = nn::cross_entropy(model(input), target);
    loss.backward();
    adam.step();
    return loss;
  };
  auto replay = graph::capture(step);
  const auto run = [&] { captured ? replay(x, y) : step(x, y); };
  for (int i = 0; i < 3; ++i) {
    run();
  }
  cuda::synchronize("cuda:0");
  const emulated_gpu::KernelLog log;
  run();
  cuda::synchronize("cuda:0");
  std::vector<std::string> names = log.names();
  std::erase(names, "cublaslt_split_k_reduce");
  EXPECT_EQ(replay.stats().gpu_graph, captured);
  return names.size();
}

// Three products forward, five backward, the loss with its gradient, and Adam.
constexpr std::size_t kKernels = 10;

TEST(LaunchCount, OfAnEagerStep) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    EXPECT_EQ(kernels_of_step(dtype, false), kKernels) << dtype;
  }
}

// Before the graph, both inputs are copied into their places, and Adam's state is sent.
TEST(LaunchCount, OfACapturedStep) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    EXPECT_EQ(kernels_of_step(dtype, true), kKernels + 3) << dtype;
  }
}

}  // namespace
}  // namespace tandem
#endif
