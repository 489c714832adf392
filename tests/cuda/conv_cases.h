#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/kernels/conv.h>

#include "cuda/device_array.h"
#include "cuda/near.h"
#include "kernels/arrays.h"
#include "kernels/naive_conv.h"

// Convolutions and their gradients on both devices.

namespace tandem::test {

/// Runs a kernel on both devices: with(in, other, bias, out) makes it, and on_gpu(kernel) launches it on the GPU.
template <class T, class With, class OnGpu>
void compare_conv(Rng& rng, const char* what, std::int64_t in, std::int64_t other, std::int64_t bias, std::int64_t out,
                  double slack, std::size_t offset, With&& with, OnGpu&& on_gpu) {
  const auto first = random_values<T>(rng, in);
  const auto second = random_values<T>(rng, other);
  const auto shift = random_values<T>(rng, bias);
  auto result = random_values<T>(rng, out);
  const DeviceArray<T> gpu_first(first, offset), gpu_second(second), gpu_shift(shift), gpu_result(result, offset);
  kernels::launch(cpu(), with(first.data(), second.data(), shift.data(), result.data()));
  on_gpu(with(gpu_first.data(), gpu_second.data(), gpu_shift.data(), gpu_result.data()));
  expect_near(gpu_result.download(), result, what, slack);
}

/// A convolution with a ReLU.
template <class T, class OnGpu>
void compare_conv_relu(const kernels::ConvShape& shape, bool biased, kernels::Accumulate accumulate, OnGpu&& on_gpu,
                       std::size_t offset = 1) {
  Rng rng(6);
  compare_conv<T>(
      rng, "with a ReLU", shape.batch * shape.in_size(), shape.weight_size(), shape.groups * shape.out_channels,
      shape.batch * shape.out_size(), 4, offset,
      [&](const void* in, const void* weight, const void* bias, void* out) {
        return kernels::Conv{dtype_of<T>, accumulate, shape, in, weight, biased ? bias : nullptr, out, true};
      },
      on_gpu);
}

/// The convolution and its two gradients. One factor and the result start `offset`
/// elements after an aligned address.
template <class T, class OnGpu>
void compare_convs(const kernels::ConvShape& shape, bool biased, kernels::Accumulate accumulate, OnGpu&& on_gpu,
                   std::size_t offset = 1) {
  Rng rng(5);
  const std::int64_t ins = shape.batch * shape.in_size();
  const std::int64_t outs = shape.batch * shape.out_size();
  compare_conv<T>(
      rng, "forward", ins, shape.weight_size(), shape.groups * shape.out_channels, outs, 4, offset,
      [&](const void* in, const void* weight, const void* bias, void* out) {
        return kernels::Conv{dtype_of<T>, accumulate, shape, in, weight, biased ? bias : nullptr, out};
      },
      on_gpu);
  compare_conv<T>(
      rng, "gradient of the input", outs, shape.weight_size(), shape.groups * shape.in_channels, ins, 4, offset,
      [&](const void* grad, const void* weight, const void* bias, void* in_grad) {
        return kernels::ConvInGrad{dtype_of<T>, accumulate, shape, grad, weight, biased ? bias : nullptr, in_grad};
      },
      on_gpu);
  compare_conv<T>(
      rng, "gradient of the weight", outs, ins, 0, shape.weight_size(), 8, offset,
      [&](const void* grad, const void* in, const void*, void* weight_grad) {
        return kernels::ConvWeightGrad{dtype_of<T>, accumulate, shape, grad, in, weight_grad};
      },
      on_gpu);
}

}  // namespace tandem::test
