#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <tandem/core/cuda/gpu.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/core/error.h>
#include <tandem/graph/capture.h>
#include <tandem/kernels/cuda/matmul/planner.h>
#include <tandem/kernels/cuda/tuner.h>
#include <tandem/tensor/cuda_allocator.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/tensor.h>

#include "cuda/matmul_case.h"

// Tests of choices of matrix products by measurement.

namespace tandem::kernels {
namespace {

using gpu::Plan;
using gpu::Planner;

TEST_F(MatmulTuning, MeasuresKernelsAndTimes) {
  Case one(Product(64, 64, 8));
  const Queue queue(test::gpu());
  gpu::Tuner tuner(queue, {64 * 64 * sizeof(float), 256}, 0);
  const auto finish = [&](int times) {
    return tuner.measure([&](const Queue& own, void* out) {
      Matmul product = one.product.on(nullptr, nullptr, one.bias.data(), static_cast<float*>(out));
      product.after.bias = one.bias.data();
      for (int i = 0; i < times; ++i) {
        gpu::finish_product(own, product, false);
      }
      return true;
    });
  };
  const auto none = finish(0);
  const auto few = finish(2);
  const auto many = finish(60);
  ASSERT_TRUE(none && few && many);
  EXPECT_EQ(none->kernels, 0);
  EXPECT_EQ(few->kernels, 2);
  EXPECT_EQ(many->kernels, 60);
  EXPECT_GT(few->time_us, 0);
  EXPECT_GT(many->time_us, few->time_us);
  EXPECT_FALSE(tuner.measure([](const Queue&, void*) { return false; }));
  int runs = 0;  // the library refuses during a capture
  EXPECT_FALSE(tuner.measure([&](const Queue&, void*) { return ++runs == 1; }));
  EXPECT_EQ(finish(3)->kernels, 3);
}

TEST_F(MatmulTuning, ChoosesAndRemembers) {
  Case one(Product(17, 33, 5));
  one.run();
  EXPECT_EQ(one.out.download(), one.expected());
  const auto record = record_of(one.product.key(Fused::nothing));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->gpu, cuda::device_name(0));
  EXPECT_EQ(record->version, cublasLtGetVersion());
  EXPECT_FALSE(record->separate);
  EXPECT_GT(record->time_us, 0);
  const Queue queue(test::gpu());
  const Plan* plan = Planner::of(queue).find(queue, one.product.key(Fused::nothing), one.arguments());
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->kernels, record->kernels);
  EXPECT_EQ(plan->time_us, record->time_us);
  EXPECT_EQ((std::bit_cast<std::array<std::uint64_t, 8>>(plan->algorithm)), record->algorithm);
  gpu::Tuner tuner(queue, {17 * 33 * sizeof(float), record->key.d_align}, plan->workspace);
  const auto again = tuner.measure([&](const Queue& own, void* out) {
    EXPECT_TRUE(Planner::of(queue).start(own, record->key, {one.a.data(), one.b.data(), out}));
    return true;
  });
  EXPECT_EQ(again->kernels, plan->kernels);
}

// Splitting can only lose here: it writes the result twice, in f32, for two numbers per sum.
TEST_F(MatmulTuning, TakesTheFastest) {
  Case one(Product(320, 256, 2));
  one.run();
  EXPECT_EQ(one.out.download(), one.expected());
  EXPECT_EQ(record_of(one.product.key(Fused::nothing))->kernels, 1);
}

TEST_F(MatmulTuning, DoesNotTouchTheResult) {
  Product product(19, 21, 23);
  product.gap = 5;
  product.accumulate = true;
  Case one(product);
  const Queue queue(test::gpu());
  const PlanKey key = product.key(Fused::nothing);
  EXPECT_GT(Planner::of(queue).find(queue, key, one.arguments())->kernels, 0);
  EXPECT_EQ(one.out.download(), one.before);
  one.run();
  EXPECT_EQ(one.out.download(), one.expected());
}

// The operands may still be in the stream's queue.
TEST_F(MatmulTuning, ComesBehindWhatTheStreamWasGiven) {
  Case one(Product(18, 22, 23));
  Case two(Product(18, 22, 24));
  one.run();
  for (int i = 0; i < 20; ++i) {
    one.run();
  }
  const cuda::Event given = cuda::current_stream().record_event();
  const Queue queue(test::gpu());
  const PlanKey key = two.product.key(Fused::nothing);
  EXPECT_GT(Planner::of(queue).find(queue, key, two.arguments())->kernels, 0);
  EXPECT_TRUE(given.query());
}

TEST_F(MatmulTuning, GivesItsMemoryBack) {
  Case one(Product(20, 22, 24));
  one.run();
  cuda::synchronize();
  const auto used = [] {
    cudaMemPool_t pool = nullptr;
    std::uint64_t bytes = 0;
    cuda::require(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
    cuda::require(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &bytes), "cudaMemPoolGetAttribute");
    return bytes;
  };
  const std::uint64_t before = used();
  Case two(Product(20, 22, 25));
  two.run();
  cuda::synchronize();
  EXPECT_LT(used(), before + (std::uint64_t{1} << 20));  // measuring takes more than 128 MiB
}

TEST_F(MatmulTuning, AlsoTriesWhatFollowsByItself) {
  for (const bool relu : {false, true}) {
    Product product(31, 65, relu ? 8 : 9);
    product.with_bias = true;
    product.relu = relu;  // never fused for f32
    Case one(product);
    const Queue queue(test::gpu());
    const Plan* plan = Planner::of(queue).find(queue, product.key(Fused::bias), one.arguments());
    EXPECT_EQ(one.out.download(), one.before);
    one.run();
    EXPECT_EQ(one.out.download(), one.expected());
    const auto fused = record_of(product.key(Fused::bias));
    const auto alone = record_of(product.key(Fused::nothing));
    ASSERT_TRUE(fused && alone);
    EXPECT_EQ(fused->separate, (fused->algorithm == std::array<std::uint64_t, 8>()));
    if (fused->separate) {
      EXPECT_EQ(fused->kernels, alone->kernels + 1);
    }
    EXPECT_EQ(plan == nullptr, fused->separate);
  }
}

TEST_F(MatmulTuning, BeginsWithWhatWasNotMeasured) {
  Case one(Product(23, 29, 31));
  const PlanKey key = one.product.key(Fused::nothing);
  const Queue queue(test::gpu());
  cuda::set_kernel_tuning(false);
  const Plan* first = Planner::of(queue).find(queue, key, one.arguments());
  EXPECT_EQ(first->kernels, 0);
  EXPECT_EQ(Planner::of(queue).find(queue, key, one.arguments()), first);
  EXPECT_FALSE(record_of(key));
  cuda::set_kernel_tuning(true);
  const Plan* measured = Planner::of(queue).find(queue, key, one.arguments());
  EXPECT_GT(measured->kernels, 0);
  EXPECT_EQ(first->kernels, 0);  // still present: another thread may be about to start it
  cuda::set_kernel_tuning(false);
  EXPECT_EQ(Planner::of(queue).find(queue, key, one.arguments()), measured);
}

TEST_F(MatmulTuning, DoesWithoutMemory) {
  Case one(Product(1024, 4096, 4));  // a result of 16 MiB
  const Queue queue(test::gpu());
  const PlanKey key = one.product.key(Fused::nothing);
  std::vector<Tensor> held;  // all but less than 4 MiB
  for (auto piece = static_cast<std::int64_t>(cuda::memory_stats().free); piece >= 1 << 21; piece /= 2) {
    try {
      held.push_back(empty({piece}, {.dtype = DType::u8, .device = "cuda:0"}));
    } catch (const OutOfMemory&) {
    }
  }
  const Plan* plan = Planner::of(queue).find(queue, key, one.arguments());
  held.clear();
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->kernels, 0);
  EXPECT_EQ(Planner::of(queue).find(queue, key, one.arguments()), plan);  // not tried again
  EXPECT_FALSE(record_of(key));
  EXPECT_EQ(one.out.download(), one.before);
}

TEST_F(MatmulTuning, WaitsForTheCaptureToEnd) {
  Case one(Product(37, 41, 43));
  const PlanKey key = one.product.key(Fused::nothing);
  const cuda::Stream stream;
  const cuda::StreamScope scope(stream);
  {
    const Queue queue(test::gpu());
    queue.workspace(std::size_t{1} << 20);  // no allocation during a capture
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cuda::require(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  one.run();
  cuda::require(cudaStreamEndCapture(stream.handle(), &graph), "cudaStreamEndCapture");
  EXPECT_FALSE(record_of(key));
  cuda::require(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  cuda::require(cudaGraphLaunch(executable, stream.handle()), "cudaGraphLaunch");
  EXPECT_EQ(one.out.download(), one.expected());
  one.run();
  EXPECT_TRUE(record_of(key));
  EXPECT_EQ(one.out.download(), one.expected());
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

// A capture on another stream, in the mode that restricts this thread the most, continues.
TEST_F(MatmulTuning, LeavesOtherCapturesAlone) {
  Case one(Product(38, 41, 43));
  const cuda::Stream other;
  cudaGraph_t graph = nullptr;
  cuda::require(cudaStreamBeginCapture(other.handle(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  one.run();
  cuda::require(cudaStreamEndCapture(other.handle(), &graph), "cudaStreamEndCapture");
  EXPECT_TRUE(record_of(one.product.key(Fused::nothing)));
  EXPECT_EQ(one.out.download(), one.expected());
  cudaGraphDestroy(graph);
}

TEST_F(MatmulTuning, ACapturedStepHasMeasuredProducts) {
  const Device device("cuda:0");
  const auto tensor = [&](std::int64_t rows, std::int64_t columns, int seed) {
    return from_data(numbers(rows * columns, seed), {rows, columns}).to(device);
  };
  const Tensor weight = tensor(47, 53, 2);
  auto step = graph::capture([&](Tensor x) { return x.matmul(weight).relu(); });
  for (int i = 0; i < 5; ++i) {
    const Tensor x = tensor(45, 47, i);
    const Tensor expected = x.to(Device("cpu")).matmul(weight.to(Device("cpu"))).relu();
    const Tensor result = step(x).to(Device("cpu"));
    EXPECT_EQ(result.to_vector<float>(), expected.to_vector<float>());
  }
  EXPECT_EQ(step.stats().gpu_graphs, 1u);
  EXPECT_GT(step.stats().replayed, 0u);
  const std::vector<PlanRecord> all = records();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const PlanRecord& r) { return r.key.m == 45 && r.key.n == 53; }));
}

// One thread measures, for which it captures graphs; the other holds the mutex of captures and needs a plan.
TEST_F(MatmulTuning, GoesOnBesideAnotherThreadsCapture) {
  Case measured(Product(39, 41, 43));
  Case captured(Product(40, 41, 43));
  const cuda::Stream stream;
  const cuda::StreamScope scope(stream);
  {
    const Queue queue(test::gpu());
    queue.workspace(std::size_t{1} << 20);  // no allocation during a capture
  }
  cudaGraph_t graph = nullptr;
  std::thread other;
  {
    const std::lock_guard lock(cuda::capture_mutex());
    cuda::require(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    other = std::thread([&] {
      const cuda::Stream own;
      const cuda::StreamScope on_own(own);
      measured.run();
      EXPECT_EQ(measured.out.download(), measured.expected());
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the other one waits for the mutex by now
    captured.run();
    cuda::require(cudaStreamEndCapture(stream.handle(), &graph), "cudaStreamEndCapture");
  }
  other.join();
  EXPECT_TRUE(record_of(measured.product.key(Fused::nothing)));
  EXPECT_FALSE(record_of(captured.product.key(Fused::nothing)));
  cudaGraphDestroy(graph);
}

TEST_F(MatmulTuning, ManyThreadsMayAskAtOnce) {
  constexpr int kThreads = 4;
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const cuda::Stream stream;
      const cuda::StreamScope scope(stream);
      for (std::int64_t k = 3; k < 6; ++k) {
        Case one(Product(24, 25, k));
        one.run();
        right += one.out.download() == one.expected() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(right, 3 * kThreads);
}

}  // namespace
}  // namespace tandem::kernels
