#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/extend.h>
#include <tandem/graph/capture.h>

#include "support/message.h"

// Tests of kernels as programs outside the tree have them (docs/own-kernel.md).

namespace own {

// Uniform random numbers, four of a counter.
struct Noise {
  static constexpr const char* kName = "own_noise";
  static constexpr bool kCpuOnly = true;
  std::int64_t count;
  float* out;
  std::uint64_t seed, offset;
  const tandem::kernels::StepState* state;
};

void run(tandem::kernels::OnCpu, tandem::kernels::Context& context, const Noise& kernel) {
  const tandem::kernels::ScratchScope scope(context.scratch);
  auto* drawn = context.scratch.allocate_array<float>(static_cast<std::size_t>(kernel.count));
  tandem::core::parallel_for(kernel.count, 4, [&](std::int64_t begin, std::int64_t end) {
    const auto block = tandem::kernels::philox(
        kernel.seed, kernel.state->random_offset + kernel.offset + static_cast<std::uint64_t>(begin / 4));
    for (std::int64_t i = begin; i < end; ++i) {
      drawn[i] = tandem::kernels::uniform_f32(block[static_cast<std::size_t>(i - begin)]);
    }
  });
  std::copy(drawn, drawn + kernel.count, kernel.out);
}

tandem::Tensor noise(const tandem::Shape& sizes) {
  tandem::Tensor out = tandem::empty(sizes);
  tandem::Generator& generator = tandem::current_generator();
  tandem::kernels::launch(tandem::kernels::context_for(out.device()),
                          Noise{.count = out.numel(),
                                .out = tandem::mutable_data_ptr<float>(out),
                                .seed = generator.seed(),
                                .offset = generator.reserve(static_cast<std::uint64_t>((out.numel() + 3) / 4)),
                                .state = generator.state()});
  return out;
}

}  // namespace own

namespace tandem {
namespace {

using test::message_of;

TEST(OwnKernel, DrawsInACapturedStepWhatItDrawsOutsideOfOne) {
  std::vector<std::vector<float>> expected;
  manual_seed(3);
  for (int i = 0; i < 6; ++i) {
    expected.push_back((own::noise({7}) * 2).to_vector<float>());
  }
  manual_seed(3);
  auto step = graph::capture([] { return own::noise({7}) * 2; });
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(step().to_vector<float>(), expected[static_cast<std::size_t>(i)]) << "step " << i;
  }
  EXPECT_GE(step.stats().replayed, 3U);
}

TEST(DataPtr, IsTheFirstElementOfADenseTensor) {
  const Tensor x = arange(6, {.dtype = DType::f32}).reshape({2, 3});
  EXPECT_EQ(const_data_ptr<float>(x), x.data<float>());
  EXPECT_EQ(const_data_ptr(x[1]), x.data<float>() + 3);
  EXPECT_NO_THROW(const_data_ptr(empty({0, 3})));
}

TEST(DataPtr, ForWritingCountsAsAChange) {
  Tensor x = zeros({3});
  const auto before = x.version();
  *mutable_data_ptr<float>(x) = 4;
  EXPECT_EQ(x.version(), before + 1);
  EXPECT_EQ(x.sum().item(), 4);
}

TEST(DataPtr, RefusesWhatAKernelWouldMisread) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(message_of<DTypeError>([&] { const_data_ptr<double>(x); }),
            "const_data_ptr<f64>: the tensor holds f32; convert with .to(DType::f64)");
  EXPECT_EQ(message_of<ShapeError>([&] { const_data_ptr(x.transpose(0, 1)); }),
            "const_data_ptr: the tensor [3, 2] with strides [1, 3] is not contiguous; call .contiguous() first");
  EXPECT_EQ(message_of<ShapeError>([&] { mutable_data_ptr(zeros({1, 3}).expand({2, 3})); }),
            "mutable_data_ptr: the tensor [2, 3] with strides [0, 1] is not contiguous; call .contiguous() first");
  EXPECT_THROW(const_data_ptr(Tensor()), Error);
}

}  // namespace
}  // namespace tandem
