#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/graph/capture.h>
#include <tandem/graph/gpu_graph.h>
#include <tandem/nn/batch_norm.h>
#include <tandem/nn/container.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/loss.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/adagrad.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/ema.h>
#include <tandem/optim/lr_scheduler.h>
#include <tandem/optim/rmsprop.h>
#include <tandem/optim/sgd.h>

#include "cuda/gpu_test.h"

// Tests that a captured step becomes a CUDA graph, and that training with it equals eager training, to the bit.

namespace tandem {
namespace {

using test::all_are;
using test::filled;
using test::message_of;
using test::same_bits;

constexpr int kSteps = 9;

struct Run {
  nn::Sequential model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::function<void()> in_step = [] {};          // after the optimiser's step
  std::function<void()> before_step = [] {};      // after backward()
  std::function<void(int)> between = [](int) {};  // after each step
  std::vector<Tensor> more{};                     // further tensors to compare
  bool accumulate = false;                        // the optimiser steps every second time, outside of the captured step
};

using Make = std::function<std::unique_ptr<Run>()>;

struct Result {
  std::vector<Tensor> tensors;
  graph::CaptureStats stats;
};

Result train(const Make& make, bool captured) {
  const core::DeviceScope on("cuda:0");
  Generator generator(5);
  const GeneratorScope draws(generator);
  const auto run = make();
  auto body = [&](const Tensor& x, const Tensor& y) {
    if (!run->accumulate) run->optimizer->zero_grad();
    Tensor loss = nn::cross_entropy(run->model(x), y);
    loss.backward();
    run->before_step();
    if (!run->accumulate) run->optimizer->step();
    run->in_step();
    return loss;
  };
  auto step = graph::capture(body);
  Result result;
  Generator data(1);
  for (int i = 0; i < kSteps; ++i) {
    Tensor x;
    Tensor y;
    {
      const GeneratorScope scope(data);
      x = randn({6, 8});
      y = randint(0, 3, {6});
    }
    result.tensors.push_back((captured ? step(x, y) : body(x, y)).detach().clone());
    if (run->accumulate && i % 2 == 1) {
      run->optimizer->step();
      run->optimizer->zero_grad();
    }
    run->between(i);
  }
  for (const auto& [name, value] : run->model.state_dict())
    result.tensors.push_back(value.clone());
  for (const auto& [name, value] : run->optimizer->state_dict())
    result.tensors.push_back(value.clone());
  for (const Tensor& tensor : run->more)
    result.tensors.push_back(tensor.clone());
  result.stats = step.stats();
  return result;
}

void expect_eager(const Make& make, std::size_t gpu_graphs = 1) {
  const Result eager = train(make, false);
  const Result captured = train(make, true);
  EXPECT_EQ(captured.stats.gpu_graphs, gpu_graphs);
  EXPECT_GT(captured.stats.replayed, 2u) << captured.stats.last_reason;
  ASSERT_EQ(captured.tensors.size(), eager.tensors.size());
  for (std::size_t i = 0; i < eager.tensors.size(); ++i) {
    EXPECT_TRUE(same_bits(captured.tensors[i], eager.tensors[i])) << "tensor " << i;
  }
}

nn::Sequential mlp() { return nn::Sequential(nn::Linear(8, 12), nn::ReLU(), nn::Linear(12, 3)); }

template <class O>
std::unique_ptr<Run> with(nn::Sequential model, auto options) {
  auto optimizer = std::make_unique<O>(model.parameters(), options);
  return std::make_unique<Run>(Run{std::move(model), std::move(optimizer)});
}

TEST(CudaCapture, EveryOptimizer) {
  TANDEM_NEEDS_GPUS(1);
  expect_eager([] { return with<optim::SGD>(mlp(), optim::SGDOptions{.lr = 0.1}); });
  expect_eager([] {
    return with<optim::SGD>(mlp(),
                            optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
  });
  expect_eager([] { return with<optim::Adam>(mlp(), optim::AdamOptions{.lr = 0.1}); });
  expect_eager([] { return with<optim::Adam>(mlp(), optim::AdamOptions{.lr = 0.1, .amsgrad = true}); });
  expect_eager([] { return with<optim::AdamW>(mlp(), optim::AdamWOptions{.lr = 0.1}); });
  expect_eager(
      [] { return with<optim::RMSprop>(mlp(), optim::RMSpropOptions{.lr = 0.1, .momentum = 0.5, .centered = true}); });
  expect_eager([] { return with<optim::Adagrad>(mlp(), optim::AdagradOptions{.lr = 0.1, .lr_decay = 0.1}); });
}

TEST(CudaCapture, SchedulesInsideAndOutside) {
  TANDEM_NEEDS_GPUS(1);
  for (const bool inside : {false, true}) {
    expect_eager([inside] {
      auto run = with<optim::AdamW>(mlp(), optim::AdamWOptions{.lr = 0.1});
      auto schedule =
          std::make_shared<optim::ExponentialLR>(*run->optimizer, optim::ExponentialLROptions{.gamma = 0.8});
      if (inside) {
        run->in_step = [schedule] { schedule->step(); };
      } else {
        run->between = [schedule](int) { schedule->step(); };
      }
      return run;
    });
  }
}

// Two steps of one optimiser in a captured step, with different rates: host work comes between them.
TEST(CudaCapture, TwoStepsAndARateBetween) {
  TANDEM_NEEDS_GPUS(1);
  expect_eager([] {
    auto run = with<optim::Adam>(mlp(), optim::AdamOptions{.lr = 0.1});
    auto schedule = std::make_shared<optim::ExponentialLR>(*run->optimizer, optim::ExponentialLROptions{.gamma = 0.8});
    run->in_step = [schedule, raw = run.get()] {
      schedule->step();
      raw->optimizer->step();
      schedule->step();
    };
    return run;
  });
}

TEST(CudaCapture, Dropout) {
  TANDEM_NEEDS_GPUS(1);
  expect_eager([] {
    auto run = with<optim::SGD>(
        nn::Sequential(nn::Dropout(0.2), nn::Linear(8, 12), nn::ReLU(), nn::Dropout(0.5), nn::Linear(12, 3)),
        optim::SGDOptions{.lr = 0.1});
    run->between = [](int) { rand({3}); };
    return run;
  });
}

TEST(CudaCapture, ClippedGradients) {
  TANDEM_NEEDS_GPUS(1);
  for (const double norm : {2.0, 1.0, 3.0}) {
    expect_eager([norm] {
      auto run = with<optim::Adam>(mlp(), optim::AdamOptions{.lr = 0.1});
      run->before_step = [parameters = run->model.parameters(), norm] {
        optim::clip_grad_norm_(parameters, 0.05, norm);
        optim::clip_grad_value_(parameters, 0.01);
      };
      return run;
    });
  }
}

TEST(CudaCapture, Averages) {
  TANDEM_NEEDS_GPUS(1);
  expect_eager([] {
    auto run = with<optim::SGD>(mlp(), optim::SGDOptions{.lr = 0.1});
    auto ema = std::make_shared<optim::EMA>(run->model.parameters(), optim::EMAOptions{.decay = 0.9});
    run->in_step = [ema] { ema->update(); };
    run->more = ema->averages();
    return run;
  });
}

TEST(CudaCapture, BatchNorm) {
  TANDEM_NEEDS_GPUS(1);
  expect_eager([] {
    return with<optim::SGD>(nn::Sequential(nn::Linear(8, 12), nn::BatchNorm1d(12), nn::ReLU(), nn::Linear(12, 3)),
                            optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  });
}

TEST(CudaCapture, AccumulatedGradients) {
  TANDEM_NEEDS_GPUS(1);
  expect_eager([] {
    auto run = with<optim::Adam>(mlp(), optim::AdamOptions{.lr = 0.1});
    run->accumulate = true;
    return run;
  });
}

// ---- devices and streams ----

struct Counter {
  Tensor total = zeros({3000}, {.device = "cuda:0"});
  graph::CapturedStep<std::function<Tensor(Tensor)>> step =
      graph::CapturedStep<std::function<Tensor(Tensor)>>([this](const Tensor& x) {
        total.add_(x * 2);
        return total.sum();
      });
  double operator()(double value) { return step(filled(3000, value)).item(); }
};

TEST(CudaCapture, ReplaysOnOtherThreads) {
  TANDEM_NEEDS_GPUS(1);
  Counter counter;
  double expected = 0;
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(counter(i), expected += 6000.0 * i);
  ASSERT_EQ(counter.step.stats().gpu_graphs, 1u);
  for (int i = 0; i < 3; ++i) {
    std::thread([&] { EXPECT_EQ(counter(i), expected += 6000.0 * i); }).join();
  }
  EXPECT_EQ(counter(1), expected += 6000);
  EXPECT_GE(counter.step.stats().replayed, 5u);
}

TEST(CudaCapture, ReplaysWhenItsThreadIsGone) {
  TANDEM_NEEDS_GPUS(1);
  std::unique_ptr<Counter> counter;
  std::thread([&] {
    counter = std::make_unique<Counter>();
    for (int i = 0; i < 4; ++i)
      (*counter)(1);
  }).join();
  ASSERT_EQ(counter->step.stats().gpu_graphs, 1u);
  cuda::empty_cache();
  filled(1 << 20, 9).sum().item();
  EXPECT_EQ((*counter)(1), 5 * 6000);
  EXPECT_EQ((*counter)(1), 6 * 6000);
}

TEST(CudaCapture, ReplaysOnOtherStreams) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream side;
  for (const bool made_aside : {false, true}) {
    Counter counter;
    double expected = 0;
    const auto call = [&](bool aside) {
      const cuda::Stream mine = aside ? side : cuda::default_stream();
      mine.wait_stream(aside ? cuda::default_stream() : side);
      const cuda::StreamScope scope(mine);
      EXPECT_EQ(counter(1), expected += 6000) << aside;
    };
    for (int i = 0; i < 4; ++i)
      call(made_aside);
    ASSERT_EQ(counter.step.stats().gpu_graphs, 1u);
    for (const bool aside : {false, true, true, false, true})
      call(aside);
    EXPECT_GE(counter.step.stats().replayed, 6u);
  }
}

// Memory of a step that is destroyed while another stream replays it is not reused before the replay has ended.
TEST(CudaCapture, MemoryOfAStepOutlivesItsLastReplay) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream side;
  for (const bool keep_result : {false, true}) {
    const Tensor out = zeros({5000}, {.device = "cuda:0"});
    Tensor result;
    {
      auto step = graph::capture([&](const Tensor& x) {
        const Tensor y = x * 2 + 1;
        Tensor(out).copy_(y + x);
        return y;
      });
      const Tensor x = filled(5000, 1);
      for (int i = 0; i < 4; ++i)
        step(x);
      ASSERT_EQ(step.stats().gpu_graphs, 1u);
      side.wait_stream(cuda::default_stream());
      const cuda::StreamScope scope(side);
      result = step(x);
      if (keep_result)
        result = result * 3;
      else
        result = Tensor();
    }
    std::vector<Tensor> others;
    for (int i = 0; i < 8; ++i)
      others.push_back(filled(5000, 1e6));
    for (int i = 0; i < 8; ++i)
      others.push_back(filled(20000, 1e6));
    cuda::default_stream().synchronize();
    side.synchronize();
    EXPECT_TRUE(all_are(out, 4));
    if (keep_result) {
      EXPECT_TRUE(all_are(result, 9));
    }
  }
}

// Work that other threads launch while a step becomes a graph is not part of the graph.
TEST(CudaCapture, OtherThreadsGoOn) {
  TANDEM_NEEDS_GPUS(1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([t] {
      for (int round = 0; round < 5; ++round) {
        Counter counter;
        double expected = 0;
        for (int i = 0; i < 6; ++i)
          EXPECT_EQ(counter(t), expected += 6000.0 * t);
        EXPECT_EQ(counter.step.stats().gpu_graphs, 1u);
      }
    });
  }
  Tensor x = filled(3000, 0);
  for (int i = 0; i < 200; ++i)
    x.add_(1);
  EXPECT_TRUE(all_are(x, 200));
  for (std::thread& thread : threads)
    thread.join();
}

// Querying a GPU would end a capture on it.
TEST(CudaCapture, OtherThreadsWaitForTheGpu) {
  TANDEM_NEEDS_GPUS(1);
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      while (!done) {
        EXPECT_NO_THROW(cuda::synchronize());
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    Tensor total = filled(4, 0);
    auto step = graph::capture([&](const Tensor& x) {
      for (int i = 0; i < 1000; ++i)
        total.add_(x);
    });
    for (int i = 0; i < 3; ++i)
      EXPECT_NO_THROW(step(filled(4, 1)));
    EXPECT_TRUE(all_are(total, 3000));
    EXPECT_EQ(step.stats().gpu_graphs, 1u);
  }
  done = true;
  for (std::thread& thread : threads)
    thread.join();
}

TEST(CudaCapture, OnTheSecondGpu) {
  TANDEM_NEEDS_GPUS(2);
  Tensor total = zeros({300}, {.device = "cuda:1"});
  auto step = graph::capture([&](const Tensor& x) {
    total.add_(x);
    return total.sum();
  });
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(step(ones({300}, {.device = "cuda:1"})).item(), 300 * (i + 1));
  EXPECT_EQ(step.stats().gpu_graphs, 1u);
}

TEST(CudaCapture, StepsOnTwoGpusAreReplayedWithoutAGraph) {
  TANDEM_NEEDS_GPUS(2);
  Tensor total = zeros({300}, {.device = "cuda:1"});
  auto step = graph::capture([&](const Tensor& x) {
    total.add_((x * 2).to("cuda:1"));
    return total.sum();
  });
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(step(ones({300}, {.device = "cuda:0"})).item(), 600 * (i + 1));
  EXPECT_EQ(step.stats().gpu_graphs, 0u);
  EXPECT_GE(step.stats().replayed, 3u);
}

TEST(CudaCapture, FaultsInAReplayAreThrown) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor table = randn({5, 3}, {.device = "cuda:0"});
  auto step = graph::capture([&](const Tensor& index) { return embedding(index, table).sum(); });
  const Tensor good = tensor<std::int64_t>({0, 4}, {.device = "cuda:0"});
  const double expected = step(good).item();
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(step(good).item(), expected);
  ASSERT_EQ(step.stats().gpu_graphs, 1u);
  EXPECT_NE(message_of<ValueError>([&] {
              step(tensor<std::int64_t>({0, 5}, {.device = "cuda:0"})).item();
            }).find("embedding: index 5 at position 1 is outside [0, 5)"),
            std::string::npos);
  EXPECT_EQ(step(good).item(), expected);
}

TEST(CudaCapture, FaultsInAReplayNameTheModule) {
  TANDEM_NEEDS_GPUS(2);
  const core::DeviceScope on("cuda:0");
  struct Model : nn::Module<Model> {
    nn::Embedding words = child("words", nn::Embedding(5, 3));
    nn::BCELoss loss = child("loss", nn::BCELoss());
    Tensor forward(const Tensor& x) const { return words(x).sum(); }
  };
  Model model;
  const auto expect = [](auto& step, const Tensor& good, const Tensor& bad, const std::string& beginning) {
    for (int i = 0; i < 5; ++i)
      step(good).item();
    const std::string text = message_of<ValueError>([&] { step(bad).item(); });
    EXPECT_TRUE(text.starts_with(beginning)) << text;
    EXPECT_NO_THROW(step(good).item());
  };
  for (const bool elsewhere : {false, true}) {  // launches on two GPUs do not become a graph
    Tensor copy = zeros({}, {.device = "cuda:1"});
    const auto maybe_copied = [&](const Tensor& result) {
      if (elsewhere) copy.copy_(result);
      return result;
    };
    auto step = graph::capture([&](const Tensor& x) { return maybe_copied(model(x)); });
    expect(step, tensor<std::int64_t>({0, 4}), tensor<std::int64_t>({0, 5}),
           "Embedding 'words': index 5 at position 1 is outside [0, 5)");
    EXPECT_EQ(step.stats().gpu_graphs, elsewhere ? 0u : 1u);
    auto loss = graph::capture([&](const Tensor& x) { return maybe_copied(model.loss(x, x.detach() * 0)); });
    expect(loss, filled(4, 0.5), filled(4, -1), "BCELoss 'loss': binary_cross_entropy: element 0 of the input is -1");
    auto bare = graph::capture([&](const Tensor& x) { return maybe_copied(embedding(x, model.words.weight).sum()); });
    expect(bare, tensor<std::int64_t>({0, 4}), tensor<std::int64_t>({6, 1}), "embedding: index 6 at position 0");
  }
}

// Kernels of a graph have the priority of the stream that was captured.
TEST(CudaCapture, AGraphKeepsThePriorityOfItsStream) {
  TANDEM_NEEDS_GPUS(1);
  for (const int priority : {0, -1, -1000}) {
    const cuda::Stream urgent("cuda:0", priority);
    const cuda::StreamScope scope(urgent);
    int seen = 1;
    const auto graph = graph::GpuGraph::capture("cuda:0", [&](graph::GpuGraph::NoteWorks) {
      const cuda::Stream now = cuda::current_stream("cuda:0");
      EXPECT_FALSE(now == urgent);
      ASSERT_EQ(cudaStreamGetPriority(now.handle(), &seen), cudaSuccess);
    });
    EXPECT_EQ(seen, urgent.priority());
    EXPECT_LE(seen, 0);
    EXPECT_EQ(seen == 0, priority == 0);
  }
}

// A thread's wait, however long, does not delay a capture on another thread.
TEST(CudaCapture, GoesOnWhileAnotherThreadWaitsForTheGpu) {
  TANDEM_NEEDS_GPUS(1);
  struct Gate {
    std::atomic<bool> entered = false, open = false, in_time = false;
  } gate;
  const cuda::Stream busy;
  cudaLaunchHostFunc(
      busy.handle(),
      [](void* data) {
        Gate& own = *static_cast<Gate*>(data);
        own.entered = true;
        for (int i = 0; i < 5000 && !own.open; ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        own.in_time = own.open.load();
      },
      &gate);
  Tensor total = filled(4, 0);
  auto step = graph::capture([&](const Tensor& x) { total.add_(x); });
  const Tensor one = filled(4, 1);
  step(one);
  std::atomic<bool> waited = false;
  std::thread waits([&] {
    EXPECT_NO_THROW(cuda::synchronize());
    waited = true;
  });
  while (!gate.entered)
    std::this_thread::yield();
  for (int i = 0; i < 3; ++i)
    step(one);
  EXPECT_EQ(step.stats().gpu_graphs, 1u);
  EXPECT_FALSE(waited);
  gate.open = true;
  waits.join();
  EXPECT_TRUE(gate.in_time);
  EXPECT_TRUE(all_are(total, 4));
}

// Tests more groups than the kernel with the smallest arguments holds, up to the largest number of places, and beyond.
TEST(CudaCapture, WhatCannotBeCapturedNamesItsCall) {
  TANDEM_NEEDS_GPUS(1);
  const auto refused = [](const std::function<Tensor(Tensor)>& body) {
    auto step = graph::CapturedStep<std::function<Tensor(Tensor)>>(body);
    return message_of<CaptureError>([&] {
      for (int i = 0; i < 10; ++i)
        step(filled(4, 1));
    });
  };
  const auto names = [&](const std::string& call, const std::function<Tensor(Tensor)>& body) {
    const std::string text = refused(body);
    EXPECT_TRUE(text.starts_with(call + ": a captured step cannot")) << text;
  };
  names("item", [](const Tensor& x) { return x * x.sum().item(); });
  names("to_vector", [](const Tensor& x) { return x * x.to_vector<double>()[0]; });
  names("to", [](const Tensor& x) { return x.to("cpu"); });
  names("nonzero", [](const Tensor& x) { return x.nonzero(); });
  names("masked_select", [](const Tensor& x) { return x.masked_select(x > 0); });
  names("tensor", [](const Tensor& x) { return x + tensor(2.0, {.device = "cuda:0"}); });
  Tensor w = filled(4, 1).requires_grad_();
  names("clip_grad_norm_ with error_if_nonfinite", [&](const Tensor& x) {
    (x * w).sum().backward();
    return optim::clip_grad_norm_({w}, 1, 2, true);
  });
  EXPECT_TRUE(all_are(filled(10, 1) + 1, 2));
}

}  // namespace
}  // namespace tandem
