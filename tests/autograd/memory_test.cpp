#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/thread_state.h>
#include <tandem/nn/container.h>
#include <tandem/nn/functional.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/cpu_allocator.h>
#include <tandem/tensor/cuda_allocator.h>
#include <tandem/tensor/factories.h>

#include "leaves.h"

namespace tandem {
namespace {

constexpr bool kCached =
#if defined(__SANITIZE_ADDRESS__)
    false;
#else
    true;
#endif

// Memory requested from the system, or from the driver of the GPU on which the test runs.
struct Asked {
  std::uint64_t times;
  std::size_t bytes;
};
Asked asked() {
  if (const Device device = core::thread_state().device; device.type == DeviceType::cuda) {
    const cuda::MemoryStats stats = cuda::memory_stats(device);
    return {stats.allocations, stats.in_use + stats.cached};
  }
  const MemoryStats stats = cpu_memory_stats();
  return {stats.system_allocations, stats.system_bytes};
}

// Memory in use after all cached memory was returned.
std::size_t held() {
  if (const Device device = core::thread_state().device; device.type == DeviceType::cuda) {
    cuda::empty_cache(device);
  } else {
    empty_cpu_cache();
  }
  return asked().bytes;
}

nn::Sequential make_mlp() {
  return nn::Sequential(nn::Linear(20, 32), nn::ReLU(), nn::Linear(32, 16), nn::ReLU(), nn::Linear(16, 5));
}

template <class Step>
void expect_no_system_allocations(Step step) {
  if (!kCached) {
    GTEST_SKIP() << "the address sanitizer's build caches nothing";
  }
  for (int i = 0; i < 5; ++i) {
    step();
  }
  const Asked before = asked();
  for (int i = 0; i < 50; ++i) {
    step();
  }
  const Asked after = asked();
  EXPECT_EQ(after.times - before.times, 0u);
  EXPECT_EQ(after.bytes, before.bytes);
}

TEST(Memory, AWarmTrainingStepAsksTheSystemForNothing) {
  const nn::Sequential model = make_mlp();
  optim::Adam adam(model.parameters());
  const Tensor x = randn({64, 20});
  const Tensor y = randint(0, 5, {64});
  expect_no_system_allocations([&] {
    adam.zero_grad();
    const Tensor loss = nn::cross_entropy(model(x), y);
    loss.backward();
    optim::clip_grad_norm_(model.parameters(), 1.0);
    adam.step();
  });
}

TEST(Memory, AWarmEvaluationAsksTheSystemForNothing) {
  const nn::Sequential model = make_mlp();
  const Tensor x = randn({64, 20});
  expect_no_system_allocations([&] {
    const NoGradGuard no_grad;
    model(x).softmax(1).argmax(1);
  });
}

TEST(Memory, AFailedBackwardKeepsNothing) {
  Tensor w = randn({64, 64}, {.requires_grad = true});
  expect_no_system_allocations([&] {
    const Tensor loss = (w * w).sum();
    {
      const NoGradGuard no_grad;
      w.mul_(1.0);
    }
    EXPECT_THROW(loss.backward(), AutogradError);
  });
}

TEST(Memory, GraphsThatAreThrownAwayKeepNothing) {
  const Tensor w = randn({64, 64}, {.requires_grad = true});
  expect_no_system_allocations([&] {
    Tensor y = w;
    for (int i = 0; i < 10; ++i) {
      y = matmul(y, w) * 0.1 + y;
    }
  });
}

// Earlier values of y are released with the graph that backward() used up: only w, its gradient and y remain.
TEST(Memory, BackwardLetsGoOfWhatWasSaved) {
  if (!kCached) {
    GTEST_SKIP() << "the address sanitizer's build caches nothing";
  }
  constexpr std::int64_t kLarge = 1 << 20;  // blocks of this size are shared by all threads
  const Tensor w = ones({kLarge}, {.requires_grad = true});
  const std::size_t before = held();
  Tensor y = w;
  for (int i = 0; i < 10; ++i) {
    y = y * y;
  }
  const Tensor loss = y.sum();
  EXPECT_GE(held() - before, 10u * 4 * kLarge);
  loss.backward();
  EXPECT_LE(held() - before, 3u * 4 * kLarge) << "the gradient, y, and change";
}

// The peak of the memory that `work` takes from the system; freed blocks of this size stay cached.
template <class Work>
std::size_t bytes_for(Work work) {
  const std::size_t before = held();
  work();
  return asked().bytes - before;
}

TEST(Memory, ReductionsOfNarrowTypesMakeNoWideCopy) {
  if (!kCached) {
    GTEST_SKIP() << "the address sanitizer's build caches nothing";
  }
  constexpr std::int64_t kCount = 1 << 24;
  constexpr std::size_t kLittle = 1 << 20;
  for (const DType dtype : {DType::u8, DType::boolean, DType::i32}) {
    const Tensor x = ones({kCount / 4, 4}, {.dtype = dtype});
    EXPECT_LE(bytes_for([&] { EXPECT_EQ(x.sum().item(), kCount); }), kLittle) << dtype;
    EXPECT_LE(bytes_for([&] { EXPECT_EQ(x.sum(0)[3].item(), kCount / 4); }), kLittle) << dtype;
    EXPECT_LE(bytes_for([&] { EXPECT_TRUE(x.any().item<bool>()); }), kLittle) << dtype;
    EXPECT_LE(bytes_for([&] { EXPECT_TRUE(x.all().item<bool>()); }), kLittle) << dtype;
    EXPECT_LE(bytes_for([&] { EXPECT_FALSE((x == 0).any().item<bool>()); }), 2 * kCount) << "the comparison's result";
    const std::size_t sums = bytes_for([&] { EXPECT_EQ(x.cumsum(0)[-1][0].item(), kCount / 4); });
    EXPECT_LE(sums, 8 * kCount + 8 * kCount / 4 + kLittle) << dtype << ": the result and nothing else";
  }
}

}  // namespace
}  // namespace tandem
