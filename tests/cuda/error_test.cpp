#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/cuda/gpu.h>
#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/error.h>
#include <tandem/graph/capture.h>
#include <tandem/kernels/cuda/matmul/planner.h>
#include <tandem/kernels/launch.h>
#include <tandem/nn/linear.h>
#include <tandem/tensor/cuda_allocator.h>

#include "cuda/gpu_test.h"

#if __has_include("emulated_gpu.h")
#include "emulated_gpu.h"
#define TANDEM_CAN_FAIL 1
#endif

// Tests of a GPU that fails, and of one that does not exist.

namespace tandem {
namespace {

using test::all_are;
using test::filled;
using test::message_of;

TEST(CudaError, AGpuThatIsNotThere) {
  TANDEM_NEEDS_GPUS(1);
  const int count = cuda::device_count();
  const std::string name = "cuda:" + std::to_string(count);
  const std::string text = "device '" + name + "': there are " + std::to_string(count) +
                           " GPUs, cuda:0 to cuda:" + std::to_string(count - 1);
  const Tensor x = ones({3});
  nn::Linear linear(3, 3);
  EXPECT_EQ(message_of<DeviceError>([&] { ones({2}, {.device = name}); }), text);
  EXPECT_EQ(message_of<DeviceError>([&] { x.to(name); }), text);
  EXPECT_EQ(message_of<DeviceError>([&] { filled(3, 1).to(name); }), text);
  EXPECT_EQ(message_of<DeviceError>([&] { linear.to(name); }), text);
  EXPECT_EQ(message_of<DeviceError>([&] { const core::DeviceScope scope(name); }), text);
  EXPECT_EQ(message_of<DeviceError>([&] { cuda::Stream stream(name); }), text);
  EXPECT_THROW(cuda::device_name(count), DeviceError);
  EXPECT_THROW(cuda::device_name(-1), DeviceError);
  EXPECT_EQ(linear.parameters()[0].device(), Device("cpu"));
  EXPECT_THROW(cuda::device_properties(count), DeviceError);
  EXPECT_FALSE(cuda::device_name(0).empty());
  EXPECT_EQ(cuda::device_properties(0).name, cuda::device_name(0));
  EXPECT_GT(cuda::device_properties(0).total_memory, 0);
  EXPECT_GT(cuda::device_properties(0).multi_processor_count, 0);
}

TEST(CudaError, AGpuThatThisBuildHasNoCodeForNamesTheOption) {
  TANDEM_NEEDS_GPUS(1);
  const std::string text = message_of<DeviceError>([] { cuda::throw_status(cudaErrorNoKernelImageForDevice, "fill"); });
  EXPECT_EQ(
      text,
      "CUDA: no kernel image is available for execution on the device (cudaErrorNoKernelImageForDevice), found at "
      "fill. This build has no code for this GPU: configure with -DTANDEM_CUDA_ARCHITECTURES=native, or with its "
      "compute capability");
}

#ifdef TANDEM_CAN_FAIL
class CudaSickGpu : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_NEEDS_GPUS(1); }
  void TearDown() override { emulated_gpu::reset(); }
};

TEST_F(CudaSickGpu, NamesTheLastLaunches) {
  const Tensor x = filled(100, 1);
  const Tensor y = filled(100, 1);
  cuda::synchronize();
  emulated_gpu::fail_next(cudaErrorIllegalAddress, "");
  const Tensor z = (x + y).exp().sum();
  const std::string text = message_of<DeviceError>([&] { z.item(); });
  EXPECT_TRUE(text.starts_with("CUDA: an illegal memory access was encountered (cudaErrorIllegalAddress), found at "))
      << text;
  EXPECT_NE(text.find("the last ones this thread launched: "), std::string::npos) << text;
  EXPECT_NE(text.find("pointwise, pointwise, reduce, transfer"), std::string::npos) << text;
  EXPECT_NE(text.find("This process can use the GPU no more"), std::string::npos) << text;
}

TEST_F(CudaSickGpu, EveryLaterCallSaysSo) {
  Tensor x = filled(100, 1);
  cuda::synchronize();
  emulated_gpu::fail_next(cudaErrorLaunchFailure, "");
  x = x + 1;
  EXPECT_THROW(cuda::synchronize(), DeviceError);
  EXPECT_THROW(x.item(), Error);
  EXPECT_THROW(cuda::synchronize(), DeviceError);
  EXPECT_THROW(x + 1, DeviceError);
  EXPECT_THROW(x.to("cpu"), DeviceError);
  EXPECT_THROW(cuda::memory_stats(), DeviceError);
  EXPECT_THROW(cuda::Stream(), DeviceError);
  x = Tensor();  // must not throw
  const Tensor host = ones({3}) + 1;
  EXPECT_TRUE(all_are(host, 2));  // the CPU still works
}

TEST(CudaLockOrderDeathTest, ALockAgainstTheOrderEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  cuda::OrderedMutex<cuda::LockPlace::capture> capture;
  cuda::OrderedMutex<cuda::LockPlace::allocator> allocator;
  {
    const std::scoped_lock first(capture);
    const std::scoped_lock second(allocator);
  }
  const auto lock_both = [](auto& first, auto& second) {
    const std::scoped_lock outer(first);
    const std::scoped_lock inner(second);
  };
  EXPECT_DEATH(lock_both(allocator, capture), "locks the mutex 'capture' while it holds 'allocator'");
  cuda::OrderedMutex<cuda::LockPlace::allocator> beside;
  EXPECT_DEATH(lock_both(allocator, beside), "locks the mutex 'allocator' while it holds 'allocator'");
}

class CudaFullGpu : public CudaSickGpu {
 protected:
  // Three quarters of the GPU's memory.
  static std::vector<Tensor> three_quarters() {
    const auto piece = static_cast<std::int64_t>(cuda::memory_stats().total / 16);
    std::vector<Tensor> pieces;
    for (int i = 0; i < 12; ++i) {
      pieces.push_back(empty({piece}, {.dtype = DType::u8, .device = "cuda:0"}));
    }
    return pieces;
  }
  // The call needs half of the GPU, and tandem's cache holds three quarters.
  void fill_for(const char* call) {
    const std::size_t total = cuda::memory_stats().total;
    three_quarters();
    EXPECT_GE(cuda::memory_stats().cached, total / 4 * 3);
    emulated_gpu::need_memory(call, total / 2);
  }
};

TEST_F(CudaFullGpu, CachedMemoryIsUsedForTheCodeOfAKernel) {
  const Tensor x = filled(100, 1);
  fill_for("cudaLaunchKernel");
  EXPECT_TRUE(all_are(x + 1, 2));
  EXPECT_LT(cuda::memory_stats().cached, std::size_t{1} << 20);
}

TEST_F(CudaFullGpu, CachedMemoryIsUsedForAGraph) {
  auto step = graph::capture([](Tensor x) { return x + 1; });
  const Tensor x = filled(100, 1);
  fill_for("cudaGraphInstantiate");
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(all_are(step(x), 2));
  }
  EXPECT_EQ(step.stats().gpu_graphs, 1u);
}

TEST_F(CudaFullGpu, CachedMemoryIsUsedForALibrary) {
  fill_for("cublasLtCreate");
  kernels::gpu::Planner planner(cuda::gpu(0));
  EXPECT_EQ(cuda::memory_stats().cached, 0u);
}

TEST_F(CudaFullGpu, OtherwiseItIsOutOfMemory) {
  const Tensor x = filled(100, 1);
  const std::vector<Tensor> held = three_quarters();
  emulated_gpu::need_memory("cudaLaunchKernel", cuda::memory_stats().total / 2);
  EXPECT_EQ(message_of<OutOfMemory>([&] { x + 1; }),
            "CUDA: out of memory (cudaErrorMemoryAllocation), from pointwise, for memory that is not a tensor's: the "
            "code of kernels, a graph, a library or page-locked memory. Take a smaller batch; other programs on this "
            "GPU are listed by nvidia-smi");
}

TEST(CudaError, ErrorsThatLoseTheGpuSaySo) {
  TANDEM_NEEDS_GPUS(1);
  constexpr int kContained = 226;
  constexpr int kTensorMemoryLeak = 721;
  for (const int error : {int{cudaErrorIllegalAddress}, int{cudaErrorNvlinkUncorrectable}, int{cudaErrorExternalDevice},
                          int{cudaErrorMpsClientTerminated}, kContained, kTensorMemoryLeak}) {
    const std::string text =
        message_of<DeviceError>([&] { cuda::throw_status(static_cast<cudaError_t>(error), "fill"); });
    EXPECT_NE(text.find("This process can use the GPU no more"), std::string::npos) << text;
  }
}

TEST_F(CudaSickGpu, DuringAGraph) {
  const Tensor x = filled(100, 1);
  emulated_gpu::fail_next(cudaErrorMisalignedAddress, "");
  EXPECT_THROW(
      {
        const Tensor y = x + 1;
        y.to("cpu");
      },
      DeviceError);
}
#endif

}  // namespace
}  // namespace tandem
