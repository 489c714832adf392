#pragma once

#include <string>

#include <fmt/format.h>

#include <tandem/core/cuda.h>
#include <tandem/core/thread_state.h>

/// For what is so on the host alone, at the beginning of a test that also runs on a GPU.
#define TANDEM_SKIP_ON_GPU(why)                                                   \
  if (::tandem::core::thread_state().device.type == ::tandem::DeviceType::cuda) { \
    GTEST_SKIP() << (why);                                                        \
  }                                                                               \
  static_assert(true)

namespace tandem::test {

/// What is said of a GPU that is not there, in this build on this machine.
inline std::string gpu_refusal(const std::string& device) {
  const int count = cuda::device_count();
  return count == 0 ? fmt::format("device '{}': {}; use 'cpu'", device, cuda::why_unavailable())
                    : fmt::format("device '{}': there are {} GPUs, cuda:0 to cuda:{}", device, count, count - 1);
}

}  // namespace tandem::test
