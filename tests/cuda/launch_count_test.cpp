#include <functional>
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

// The kernels of `run`. A product of the library counts as one: how many kernels it takes is the library's choice.
std::vector<std::string> kernels_of(const std::function<void()>& run) {
  cuda::synchronize("cuda:0");
  const emulated_gpu::KernelLog log;
  run();
  for (int gpu = 0; gpu < cuda::device_count(); ++gpu) {
    cuda::synchronize(Device(DeviceType::cuda, gpu));
  }
  std::vector<std::string> names = log.names();
  std::erase(names, "cublaslt_split_k_reduce");
  return names;
}

enum class Step { eager, captured, captured_in_place };

// The number of kernels in one step of 784-512-512-10 with 128 rows and Adam, after a few steps.
std::size_t kernels_of_step(DType dtype, Step kind) {
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
  const auto run = [&] { kind == Step::eager ? step(x, y) : replay(x, y); };
  for (int i = 0; i < 3; ++i) {
    run();
  }
  EXPECT_EQ(replay.stats().gpu_graphs, kind != Step::eager ? 1u : 0u);
  if (kind == Step::captured_in_place) {
    const std::vector<Tensor> places(replay.inputs().begin(), replay.inputs().end());
    return kernels_of([&] { replay(places[0], places[1]); }).size();
  }
  return kernels_of(run).size();
}

// Three products forward, five backward, the loss with its gradient, and Adam.
constexpr std::size_t kKernels = 10;

TEST(LaunchCount, OfAnEagerStep) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    EXPECT_EQ(kernels_of_step(dtype, Step::eager), kKernels) << dtype;
  }
}

// Before the graph, Adam's state is sent, and inputs that are not in their places are copied there.
TEST(LaunchCount, OfACapturedStep) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    EXPECT_EQ(kernels_of_step(dtype, Step::captured_in_place), kKernels + 1) << dtype;
    EXPECT_EQ(kernels_of_step(dtype, Step::captured), kKernels + 3) << dtype;
  }
}

// Two replicas, each with half of the rows. All gradients of a replica, those of biases included, are in one block, so
// that one kernel adds the block to the other replica's.
TEST(LaunchCount, OfADataParallelStep) {
  TANDEM_NEEDS_GPUS(2);
  const core::DeviceScope on("cuda:0");
  nn::Sequential model = mlp(DType::f32);
  optim::Adam adam(model.parameters(), {.lr = 1e-3});
  parallel::DataParallel dp(model, {"cuda:0", "cuda:1"});
  const Tensor x = randn({128, 784});
  const Tensor y = randint(0, 10, {128});
  const auto step = [&] {
    adam.zero_grad();
    dp.loss([](const Tensor& out, const Tensor& target) { return nn::cross_entropy(out, target); }, x, y).backward();
    adam.step();
  };
  step();
  step();
  const std::size_t share = kKernels - 1;  // a replica's products and loss
  const std::size_t weighing = 9;          // of the two losses by their rows, and of their gradients
  EXPECT_EQ(kernels_of(step).size(), 2 * share + weighing + 2) << "one kernel joins all gradients, one is Adam";
}

}  // namespace
}  // namespace tandem
#endif
