#include <optional>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <tandem/core/cuda_stream.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/graph/capture.h>
#include <tandem/kernels/reduce.h>
#include <tandem/nn/linear.h>
#include <tandem/optim/adam.h>

#include "cuda/gpu_test.h"

// Tests of streams and events, and of memory that several streams use.

namespace tandem {
namespace {

using test::all_are;
using test::filled;
using test::message_of;

constexpr std::int64_t kCount = 5000;

TEST(CudaStream, BelongsToItsGpu) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream stream("cuda:0");
  EXPECT_EQ(stream.device(), Device("cuda:0"));
  EXPECT_NE(stream.handle(), nullptr);
  EXPECT_FALSE(stream == cuda::default_stream());
  EXPECT_TRUE(cuda::current_stream() == cuda::default_stream());
  const cuda::Stream same = stream;
  EXPECT_TRUE(same == stream);
}

TEST(CudaStream, IsRefusedElsewhere) {
  TANDEM_NEEDS_GPUS(1);
  EXPECT_EQ(message_of<DeviceError>([] { cuda::Stream("cpu"); }), "cuda::Stream: 'cpu:0' is not a GPU");
  EXPECT_THROW(cuda::Stream("cuda:60"), DeviceError);
  EXPECT_THROW(cuda::Event("cuda:60"), DeviceError);
  EXPECT_THROW(cuda::synchronize("cpu"), DeviceError);
  EXPECT_THROW(cuda::current_stream("cpu"), DeviceError);
}

TEST(CudaStream, TakesPrioritiesOutOfRange) {
  TANDEM_NEEDS_GPUS(1);
  for (const int priority : {-1000, -1, 0, 1, 1000}) {
    const cuda::Stream stream("cuda:0", priority);
    const cuda::StreamScope scope(stream);
    EXPECT_TRUE(all_are(filled(10, 3) + 1, 4)) << priority;
    int known = 1;
    ASSERT_EQ(cudaStreamGetPriority(stream.handle(), &known), cudaSuccess);
    EXPECT_EQ(stream.priority(), known);
  }
}

TEST(CudaStream, ScopesNestAndEnd) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream a;
  const cuda::Stream b;
  {
    const cuda::StreamScope outer(a);
    EXPECT_TRUE(cuda::current_stream() == a);
    {
      const cuda::StreamScope inner(b);
      EXPECT_TRUE(cuda::current_stream() == b);
      std::thread([] { EXPECT_TRUE(cuda::current_stream() == cuda::default_stream()); }).join();
    }
    EXPECT_TRUE(cuda::current_stream() == a);
  }
  EXPECT_TRUE(cuda::current_stream() == cuda::default_stream());
}

TEST(CudaStream, ScopesOfTwoGpusAreIndependent) {
  TANDEM_NEEDS_GPUS(2);
  const cuda::Stream a("cuda:0");
  const cuda::Stream b("cuda:1");
  const cuda::StreamScope first(a);
  const cuda::StreamScope second(b);
  EXPECT_TRUE(cuda::current_stream("cuda:0") == a);
  EXPECT_TRUE(cuda::current_stream("cuda:1") == b);
  EXPECT_TRUE(all_are(filled(10, 1, "cuda:0").to("cuda:1") + 1, 2));
}

TEST(CudaStream, OutlivesItsHandle) {
  TANDEM_NEEDS_GPUS(1);
  Tensor sum;
  {
    const cuda::Stream stream;
    const cuda::StreamScope scope(stream);
    sum = filled(kCount, 1).sum();
  }
  cuda::synchronize();
  EXPECT_EQ(sum.item(), kCount);
}

// Scratch memory of a kernel follows the order of its stream, even when the stream's owner has released the stream.
TEST(CudaStream, ScratchMemoryOfManyStreams) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor x = filled(100000, 1);
  const Tensor out = zeros({}, {.device = "cuda:0"});
  cuda::synchronize();
  std::thread([&] {
    for (int i = 0; i < 4; ++i) {
      const cuda::Stream stream;
      const cuda::StreamScope scope(stream);
      detail::sum_to(out.raw(), x.raw(), kernels::Accumulate::no);  // allocates no tensor
      stream.synchronize();
      EXPECT_EQ(out.item(), 100000);
      cuda::empty_cache();
    }
  }).join();
}

// Each thread and each captured step counts the blocks of its kernels on its own.
TEST(CudaStream, KernelsWhoseLastBlockJoinsMayComeFromTwoThreadsAndAGraph) {
  TANDEM_NEEDS_GPUS(1);
  const core::DeviceScope on("cuda:0");
  const cuda::Stream stream;
  const cuda::StreamScope scope(stream);
  const Tensor x = filled(300000, 1);
  auto replay = graph::capture([](const Tensor& in) { return in.sum(); });
  for (int i = 0; i < 3; ++i) {
    replay(x);
  }
  ASSERT_EQ(replay.stats().gpu_graphs, 1u);
  cuda::synchronize();
  const auto work = [&](int rows) {
    const core::DeviceScope here("cuda:0");
    const cuda::StreamScope same(stream);
    const Tensor part = x.narrow(0, 0, rows);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(part.sum().item(), rows);
    }
  };
  std::thread first(work, 299999);
  std::thread second(work, 150000);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(replay(x).item(), 300000);
  }
  first.join();
  second.join();
}

TEST(CudaEvent, IsReachedWithTheWorkBeforeIt) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream stream;
  cuda::Event event;
  EXPECT_TRUE(event.query());
  EXPECT_EQ(event.device(), Device("cuda:0"));
  event.synchronize();
  {
    const cuda::StreamScope scope(stream);
    filled(kCount, 1);
  }
  event.record(stream);
  event.synchronize();
  EXPECT_TRUE(event.query());
  stream.synchronize();
  EXPECT_TRUE(stream.query());
}

TEST(CudaEvent, MeasuresTime) {
  TANDEM_NEEDS_GPUS(1);
  cuda::Event begin("cuda:0", true);
  cuda::Event end("cuda:0", true);
  begin.record(cuda::default_stream());
  filled(kCount, 1);
  end.record(cuda::default_stream());
  EXPECT_GE(begin.elapsed_time(end), 0);
  cuda::Event plain;
  plain.record(cuda::default_stream());
  EXPECT_EQ(message_of<ConfigError>([&] { begin.elapsed_time(plain); }),
            "cuda::Event::elapsed_time: needs events made for it, Event(device, true)");
  EXPECT_THROW(begin.elapsed_time(cuda::Event("cuda:0", true)), DeviceError);  // not recorded
}

TEST(CudaEvent, IsOfOneGpu) {
  TANDEM_NEEDS_GPUS(2);
  cuda::Event event("cuda:1");
  EXPECT_EQ(message_of<DeviceError>([&] { event.record(cuda::default_stream("cuda:0")); }),
            "cuda::Event::record: the event is of cuda:1, the stream of cuda:0");
  event.record(cuda::default_stream("cuda:1"));
  cuda::default_stream("cuda:0").wait_event(event);  // across GPUs
  cuda::synchronize("cuda:0");
  EXPECT_TRUE(event.query());
}

TEST(CudaStream, WaitsForAnother) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream a;
  const cuda::Stream b;
  Tensor x = zeros({kCount}, {.device = "cuda:0"});
  cuda::synchronize();
  for (int i = 0; i < 20; ++i) {
    const cuda::Stream& mine = i % 2 == 0 ? a : b;
    mine.wait_stream(i % 2 == 0 ? b : a);
    const cuda::StreamScope scope(mine);
    x.mul_(2);
    x.add_(1);
  }
  b.synchronize();
  EXPECT_TRUE(all_are(x, (1 << 20) - 1));
}

// Freed memory is reused at once, in the order of its stream. The stream must therefore wait for all other users.
TEST(CudaStream, MemoryIsNotGivenAwayWhileAnotherStreamReadsIt) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream side;
  for (const bool made_aside : {false, true}) {
    Tensor result;
    std::optional<cuda::StreamScope> scope;
    if (made_aside) scope.emplace(side);
    const cuda::Stream own = cuda::current_stream();
    const cuda::Stream other = made_aside ? cuda::default_stream() : side;
    Tensor x = filled(kCount, 3);
    {
      const cuda::StreamScope reading(other);
      other.wait_stream(own);
      result = x * 2;
    }
    const void* memory = x.raw().storage->data();
    x = Tensor();
    Tensor y = filled(kCount, 100);
    EXPECT_EQ(y.raw().storage->data(), memory);
    own.synchronize();
    other.synchronize();
    EXPECT_TRUE(all_are(result, 6));
    EXPECT_TRUE(all_are(y, 100));
  }
}

TEST(CudaStream, ViewsAndSavedTensorsCountToo) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream side;
  Tensor w = filled(kCount, 2).requires_grad_();
  Tensor result;
  {
    Tensor x = filled(2 * kCount, 3);
    Tensor y;
    const cuda::StreamScope reading(side);
    side.wait_stream(cuda::default_stream());
    y = (x.slice(0, kCount, 2 * kCount) * w).sum();
    y.backward();
    x = Tensor();
  }
  filled(2 * kCount, 50);
  cuda::synchronize();
  EXPECT_TRUE(all_are(w.grad(), 3));
}

TEST(CudaStream, TensorsAreSharedByThreadsOnTheirOwnStreams) {
  TANDEM_NEEDS_GPUS(1);
  Tensor shared = filled(kCount, 3);
  cuda::synchronize();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&shared, t] {
      for (int i = 0; i < 10; ++i) {
        const cuda::Stream stream;
        const cuda::StreamScope scope(stream);
        EXPECT_TRUE(all_are(shared + t, 3 + t));
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  shared = Tensor();
  EXPECT_TRUE(all_are(filled(kCount, 1), 1));
}

// An optimiser keeps raw addresses. If their memory is freed after a step on another stream, the reuse must wait for
// it.
TEST(CudaStream, OptimizersNoteTheirStream) {
  TANDEM_NEEDS_GPUS(1);
  const auto weights = [](bool aside) {
    Tensor w = filled(kCount, 2).requires_grad_();
    Tensor kept;
    const cuda::Stream side;
    {
      optim::Adam adam(std::vector<Tensor>{w}, {.lr = 0.1});
      for (int i = 0; i < 2; ++i) {
        adam.zero_grad();
        (w * w).sum().backward();
        if (aside) {
          const cuda::StreamScope scope(side);
          side.wait_stream(cuda::default_stream());
          adam.step();
          if (i == 0) cuda::default_stream().wait_stream(side);
        } else {
          adam.step();
        }
      }
    }
    // These reuse the memory of the moments.
    std::vector<Tensor> others;
    for (int i = 0; i < 4; ++i)
      others.push_back(filled(kCount, 1e6));
    cuda::synchronize();
    return w.detach();
  };
  EXPECT_TRUE(test::same_bits(weights(true), weights(false)));
}

}  // namespace
}  // namespace tandem
