#include <string>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "cuda/gpu_test.h"
#include "support/forked.h"

// CUDA does not work in a forked child of a process that has used it. The child must get an error, and must not hang or
// compute garbage.

namespace tandem {
namespace {

using test::filled;
using test::is_true_in_a_child;
using test::message_of;

constexpr const char* kWhy = "CUDA was initialised before fork(), and does not work in the child";

bool says_why(const std::string& message) { return message.find(kWhy) != std::string::npos; }

TEST(CudaFork, TheChildSeesNoGpu) {
  TANDEM_NEEDS_GPUS(1);
  EXPECT_TRUE(is_true_in_a_child([] { return !cuda::is_available() && says_why(cuda::why_unavailable()); }));
  EXPECT_TRUE(is_true_in_a_child([] { return says_why(message_of<DeviceError>([] { cuda::device_name(0); })); }));
  EXPECT_TRUE(cuda::is_available()) << "the parent does";
}

TEST(CudaFork, EveryUseInTheChildSaysWhy) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor x = filled(10, 1);
  const cuda::Stream stream;
  cuda::Event event;
  event.record(stream);
  EXPECT_TRUE(
      is_true_in_a_child([] { return says_why(message_of<DeviceError>([] { ones({2}, {.device = "cuda:0"}); })); }));
  EXPECT_TRUE(is_true_in_a_child([&] { return says_why(message_of<DeviceError>([&] { x + 1; })); }));
  EXPECT_TRUE(is_true_in_a_child([&] { return says_why(message_of<DeviceError>([&] { x.to("cpu"); })); }));
  EXPECT_TRUE(is_true_in_a_child([&] { return says_why(message_of<DeviceError>([&] { x.sum().item(); })); }));
  EXPECT_TRUE(is_true_in_a_child([&] { return says_why(message_of<DeviceError>([&] { stream.synchronize(); })); }));
  EXPECT_TRUE(is_true_in_a_child([&] { return says_why(message_of<DeviceError>([&] { stream.query(); })); }));
  EXPECT_TRUE(is_true_in_a_child([&] { return says_why(message_of<DeviceError>([&] { event.synchronize(); })); }));
  EXPECT_TRUE(is_true_in_a_child([] { return says_why(message_of<DeviceError>([] { cuda::synchronize(); })); }));
  EXPECT_TRUE(is_true_in_a_child([] { return says_why(message_of<DeviceError>([] { cuda::Stream(); })); }));
  EXPECT_TRUE(test::all_are(x, 1)) << "the parent goes on";
}

TEST(CudaFork, TheChildComputesOnItsCpuAndLetsTheRestGo) {
  TANDEM_NEEDS_GPUS(1);
  Tensor x = filled(10, 1);
  Tensor pinned = ones({1000}).pin_memory();
  EXPECT_TRUE(is_true_in_a_child([&] {
    x = Tensor();
    pinned = Tensor();
    return (ones({1000}) + 1).sum().item() == 2000;
  }));
  EXPECT_TRUE(test::all_are(x, 1));
  EXPECT_EQ(pinned.sum().item(), 1000);
}

}  // namespace
}  // namespace tandem
