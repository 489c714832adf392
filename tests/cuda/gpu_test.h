#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/cuda.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/tensor/cuda_allocator.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

#include "support/message.h"

// Helpers shared by tests that use GPUs through the public API.

#define TANDEM_NEEDS_GPUS(count) \
  if (tandem::cuda::device_count() < (count)) GTEST_SKIP() << "fewer than " << (count) << " GPUs"

namespace tandem::test {

/// `count` f32 elements, all `value`, on `device`.
inline Tensor filled(std::int64_t count, double value, Device device = "cuda:0") {
  return full({count}, value, {.device = device});
}

/// True if each element is `value`. Waits for the current stream.
inline bool all_are(const Tensor& tensor, double value) {
  for (const double found : tensor.to_vector<double>()) {
    if (found != value) {
      return false;
    }
  }
  return true;
}

/// True if both have the same elements, to the bit.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detach().to("cpu").contiguous();
  const Tensor y = b.detach().to("cpu").contiguous();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         (x.numel() == 0 ||
          std::memcmp(x.raw().data(), y.raw().data(), static_cast<std::size_t>(x.numel()) * item_size(x.dtype())) == 0);
}

}  // namespace tandem::test
