#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/thread_state.h>
#include <tandem/nn/container.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/loss.h>
#include <tandem/optim/adam.h>
#include <tandem/tensor/cuda_allocator.h>

#include "cuda/gpu_test.h"

namespace tandem {
namespace {

using core::MemoryUse;
using test::all_are;
using test::filled;
using test::message_of;

std::size_t by_use(MemoryUse use) { return cuda::memory_stats().by_use[static_cast<std::size_t>(use)]; }

TEST(CudaAllocator, GivesOutAgainWhatWasFreedOnTheStream) {
  TANDEM_NEEDS_GPUS(1);
  cuda::empty_cache();
  Tensor a = filled(1000, 1);
  const void* memory = a.raw().storage->data();
  const auto before = cuda::memory_stats();
  a = Tensor();
  EXPECT_EQ(cuda::memory_stats().cached, before.cached + 4096);
  const Tensor b = filled(1001, 2);  // of the same size class
  EXPECT_EQ(b.raw().storage->data(), memory);
  EXPECT_EQ(cuda::memory_stats().allocations, before.allocations);
  EXPECT_EQ(cuda::memory_stats().in_use, before.in_use);
}

TEST(CudaAllocator, KeepsStreamsApart) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream side;
  Tensor a = filled(1000, 1);
  const void* memory = a.raw().storage->data();
  a = Tensor();
  {
    const cuda::StreamScope scope(side);
    EXPECT_NE(filled(1000, 2).raw().storage->data(), memory);
  }
  EXPECT_EQ(filled(1000, 3).raw().storage->data(), memory);
}

TEST(CudaAllocator, MemoryIsAlignedAndApart) {
  TANDEM_NEEDS_GPUS(1);
  std::vector<Tensor> tensors;
  for (const std::int64_t count : {0, 1, 63, 64, 65, 255, 256, 257, 300, 1000, 5000, 70000}) {
    tensors.push_back(filled(count, static_cast<double>(count)));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensors.back().raw().storage->data()) % 256, 0u) << count;
  }
  for (const Tensor& tensor : tensors) {
    EXPECT_TRUE(all_are(tensor, static_cast<double>(tensor.numel())));
  }
}

TEST(CudaAllocator, CountsThePeak) {
  TANDEM_NEEDS_GPUS(1);
  cuda::reset_peak_memory_stats();
  const std::size_t before = cuda::memory_stats().in_use;
  {
    const Tensor a = filled(1 << 20, 1);
    const Tensor b = filled(1 << 20, 1);
  }
  EXPECT_EQ(cuda::memory_stats().in_use, before);
  EXPECT_EQ(cuda::memory_stats().peak, before + (std::size_t{8} << 20));
  cuda::reset_peak_memory_stats();
  EXPECT_EQ(cuda::memory_stats().peak, before);
}

TEST(CudaAllocator, EmptyCacheGivesMemoryBack) {
  TANDEM_NEEDS_GPUS(1);
  cuda::empty_cache();
  const auto before = cuda::memory_stats();
  EXPECT_EQ(before.cached, 0u);
  filled(8 << 20, 1);
  {
    const cuda::Stream side;
    const cuda::StreamScope scope(side);
    filled(8 << 20, 1);
  }
  EXPECT_EQ(cuda::memory_stats().cached, std::size_t{64} << 20);
  const std::size_t used = cuda::memory_stats().free;
  cuda::empty_cache();
  EXPECT_EQ(cuda::memory_stats().cached, 0u);
  // The driver takes and returns memory in larger pieces, and other programs may use the GPU too.
  EXPECT_GE(cuda::memory_stats().free, used + (std::size_t{32} << 20));
}

TEST(CudaAllocator, ChecksTheDevice) {
  TANDEM_NEEDS_GPUS(1);
  EXPECT_EQ(message_of<DeviceError>([] { cuda::memory_stats("cpu"); }), "cuda::memory_stats: 'cpu:0' is not a GPU");
  EXPECT_THROW(cuda::empty_cache("cuda:50"), DeviceError);
  EXPECT_THROW(cuda::reset_peak_memory_stats("cuda:50"), DeviceError);
}

TEST(CudaAllocator, SaysWhoHoldsTheMemory) {
  TANDEM_NEEDS_GPUS(1);
  const std::size_t total = cuda::memory_stats().total;
  const auto parts = static_cast<std::int64_t>(total / 4 / sizeof(float));
  const Tensor held = empty({parts}, {.device = "cuda:0"});
  const std::string text = message_of<OutOfMemory>([&] { empty({4 * parts}, {.device = "cuda:0"}); });
  EXPECT_TRUE(text.starts_with("cuda:0 is out of memory: asked for ")) << text;
  EXPECT_NE(text.find("parameters 0 B, gradients 0 B, optimizer 0 B"), std::string::npos) << text;
  EXPECT_NE(text.find("the largest are 1 x "), std::string::npos) << text;
  EXPECT_TRUE(all_are(filled(100, 1), 1));  // the thread can go on
}

TEST(CudaAllocator, AbsurdSizesAreOutOfMemory) {
  TANDEM_NEEDS_GPUS(1);
  EXPECT_THROW(empty({std::int64_t{1} << 60}, {.device = "cuda:0"}), OutOfMemory);
  EXPECT_THROW(empty({std::int64_t{1} << 45}, {.device = "cuda:0"}), OutOfMemory);
  EXPECT_THROW(empty({std::int64_t{1} << 62, 8}, {.device = "cuda:0"}), Error);
  EXPECT_TRUE(all_are(filled(100, 1), 1));
}

// Cached memory, also that of other streams, is released before a request fails.
TEST(CudaAllocator, CachedMemoryIsUsedBeforeItRunsOut) {
  TANDEM_NEEDS_GPUS(1);
  cuda::empty_cache();
  const auto part = static_cast<std::int64_t>(cuda::memory_stats().free * 3 / 8 / sizeof(float));
  const cuda::Stream side;
  {
    const cuda::StreamScope scope(side);
    empty({part}, {.device = "cuda:0"});
  }
  empty({part}, {.device = "cuda:0"});
  const Tensor large = empty({part / 3 * 5}, {.device = "cuda:0"});
  EXPECT_EQ(cuda::memory_stats().cached, 0u);
}

TEST(CudaAllocator, ScratchMemoryOfKernelsMayTakeWhatIsCached) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream side;  // has no scratch memory yet
  const Tensor x = filled(100000, 1);
  Tensor out = zeros({}, {.device = "cuda:0"});
  cuda::synchronize();
  cuda::empty_cache();
  const auto most = static_cast<std::int64_t>(cuda::memory_stats().free) & ~((std::int64_t{1} << 23) - 1);
  {
    std::vector<Tensor> all;  // fills the GPU piece by piece
    for (std::int64_t piece = most; piece >= 1 << 16; piece /= 2) {
      try {
        all.push_back(empty({piece}, {.dtype = DType::u8, .device = "cuda:0"}));
      } catch (const OutOfMemory&) {
      }
    }
  }
  const cuda::StreamScope scope(side);
  detail::sum_to(out.raw(), x.raw(), kernels::Accumulate::no);
  EXPECT_EQ(out.item(), 100000);
}

TEST(CudaAllocator, ASmallerBatchThenTrains) {
  TANDEM_NEEDS_GPUS(1);
  const core::DeviceScope on("cuda:0");
  nn::Sequential model(nn::Linear(64, 512), nn::ReLU(), nn::Linear(512, 10));
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  const auto step = [&](std::int64_t batch) {
    adam.zero_grad();
    Tensor loss = nn::cross_entropy(model(ones({batch, 64})), zeros({batch}, {.dtype = DType::i64}));
    loss.backward();
    adam.step();
    return loss.item();
  };
  const double first = step(8);
  const auto most = static_cast<std::int64_t>(cuda::memory_stats().total / 64 / sizeof(float));
  const Tensor ballast = empty({static_cast<std::int64_t>(cuda::memory_stats().free / 2)}, {.dtype = DType::u8});
  std::string text = message_of<OutOfMemory>([&] { step(most); });
  EXPECT_NE(text.find("is out of memory"), std::string::npos) << text;
  EXPECT_LT(step(8), first);
}

TEST(CudaAllocator, CountsByUse) {
  TANDEM_NEEDS_GPUS(1);
  const core::DeviceScope on("cuda:0");
  const auto before = cuda::memory_stats().by_use;
  {
    nn::Sequential model(nn::Linear(64, 64, {.bias = false}));
    EXPECT_EQ(by_use(MemoryUse::parameters), before[1] + 16384);  // also without an optimiser
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    EXPECT_EQ(by_use(MemoryUse::parameters), before[1] + 16384);
    EXPECT_EQ(by_use(MemoryUse::gradients), before[2] + 16384);
    model(ones({8, 64})).sum().backward();
    adam.step();
    EXPECT_EQ(by_use(MemoryUse::gradients), before[2] + 16384);
    EXPECT_EQ(by_use(MemoryUse::optimizer), before[3] + 2 * 16384);
    adam.load_state_dict(adam.state_dict());
    EXPECT_EQ(by_use(MemoryUse::optimizer), before[3] + 2 * 16384);
    EXPECT_EQ(by_use(MemoryUse::other), before[0]);
  }
  EXPECT_EQ(cuda::memory_stats().by_use, before);
  {
    Tensor w = ones({4096}).requires_grad_();
    (w * 2).sum().backward();
    EXPECT_EQ(by_use(MemoryUse::gradients), before[2] + 16384);  // also without a store
  }
  nn::Linear linear(64, 64, {.bias = false, .device = "cpu"});
  linear.to("cuda:0");
  EXPECT_EQ(by_use(MemoryUse::parameters), before[1] + 16384);
}

TEST(CudaAllocator, TensorsOutliveTheirThread) {
  TANDEM_NEEDS_GPUS(1);
  std::vector<Tensor> made(8);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < made.size(); ++t) {
    threads.emplace_back([&made, t] {
      const cuda::Stream stream;
      const cuda::StreamScope scope(stream);
      for (int i = 0; i < 5; ++i)
        made[t] = filled(1000 + i, static_cast<double>(t)) + filled(1000 + i, 1).sum() * 0;
      stream.synchronize();
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (std::size_t t = 0; t < made.size(); ++t)
    EXPECT_TRUE(all_are(made[t], static_cast<double>(t)));
  const auto before = cuda::memory_stats();
  std::thread([&] { made.clear(); }).join();
  EXPECT_LT(cuda::memory_stats().in_use, before.in_use);
  cuda::empty_cache();
  EXPECT_EQ(cuda::memory_stats().cached, 0u);
}

}  // namespace
}  // namespace tandem
