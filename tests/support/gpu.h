#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/cuda.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/core/thread_state.h>

/// Skips a test on a GPU, for behaviour of the host only. Use this at the beginning of a test that also runs on a GPU.
#define TANDEM_SKIP_ON_GPU(why)                                                   \
  if (::tandem::core::thread_state().device.type == ::tandem::DeviceType::cuda) { \
    GTEST_SKIP() << (why);                                                        \
  }                                                                               \
  static_assert(true)

namespace tandem::test {

/// Expects equal numbers, to the bit on a CPU. If the test runs on a GPU, one side may come from the CPU, and a GPU
/// rounds a product and a sum together.
template <class T>
void expect_same_up_to_gpu(const std::vector<T>& a, const std::vector<T>& b, double tolerance = 1e-6) {
  ASSERT_EQ(a.size(), b.size());
  const bool gpu = core::thread_state().device.type == DeviceType::cuda;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], gpu ? tolerance : 0) << i;
  }
}

/// If the test runs on a GPU, waits for the GPU; errors about wrong values that the GPU found are thrown here.
inline void wait_for_gpu() {
  if (const Device device = core::thread_state().device; device.type == DeviceType::cuda) {
    cuda::synchronize(device);
  }
}

/// The text that the CPU would have produced, for a text from a test that runs on a GPU: the GPU's name becomes the
/// CPU's, and the remark about late errors is removed. Elsewhere the text is unchanged.
inline std::string as_on_cpu(std::string text) {
  const Device device = core::thread_state().device;
  if (device.type != DeviceType::cuda) {
    return text;
  }
  const std::string gpu = to_string(device);
  const auto replace = [&text](const std::string& from, const std::string& to) {
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  };
  replace(fmt::format(" (found on the GPU {} while the program went on; results since then are not to be used)", gpu),
          "");
  replace(fmt::format(", device={}", gpu), "");
  replace("on " + gpu, "on " + to_string(Device()));
  replace(fmt::format(".to(\"{}\")", gpu), fmt::format(".to(\"{}\")", to_string(Device())));
  return text;
}

/// The message about a GPU that does not exist, for this build on this machine.
inline std::string gpu_refusal(const std::string& device) {
  const int count = cuda::device_count();
  return count == 0 ? fmt::format("device '{}': {}; use 'cpu'", device, cuda::why_unavailable())
                    : fmt::format("device '{}': there are {} GPUs, cuda:0 to cuda:{}", device, count, count - 1);
}

}  // namespace tandem::test
