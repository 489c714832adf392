#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/memory.h"
#include "support/message.h"

// Logical CPU devices share memory but not tensors, so every rule for several devices applies without a GPU.

namespace tandem {
namespace {

using test::memory_of;
using test::message_of;
using ::testing::StartsWith;
using Floats = std::vector<float>;

TEST(ToDevice, Copies) {
  Tensor x = tensor({1.0, 2.0, 3.0});
  const Device here = x.device();
  const Tensor y = x.to(Device("cpu:1"));
  EXPECT_EQ(y.device(), Device("cpu:1"));
  EXPECT_EQ(x.device(), here);
  EXPECT_NE(memory_of(x), memory_of(y));
  x.fill_(9);
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 2, 3}));
  EXPECT_EQ(y.to(here).to_vector<float>(), (Floats{1, 2, 3}));
}

TEST(ToDevice, IsTheSameTensorWhereItIsAlready) {
  const Tensor x = zeros({3}, {.device = "cpu:2"});
  EXPECT_EQ(memory_of(x.to(Device("cpu:2"))), memory_of(x));
}

TEST(ToDevice, MakesViewsDense) {
  const Tensor x = arange(6).reshape({2, 3}).t();
  const Tensor y = x.to(Device("cpu:1"));
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_EQ(y.to_vector<std::int64_t>(), x.to_vector<std::int64_t>());
}

TEST(ToDevice, SaysWhatIsNotThere) {
  const Tensor x = zeros({3});
  EXPECT_EQ(message_of<DeviceError>([&] { x.to(Device("cpu:99")); }),
            "device 'cpu:99': there are 8 logical CPU devices (cpu:0 to cpu:7); set TANDEM_CPU_DEVICES for more");
  EXPECT_EQ(message_of<DeviceError>([&] { x.to(Device("cuda:64")); }), test::gpu_refusal("cuda:64"));
  EXPECT_EQ(message_of<DeviceError>([&] { x.to("gpu"); }),
            "device 'gpu' is not known; write 'cpu', 'cpu:1', 'cuda' or 'cuda:0'");
}

TEST(Mixing, TwoDevicesInOneOpIsAnError) {
  const Tensor a = zeros({2, 3});
  const Tensor b = zeros({2, 3}, {.device = "cpu:1"});
  EXPECT_EQ(
      message_of<DeviceError>([&] { a + b; }),
      "add: expected all tensors to be on the same device, got [2, 3] on cpu:0 and [2, 3] on cpu:1; move one with "
      ".to(device)");
  EXPECT_THROW(a * b, DeviceError);
  EXPECT_THROW(a.matmul(b.t()), DeviceError);
  EXPECT_THROW(Tensor(a).add_(b), DeviceError);
  EXPECT_THROW(cat({a, b}), DeviceError);
  EXPECT_THAT(message_of<DeviceError>([&] { stack({a, b}); }), StartsWith("stack: "));
  EXPECT_THROW(mse_loss(a, b), DeviceError);
  EXPECT_THROW(linear(a, b), DeviceError);
  EXPECT_THROW(cross_entropy(a, zeros({2}, {.dtype = DType::i64, .device = "cpu:1"})), DeviceError);
  EXPECT_THROW(a.index_select(0, zeros({1}, {.dtype = DType::i64, .device = "cpu:1"})), DeviceError);
}

TEST(Mixing, TwoTypesInAProductOfMatricesIsAnError) {
  EXPECT_EQ(message_of<DTypeError>([] { zeros({2, 2}).matmul(zeros({2, 2}, {.dtype = DType::f64})); }),
            "matmul: expected one dtype, got f32 [2, 2] and f64 [2, 2]; convert one with .to(DType::f64)");
}

TEST(Mixing, CopyInPlaceCrossesDevicesAndTypes) {
  Tensor target = zeros({2, 2}, {.device = "cpu:1"});
  target.copy_(tensor({3, 4}));
  EXPECT_EQ(target.to_vector<float>(), (Floats{3, 4, 3, 4}));
  EXPECT_EQ(target.device(), Device("cpu:1"));
}

TEST(Results, StayOnTheirDevice) {
  const Tensor x = ones({2, 2}, {.device = "cpu:3"});
  for (const Tensor& y : {x + x, x * 2.0, x.exp(), x.sum(), x.matmul(x), x.t(), x[0], x.clone(), x.softmax(1),
                          x.argmax(), cat({x, x}), x.to(DType::f64), mse_loss(x, x)}) {
    EXPECT_EQ(y.device(), Device("cpu:3"));
  }
}

TEST(DeviceScope, PlacesNewTensorsAndEnds) {
  const Device before = zeros({1}).device();
  {
    const core::DeviceScope outer("cpu:1");
    EXPECT_EQ(rand({2}).device(), Device("cpu:1"));
    {
      const core::DeviceScope inner("cpu:4");
      EXPECT_EQ(arange(3).device(), Device("cpu:4"));
    }
    EXPECT_EQ(full({}, 1).device(), Device("cpu:1"));
  }
  EXPECT_EQ(zeros({1}).device(), before);
  EXPECT_THROW(core::DeviceScope("cpu:99"), DeviceError);
  EXPECT_EQ(zeros({1}).device(), before);
}

TEST(Gradients, CrossDevicesAndComeBack) {
  Tensor x = tensor({1.0, 2.0}).requires_grad_();
  const Tensor y = (x * 3.0).to(Device("cpu:1"));
  (y * y).sum().backward();
  EXPECT_EQ(x.grad().device(), x.device());
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{18, 36}));
}

}  // namespace
}  // namespace tandem
