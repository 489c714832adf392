#include <cstdlib>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/thread_state.h>

#include "gpu.h"

// Part of every test program. With TANDEM_TEST_DEVICE=cuda:0, tests place their tensors on that device unless they name
// one: the tests are shared by all backends. If the device does not exist, the tests are skipped. Tests of GPUs, in
// tests/cuda, name their devices everywhere and are not affected.

namespace tandem::test {
namespace {

class DeviceListener final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override {
    if (std::string_view(test.file()).find("tests/cuda/") != std::string_view::npos) {
      return;
    }
    if (!missing_.empty()) {
      GTEST_SKIP() << missing_;
    }
    core::thread_state().device = device_;
  }
  void OnTestEnd(const ::testing::TestInfo&) override {
    try {
      wait_for_gpu();
    } catch (const Error& error) {
      ADD_FAILURE() << "nobody asked the GPU for what it found wrong: " << error.what();
    }
    core::thread_state().device = Device();
  }

 public:
  explicit DeviceListener(Device device) : device_(device) {
    try {
      require_available(device);
    } catch (const DeviceError& error) {
      missing_ = error.what();
    }
  }

 private:
  Device device_;
  std::string missing_;
};

[[maybe_unused]] const bool installed = [] {
  if (const char* device = std::getenv("TANDEM_TEST_DEVICE"); device != nullptr && *device != '\0') {
    ::testing::UnitTest::GetInstance()->listeners().Append(new DeviceListener(device));
  }
  return true;
}();

}  // namespace
}  // namespace tandem::test
