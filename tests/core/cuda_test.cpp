#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/cuda.h>
#include <tandem/core/error.h>
#include <tandem/tensor/cuda_allocator.h>

namespace tandem {
namespace {

TEST(Cuda, AnswersOnEveryMachine) {
  EXPECT_GE(cuda::device_count(), 0);
  EXPECT_EQ(cuda::is_available(), cuda::device_count() > 0);
}

TEST(Cuda, EveryDeviceHasAName) {
  if (!cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (int index = 0; index < cuda::device_count(); ++index) {
    EXPECT_NE(cuda::device_name(index), "");
  }
}

TEST(Cuda, NameOfADeviceThatIsNotThereThrows) {
  EXPECT_THROW(cuda::device_name(-1), DeviceError);
  EXPECT_THROW(cuda::device_name(cuda::device_count()), DeviceError);
}

TEST(Cuda, MemoryOfADeviceThatIsNotThereThrows) {
  const Device none(DeviceType::cuda, cuda::device_count());
  EXPECT_THROW(cuda::memory_stats(none), DeviceError);
  EXPECT_THROW(cuda::reset_peak_memory_stats(none), DeviceError);
  EXPECT_THROW(cuda::empty_cache(none), DeviceError);
}

// The runtime reads the variable once per process, so each value needs a new process.
TEST(CudaDeathTest, HidingEveryGpuLeavesNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto count_hidden = [] {
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    try {
      cuda::device_name(0);
    } catch (const DeviceError&) {
      std::_Exit(cuda::device_count() == 0 ? 0 : 1);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(count_hidden(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tandem
