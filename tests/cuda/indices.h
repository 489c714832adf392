#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/cuda_stream.h>
#include <tandem/core/error.h>

#include "cuda/values.h"

// Random indices for the tests of kernels that take indices.

namespace tandem::test {

/// Indices in [0, end).
inline std::vector<std::int64_t> random_index(Rng& rng, std::int64_t count, std::int64_t end) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(count));
  for (std::int64_t& i : index)
    i = whole_between(rng, 0, end - 1);
  return index;
}

/// Some indices are much more frequent than others.
inline std::vector<std::int64_t> skewed_index(Rng& rng, std::int64_t count, std::int64_t end) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(count));
  for (std::int64_t& i : index)
    i = rng() % 4 == 0 ? end / 2 : whole_between(rng, 0, end - 1);
  return index;
}

/// Waits for the GPU and returns the error's message; empty if there is no error.
inline std::string message_of_gpu() {
  try {
    cuda::current_stream().synchronize();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "";
}

}  // namespace tandem::test
