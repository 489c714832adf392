#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/thread_state.h>

// Every test program has this. With TANDEM_TEST_DEVICE=cuda:0 tensors of its tests are made on that device unless they
// say otherwise: the same tests for every backend. But tests of GPUs, in tests/cuda, say it everywhere. Where there is
// no such device, all are skipped.

namespace tandem::test {
namespace {

class DeviceListener final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override {
    if (std::string_view(test.file()).find("tests/cuda/") == std::string_view::npos) {
      core::thread_state().device = device_;
    }
  }
  void OnTestEnd(const ::testing::TestInfo&) override { core::thread_state().device = Device(); }

 public:
  explicit DeviceListener(Device device) : device_(device) {}

 private:
  Device device_;
};

class SkipAll final : public ::testing::Environment {
  void SetUp() override { GTEST_SKIP() << why_; }

 public:
  explicit SkipAll(std::string why) : why_(std::move(why)) {}

 private:
  std::string why_;
};

[[maybe_unused]] const bool installed = [] {
  if (const char* device = std::getenv("TANDEM_TEST_DEVICE"); device != nullptr && *device != '\0') {
    try {
      require_available(device);
      ::testing::UnitTest::GetInstance()->listeners().Append(new DeviceListener(device));
    } catch (const DeviceError& error) {
      ::testing::AddGlobalTestEnvironment(new SkipAll(error.what()));
    }
  }
  return true;
}();

}  // namespace
}  // namespace tandem::test
