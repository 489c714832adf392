#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/graph/capture.h>
#include <tandem/nn/container.h>
#include <tandem/nn/loss.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/lr_scheduler.h>
#include <tandem/tensor/cpu_allocator.h>
#include <tandem/tensor/factories.h>

#include "support/count_news.h"
#include "support/gpu.h"

namespace tandem {
namespace {

using test::news;

TEST(CapturedMemory, AReplayedStepAllocatesNothing) {
  TANDEM_SKIP_ON_GPU("it counts what an emulated GPU allocates");
  const nn::Sequential model(nn::Linear(20, 64), nn::ReLU(), nn::Dropout(0.1), nn::Linear(64, 5));
  const std::vector<Tensor> parameters = model.parameters();
  optim::Adam adam(parameters);
  optim::ExponentialLR schedule(adam, {.gamma = 0.99});
  auto step = graph::capture([&](const Tensor& x, const Tensor& y) {
    adam.zero_grad();
    Tensor loss = nn::cross_entropy(model(x), y);
    loss.backward();
    optim::clip_grad_norm_(parameters, 1.0);
    adam.step();
    schedule.step();
    return loss;
  });
  const Tensor x = randn({32, 20});
  const Tensor y = randint(0, 5, {32});
  for (int i = 0; i < 5; ++i)
    step(x, y);
  const std::uint64_t replayed = step.stats().replayed;
  const MemoryStats before = cpu_memory_stats();
  const std::uint64_t news_before = news;
  for (int i = 0; i < 50; ++i)
    step(x, y);
  EXPECT_EQ(news - news_before, 0u);
  EXPECT_EQ(cpu_memory_stats().system_allocations - before.system_allocations, 0u);
  EXPECT_EQ(step.stats().replayed - replayed, 50u);
}

TEST(CapturedMemory, TheArenaIsSmallerThanItsTensorsTogether) {
  TANDEM_SKIP_ON_GPU("sizes are rounded up to more on a GPU");
  auto step = graph::capture([](Tensor x) {
    for (int i = 0; i < 20; ++i)
      x = x * 2 + 1;
    return x;
  });
  for (int i = 0; i < 3; ++i)
    step(ones({1000}));
  EXPECT_EQ(step.stats().temporary_bytes, 40u * 4032);
  EXPECT_LE(step.stats().arena_bytes, 3u * 4032);
}

TEST(CapturedMemory, ForgottenCapturesGiveTheirMemoryBack) {
  const auto held = [] { return cpu_memory_stats().system_bytes; };
  const auto work = [] {
    auto step = graph::capture([](const Tensor& x) { return x.exp() * 2; }, {.max_captures = 2});
    for (std::int64_t size = 1; size <= 6; ++size) {
      for (int i = 0; i < 3; ++i)
        step(ones({size * 100'000}));
    }
  };
  work();
  empty_cpu_cache();
  const std::size_t before = held();
  work();
  empty_cpu_cache();
  EXPECT_EQ(held(), before);
}

}  // namespace
}  // namespace tandem
