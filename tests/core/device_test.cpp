#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

#include <gtest/gtest.h>

#include <tandem/core/check.h>
#include <tandem/core/device.h>
#include <tandem/core/dtype.h>
#include <tandem/core/error.h>

#include "support/gpu.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;

TEST(Device, DefaultIsTheFirstCpu) {
  EXPECT_EQ(Device(), Device(DeviceType::cpu, 0));
  EXPECT_EQ(to_string(Device()), "cpu:0");
}

TEST(Device, IsReadFromText) {
  EXPECT_EQ(Device("cpu"), Device(DeviceType::cpu, 0));
  EXPECT_EQ(Device("cpu:0"), Device(DeviceType::cpu, 0));
  EXPECT_EQ(Device("cpu:7"), Device(DeviceType::cpu, 7));
  EXPECT_EQ(Device("cuda"), Device(DeviceType::cuda, 0));
  EXPECT_EQ(Device("cuda:3"), Device(DeviceType::cuda, 3));
  EXPECT_EQ(Device("cuda:32767"), Device(DeviceType::cuda, 32767));
  EXPECT_EQ(Device(std::string("cpu:1")), Device("cpu:1"));
  EXPECT_EQ(Device(std::string_view("cpu:12").substr(0, 5)), Device("cpu:1")) << "not up to a null byte";
}

TEST(Device, IntegerIsAGpu) {
  EXPECT_EQ(Device(1), Device("cuda:1"));
  EXPECT_EQ(Device(0), Device("cuda:0"));
  const Device device = 2;
  EXPECT_EQ(to_string(device), "cuda:2");
}

TEST(Device, IsNotMadeOfNothing) { EXPECT_FALSE((std::is_constructible_v<Device, std::nullptr_t>)); }

TEST(Device, DiffersByTypeAndIndex) {
  EXPECT_NE(Device("cpu:0"), Device("cpu:1"));
  EXPECT_NE(Device("cpu:0"), Device("cuda:0"));
}

TEST(Device, TextRoundTrips) {
  for (const char* text : {"cpu:0", "cpu:5", "cuda:0", "cuda:63"}) {
    EXPECT_EQ(to_string(Device(text)), text);
  }
}

TEST(Device, UnknownTextIsAnErrorThatSaysWhatToWrite) {
  EXPECT_EQ(message_of<DeviceError>([] { Device("gpu"); }),
            "device 'gpu' is not known; write 'cpu', 'cpu:1', 'cuda' or 'cuda:0'");
}

class BadDevice : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Texts, BadDevice,
                         ::testing::Values("", ":", "cpu:", "cuda:", "cpu:x", "cpu:1x", "cpu: 1", " cpu", "cpu ", "CPU",
                                           "Cuda:0", "cpu:-1", "cpu:-0", "cpu:+1", "cpu:1.0", "cpu:1:2", "cpu::1",
                                           "cuda0", "cpu:32768", "cpu:65536", "cpu:99999999999999999999", "cpu:0x1",
                                           "1"));

TEST_P(BadDevice, IsRefusedWithItsText) {
  EXPECT_EQ(message_of<DeviceError>([] { Device{GetParam()}; }),
            fmt::format("device '{}' is not known; write 'cpu', 'cpu:1', 'cuda' or 'cuda:0'", GetParam()));
}

TEST(RequireAvailable, AcceptsLogicalCpus) {
  for (int i = 0; i < cpu_device_count(); ++i) {
    EXPECT_NO_THROW(require_available(Device(DeviceType::cpu, i)));
  }
}

TEST(RequireAvailable, SaysHowManyLogicalCpusThereAre) {
  ASSERT_EQ(cpu_device_count(), 8) << "unset TANDEM_CPU_DEVICES";
  EXPECT_EQ(message_of<DeviceError>([] { require_available("cpu:99"); }),
            "device 'cpu:99': there are 8 logical CPU devices (cpu:0 to cpu:7); set TANDEM_CPU_DEVICES for more");
  EXPECT_THROW(require_available("cpu:8"), DeviceError);
}

TEST(RequireAvailable, RefusesIndicesThatNoDeviceHas) {
  EXPECT_THROW(require_available(Device(DeviceType::cpu, -1)), DeviceError);
  EXPECT_THROW(require_available(Device(DeviceType::cpu, 65536)), DeviceError) << "must not wrap around to cpu:0";
  EXPECT_THROW(require_available(Device(DeviceType::cpu, 65537)), DeviceError);
  EXPECT_THROW(require_available(Device(-1)), DeviceError);
}

TEST(RequireAvailable, RefusesGpusThatAreNotThere) {
  EXPECT_EQ(message_of<DeviceError>([] { require_available("cuda:64"); }), test::gpu_refusal("cuda:64"));
}

// The number is fixed at first use, so each value needs a new process.
int in_process_with(const char* count, void (*body)()) {
  setenv("TANDEM_CPU_DEVICES", count, 1);
  try {
    body();
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(3);
  }
  std::_Exit(0);
}

TEST(CpuDeviceCountDeathTest, ComesFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(in_process_with("64", [] { require_available("cpu:63"); }), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(in_process_with("1", [] { require_available("cpu:1"); }), ::testing::ExitedWithCode(3),
              "there are 1 logical CPU devices");
}

TEST(CpuDeviceCountDeathTest, BadNumbersAreAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* text : {"0", "65", "-1", "two", "", "4 "}) {
    EXPECT_EXIT(in_process_with(text, [] { cpu_device_count(); }), ::testing::ExitedWithCode(3),
                "TANDEM_CPU_DEVICES='" + std::string(text) + "': expected a number from 1 to 64");
  }
}

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(name(DType::f32), "f32");
  EXPECT_EQ(name(DType::f64), "f64");
  EXPECT_EQ(name(DType::i64), "i64");
  EXPECT_EQ(name(DType::i32), "i32");
  EXPECT_EQ(name(DType::u8), "u8");
  EXPECT_EQ(name(DType::boolean), "bool");
  EXPECT_EQ(item_size(DType::f32), sizeof(float));
  EXPECT_EQ(item_size(DType::f64), sizeof(double));
  EXPECT_EQ(item_size(DType::i64), sizeof(std::int64_t));
  EXPECT_EQ(item_size(DType::i32), sizeof(std::int32_t));
  EXPECT_EQ(item_size(DType::u8), sizeof(std::uint8_t));
  EXPECT_EQ(item_size(DType::boolean), sizeof(bool));
}

TEST(DType, OfTypes) {
  EXPECT_EQ(dtype_of<float>, DType::f32);
  EXPECT_EQ(dtype_of<double>, DType::f64);
  EXPECT_EQ(dtype_of<std::int64_t>, DType::i64);
  EXPECT_EQ(dtype_of<std::int32_t>, DType::i32);
  EXPECT_EQ(dtype_of<std::uint8_t>, DType::u8);
  EXPECT_EQ(dtype_of<bool>, DType::boolean);
}

TEST(DType, OnlyF32AndF64AreFloatingPoint) {
  EXPECT_TRUE(is_floating_point(DType::f32));
  EXPECT_TRUE(is_floating_point(DType::f64));
  for (const DType dtype : {DType::i64, DType::i32, DType::u8, DType::boolean}) {
    EXPECT_FALSE(is_floating_point(dtype)) << name(dtype);
  }
}

}  // namespace
}  // namespace tandem
