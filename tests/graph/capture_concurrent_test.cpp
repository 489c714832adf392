#include <atomic>
#include <cstdint>
#include <latch>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_state.h>
#include <tandem/graph/capture.h>
#include <tandem/nn/container.h>
#include <tandem/nn/stateless.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

// Captured steps that several threads call, or that take all batches of a loader.

namespace tandem {
namespace {

TEST(CapturedConcurrently, EachThreadGetsItsOwnResults) {
  constexpr int kThreads = 4;
  manual_seed(7);
  const nn::Sequential model(nn::Linear(6, 32), nn::ReLU(), nn::Linear(32, 3));
  auto predict = graph::capture([&](const Tensor& x) { return model(x); }, {.concurrent = true});
  const Device device = core::thread_state().device;
  std::latch ready(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const core::DeviceScope on(device);
      const NoGradGuard no_grad;
      const Tensor x = full({2, 6}, 0.1 * (thread + 1));
      const std::vector<float> expected = model(x).to_vector<float>();
      ready.arrive_and_wait();
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(predict(x).to_vector<float>(), expected);
      }
      EXPECT_GE(predict.stats().replayed, 40U);
      EXPECT_EQ(predict.inputs()[0].to_vector<float>(), x.to_vector<float>());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(CapturedConcurrently, AStepAtTheAddressOfAnEarlierOneIsAnother) {
  for (const double factor : {2.0, 3.0}) {
    auto step = graph::capture([&](const Tensor& x) { return x * factor; }, {.concurrent = true});
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(step(ones({1})).item<float>(), static_cast<float>(factor));
    }
  }
}

TEST(CapturedConcurrently, WeightsThatMoveAreSeenByAllThreads) {
  nn::Linear layer(2, 1);
  auto predict = graph::capture([&](const Tensor& x) { return layer(x); }, {.concurrent = true});
  const Device device = core::thread_state().device;
  std::atomic<int> turn{0};
  const auto use = [&](float expected) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(predict(ones({1, 2})).item<float>(), expected);
    }
  };
  const auto set_weights = [&](double value) {
    const NoGradGuard no_grad;
    layer.weight.fill_(value);
    layer.bias.fill_(0.0);
  };
  set_weights(1);
  use(2);
  std::thread other([&] {
    const core::DeviceScope on(device);
    use(2);
    turn = 1;
    turn.notify_all();
    turn.wait(1);
    use(4);
  });
  turn.wait(0);
  set_weights(2);
  layer.weight.requires_grad_(false);  // recorded anew
  turn = 2;
  turn.notify_all();
  other.join();
  use(4);
}

TEST(CapturedConcurrently, RandomNumbersNeedAGeneratorForEachThread) {
  auto draw = graph::capture([](const Tensor& x) { return x + rand({4}); }, {.concurrent = true});
  EXPECT_THROW(draw(zeros({4})), CaptureError);
  const Device device = core::thread_state().device;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      const core::DeviceScope on(device);
      Generator eager(thread);
      Generator captured(thread);
      for (int i = 0; i < 40; ++i) {
        const Tensor expected = [&] {
          const GeneratorScope draws(eager);
          return rand({4});
        }();
        const GeneratorScope draws(captured);
        EXPECT_EQ(draw(zeros({4})).to_vector<float>(), expected.to_vector<float>());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(CapturedConcurrently, ResetDropsTheRecordingsOfAllThreads) {
  double added = 1;
  auto step = graph::capture([&](const Tensor& x) { return x + added; }, {.concurrent = true});
  const Device device = core::thread_state().device;
  std::atomic<int> turn{0};
  std::thread other([&] {
    const core::DeviceScope on(device);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(step(zeros({1})).item<float>(), 1.0F);
    }
    turn = 1;
    turn.notify_all();
    turn.wait(1);
    EXPECT_EQ(step(zeros({1})).item<float>(), 5.0F);
  });
  turn.wait(0);
  added = 5;
  step.reset();
  turn = 2;
  turn.notify_all();
  other.join();
}

struct Pair {
  Tensor x, y;
};

TEST(CapturedStep, RunTakesAllBatches) {
  auto step = graph::capture([](const Tensor& x, const Tensor& y) { return (x * y).sum(); });
  std::vector<Pair> pairs;
  std::vector<std::tuple<Tensor, Tensor>> tuples;
  for (int i = 0; i < 6; ++i) {
    pairs.push_back({full({2}, i), ones({2})});
    tuples.emplace_back(pairs.back().x, pairs.back().y);
  }
  std::vector<float> sums;
  const auto add = [&](const Tensor& sum) { sums.push_back(sum.item<float>()); };
  EXPECT_EQ(step.run(pairs, add), 6);
  EXPECT_EQ(sums, (std::vector<float>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(step.run(tuples, add), 6);
  EXPECT_EQ(step.run(std::vector<Pair>(), add), 0);
  EXPECT_EQ(step.run(pairs), 6);
  EXPECT_EQ(sums.size(), 12U);
  EXPECT_EQ(step.stats().recorded + step.stats().replayed, 18U);
}

}  // namespace
}  // namespace tandem
