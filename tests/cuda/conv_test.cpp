#include <tandem/kernels/conv.h>

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/device_array.h"
#include "cuda/near.h"
#include "kernels/arrays.h"
#include "kernels/naive_conv.h"

namespace tandem::kernels {
namespace {

using test::DeviceArray;

// Runs a kernel on both devices: with(in, other, bias, out) makes it.
template <class T, class With>
void compare(test::Rng& rng, const char* what, std::int64_t in, std::int64_t other, std::int64_t bias, std::int64_t out,
             double slack, With&& with) {
  const auto first = test::random_values<T>(rng, in);
  const auto second = test::random_values<T>(rng, other);
  const auto shift = test::random_values<T>(rng, bias);
  auto result = test::random_values<T>(rng, out);
  const DeviceArray<T> gpu_first(first, 1), gpu_second(second), gpu_shift(shift), gpu_result(result, 1);
  launch(test::cpu(), with(first.data(), second.data(), shift.data(), result.data()));
  launch(test::gpu(), with(gpu_first.data(), gpu_second.data(), gpu_shift.data(), gpu_result.data()));
  test::expect_near(gpu_result.download(), result, what, slack);
}

template <class T>
void compare_all(const ConvShape& shape, bool biased, Accumulate accumulate) {
  test::Rng rng(5);
  const std::int64_t ins = shape.batch * shape.in_size();
  const std::int64_t outs = shape.batch * shape.out_size();
  compare<T>(rng, "forward", ins, shape.weight_size(), shape.groups * shape.out_channels, outs, 4,
             [&](const void* in, const void* weight, const void* bias, void* out) {
               return Conv{dtype_of<T>, accumulate, shape, in, weight, biased ? bias : nullptr, out};
             });
  compare<T>(rng, "gradient of the input", outs, shape.weight_size(), shape.groups * shape.in_channels, ins, 4,
             [&](const void* grad, const void* weight, const void* bias, void* in_grad) {
               return ConvInGrad{dtype_of<T>, accumulate, shape, grad, weight, biased ? bias : nullptr, in_grad};
             });
  compare<T>(rng, "gradient of the weight", outs, ins, 0, shape.weight_size(), 8,
             [&](const void* grad, const void* in, const void*, void* weight_grad) {
               return ConvWeightGrad{dtype_of<T>, accumulate, shape, grad, in, weight_grad};
             });
}

TEST(CudaConv, AgreesWithTheCpu) {
  TANDEM_NEEDS_GPU();
  for (const ConvShape& shape : test::awkward_convs()) {
    SCOPED_TRACE(test::describe(shape));
    if (shape.in_size() * shape.batch > 30'000) {
      continue;  // minutes on an emulated GPU
    }
    compare_all<float>(shape, true, Accumulate::no);
    compare_all<double>(shape, false, Accumulate::yes);
  }
}

TEST(CudaConv, InSixteenBits) {
  TANDEM_NEEDS_GPU();
  const ConvShape shape = test::conv_shape({2, 2, 3, 5, {9, 11}, {}, {3, 2}, {2, 1}, {1, 0}, {1, 2}});
  compare_all<Float16>(shape, true, Accumulate::yes);
  compare_all<BFloat16>(shape, true, Accumulate::no);
}

}  // namespace
}  // namespace tandem::kernels
