#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/extend.h>
#include <tandem/graph/capture.h>

#include "../../examples/own_kernel/reglu.h"
#include "cuda/gpu_test.h"
#include "cuda/own_noise.h"

// Tests of the GPU halves of kernels as programs outside the tree have them (docs/own-kernel.md).

namespace own {

using namespace tandem;
using namespace tandem::kernels;

void run(OnCpu, Context&, const Noise& k) {
  for (std::int64_t i = 0; i < k.count; ++i) {
    const auto block = philox(k.seed, k.state->random_offset + k.offset + static_cast<std::uint64_t>(i / 4));
    k.out[i] = uniform_f32(block[static_cast<std::size_t>(i % 4)]);
  }
}

Tensor noise(std::int64_t count, Device device) {
  Tensor out = empty({count}, {.device = device});
  Generator& generator = current_generator();
  launch(context_for(device), Noise{.count = count,
                                    .out = mutable_data_ptr<float>(out),
                                    .seed = generator.seed(),
                                    .offset = generator.reserve(static_cast<std::uint64_t>(count / 4)),
                                    .state = generator.state()});
  return out;
}

// Has no half for GPUs.
struct Twice {
  static constexpr const char* kName = "own_twice";
  static constexpr bool kCpuOnly = true;
  float* value;
};
void run(OnCpu, Context&, const Twice& k) { *k.value *= 2; }

}  // namespace own

namespace tandem {
namespace {

using test::message_of;

TEST(OwnGpuKernel, ComputesWhatItsCpuHalfComputes) {
  TANDEM_NEEDS_GPUS(1);
  for (const std::int64_t count : {0, 1, 1000, 100'000}) {
    std::vector<Tensor> results[2];
    for (const Device device : {Device("cpu"), Device("cuda:0")}) {
      manual_seed(1);
      const Tensor a = randn({count}).to(device).requires_grad_();
      const Tensor b = randn({count}).to(device).requires_grad_();
      const Tensor y = reglu(a, b);
      y.sum().backward();
      results[device.type == DeviceType::cuda ? 1 : 0] = {y, a.grad(), b.grad()};
    }
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(test::same_bits(results[0][i], results[1][i])) << count << " elements, tensor " << i;
    }
  }
}

TEST(OwnGpuKernel, IsAPartOfTheGraphOfACapturedStep) {
  TANDEM_NEEDS_GPUS(1);
  constexpr int kSteps = 6;
  std::vector<std::vector<float>> expected;
  manual_seed(3);
  for (int i = 0; i < kSteps; ++i) {
    expected.push_back((own::noise(1000, "cpu") * 2).to_vector<float>());
  }
  manual_seed(3);
  auto step = graph::capture([] { return own::noise(1000, "cuda:0") * 2; });
  for (int i = 0; i < kSteps; ++i) {
    EXPECT_EQ(step().to_vector<float>(), expected[static_cast<std::size_t>(i)]) << "step " << i;
  }
  EXPECT_EQ(step.stats().gpu_graphs, 1u);
}

TEST(OwnGpuKernel, WithoutAHalfForGpusIsRefusedByName) {
  TANDEM_NEEDS_GPUS(1);
  Tensor x = ones({1}, {.device = "cuda:0"});
  EXPECT_EQ(message_of<DeviceError>(
                [&] { kernels::launch(kernels::context_for(x.device()), own::Twice{mutable_data_ptr<float>(x)}); }),
            "own_twice: this kernel runs on CPUs only, and its tensors are on cuda:0; move them with .to(\"cpu\"), or "
            "write run(OnCuda, ...) and take kCpuOnly away");
}

}  // namespace
}  // namespace tandem
