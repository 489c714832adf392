#include <cmath>
#include <cstdint>
#include <type_traits>

#include <gtest/gtest.h>

#include <tandem/kernels/dropout.h>
#include <tandem/kernels/random.h>

#include "cuda/values.h"

namespace tandem::kernels {
namespace {

using test::Rng;
using test::Twin;

constexpr std::int64_t kCounts[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 1023, 1024, 40001};

template <class T>
class CudaRandomOf : public testing::Test {};
using Types = testing::Types<float, double, BFloat16, Float16, std::int64_t, std::int32_t, std::uint8_t, bool>;
TYPED_TEST_SUITE(CudaRandomOf, Types);

// Runs both fills, one on each device.
template <class T>
void fill_both(RandomFill kernel, Twin<T>& out, std::int64_t offset) {
  kernel.out = out.on_host(offset);
  launch(test::cpu(), kernel);
  kernel.out = out.on_gpu(offset);
  launch(test::gpu(), kernel);
}

TYPED_TEST(CudaRandomOf, IntegersHaveTheSameBits) {
  TANDEM_NEEDS_GPU();
  Rng rng(13);
  const StepState state{.random_offset = (std::uint64_t{1} << 33) + 5};
  for (const std::int64_t count : kCounts) {
    for (const std::int64_t offset : {0, 1}) {
      const RandomFill kernel{.distribution = Distribution::integer,
                              .dtype = dtype_of<TypeParam>,
                              .out = nullptr,
                              .count = count,
                              .low = 0,
                              .high = std::is_same_v<TypeParam, bool> ? 2 : 100,
                              .seed = 0x123456789abcdef,
                              .offset = 3,
                              .state = &state};
      Twin<TypeParam> out(rng, count + offset);
      fill_both(kernel, out, offset);
      ASSERT_TRUE(out.agree()) << count;
    }
  }
}

template <class T>
class CudaFloatingRandomOf : public testing::Test {};
using FloatingTypes = testing::Types<float, double, BFloat16, Float16>;
TYPED_TEST_SUITE(CudaFloatingRandomOf, FloatingTypes);

TYPED_TEST(CudaFloatingRandomOf, UniformNumbersHaveTheSameBits) {
  TANDEM_NEEDS_GPU();
  Rng rng(13);
  const StepState state{.random_offset = 77};
  for (const std::int64_t count : kCounts) {
    for (const std::int64_t offset : {0, 1}) {
      for (const double high : {1.0, 0.37, -0.3}) {
        const RandomFill kernel{.distribution = Distribution::uniform,
                                .dtype = dtype_of<TypeParam>,
                                .out = nullptr,
                                .count = count,
                                .low = -0.3,
                                .high = high,
                                .seed = 42,
                                .offset = 1,
                                .state = &state};
        Twin<TypeParam> out(rng, count + offset);
        fill_both(kernel, out, offset);
        ASSERT_TRUE(out.agree()) << count;
      }
    }
  }
}

TYPED_TEST(CudaFloatingRandomOf, NormalNumbersAgreeToTheLastBits) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  Rng rng(13);
  const StepState state{};
  for (const std::int64_t count : kCounts) {
    const RandomFill kernel{.distribution = Distribution::normal,
                            .dtype = dtype_of<TypeParam>,
                            .out = nullptr,
                            .count = count,
                            .low = 0.5,
                            .high = 2,
                            .seed = 42,
                            .offset = 1,
                            .state = &state};
    Twin<T> out(rng, count);
    fill_both(kernel, out, 0);
    const auto got = out.download();
    const double slack = std::is_same_v<T, double> ? 1e-14 : is_16_bit<T> ? 0x1p-6 : 1e-6;
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(got[i]), static_cast<double>(out.host[i]), slack) << i << " of " << count;
    }
  }
}

TYPED_TEST(CudaFloatingRandomOf, Dropout) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  Rng rng(17);
  const StepState state{.random_offset = 1000};
  for (const std::int64_t count : kCounts) {
    for (const std::int64_t offset : {0, 1}) {
      for (const double p : {0.0, 0.3, 1.0}) {
        Twin<T> in(rng, count + offset);
        Twin<T> out(rng, count + offset);
        Twin<std::uint8_t> mask(rng, count + offset);
        Dropout kernel{.dtype = dtype_of<T>,
                       .count = count,
                       .p = p,
                       .in = in.on_host(offset),
                       .out = out.on_host(offset),
                       .mask = mask.on_host(offset),
                       .seed = 7,
                       .offset = 9,
                       .state = &state};
        launch(test::cpu(), kernel);
        kernel.in = in.on_gpu(offset);
        kernel.out = out.on_gpu(offset);
        kernel.mask = mask.on_gpu(offset);
        launch(test::gpu(), kernel);
        ASSERT_TRUE(mask.agree()) << count;
        ASSERT_TRUE(out.agree()) << count;

        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          DropoutGrad grad{.dtype = dtype_of<T>,
                           .accumulate = accumulate,
                           .count = count,
                           .p = p,
                           .grad = in.on_host(offset),
                           .mask = mask.on_host(offset),
                           .in_grad = out.on_host(offset)};
          launch(test::cpu(), grad);
          grad.grad = in.on_gpu(offset);
          grad.mask = mask.on_gpu(offset);
          grad.in_grad = out.on_gpu(offset);
          launch(test::gpu(), grad);
          ASSERT_TRUE(out.agree()) << count << " gradient";
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
