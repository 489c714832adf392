#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/thread_state.h>

#include "leaves.h"

// Several threads, each with its own backward passes.

namespace tandem {
namespace {

using test::dense_leaf;
using test::leaf;
using test::values;
using ::testing::HasSubstr;

using Values = std::vector<double>;

constexpr int kThreads = 4;
constexpr int kPasses = 200;

template <class Body>
void on_threads(Body body) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([body, i, device = core::thread_state().device] {
      const core::DeviceScope scope(device);
      body(i);
    });
  }
}

TEST(BackwardThreads, SeparateGraphs) {
  const Tensor data = values({6, 6});
  std::vector<Tensor> leaves;
  for (int i = 0; i < kThreads; ++i) {
    leaves.push_back(leaf({6, 6}));
  }
  on_threads([&](int i) {
    const Tensor& w = leaves[static_cast<std::size_t>(i)];
    for (int pass = 0; pass < kPasses; ++pass) {
      w.zero_grad();
      (matmul(data, w).relu() * w).sum().backward();
    }
  });
  for (const Tensor& w : leaves) {
    EXPECT_EQ(w.grad().to_vector<double>(), leaves[0].grad().to_vector<double>());
  }
}

TEST(BackwardThreads, SeparateGraphsOverSeveralDevices) {
  std::vector<Values> gradients(kThreads);
  on_threads([&](int i) {
    const Tensor w = leaf({5});
    for (int pass = 0; pass < kPasses / 4; ++pass) {
      w.zero_grad();
      (w.to("cpu:1") * 2 + (w * 3).to("cpu:1") + w.to("cpu:2").to("cpu:1")).sum().backward();
    }
    gradients[static_cast<std::size_t>(i)] = w.grad().to_vector<double>();
  });
  for (const Values& gradient : gradients) {
    EXPECT_EQ(gradient, Values(5, 6.0));
  }
}

// A pass is either refused before it changes anything, or adds its complete contribution.
TEST(BackwardThreads, GraphsThatShareALeafAddUpOrAreRefused) {
  const Tensor shared = leaf({8});
  std::atomic<int> done{0};
  std::atomic<int> refused{0};
  on_threads([&](int) {
    const Tensor own = leaf({8});
    int mine = 0;
    for (int pass = 0; pass < kPasses; ++pass) {
      const Tensor loss = (shared * 1.0 + shared * own.detach() * 0.0 + own * 1.0).sum();
      try {
        loss.backward();
        ++mine;
      } catch (const AutogradError& e) {
        EXPECT_THAT(e.what(), HasSubstr("is part of another backward pass that is still running"));
        ++refused;
      }
    }
    done += mine;
    if (mine > 0) {
      EXPECT_EQ(own.grad().to_vector<double>(), Values(8, mine)) << "a refused pass delivers nothing at all";
    }
  });
  EXPECT_EQ(done + refused, kThreads * kPasses);
  ASSERT_GT(done, 0);
  EXPECT_EQ(shared.grad().to_vector<double>(), Values(8, done));
}

TEST(BackwardThreads, OneGraphPassedThroughAtOnce) {
  const Tensor w = leaf({8});
  const Tensor h = w * w;
  const Tensor loss = (h * h).sum();
  std::atomic<int> done{0};
  on_threads([&](int) {
    for (int pass = 0; pass < kPasses; ++pass) {
      try {
        loss.backward({}, true);
        ++done;
      } catch (const AutogradError& e) {
        EXPECT_THAT(e.what(), HasSubstr("is part of another backward pass that is still running"));
      }
    }
  });
  ASSERT_GT(done, 0);
  const Tensor once = dense_leaf(w);
  const Tensor square = once * once;
  (square * square).sum().backward();
  const Values expected = (once.grad() * static_cast<double>(done)).to_vector<double>();
  const Values got = w.grad().to_vector<double>();
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-9 * std::abs(expected[i]));
  }
}

// Forward passes read a shared leaf while a backward pass writes its gradient, which counts as const use.
TEST(BackwardThreads, ForwardBesideBackward) {
  const Tensor w = leaf({16});
  std::atomic<bool> stop{false};
  const std::jthread reader([&] {
    while (!stop) {
      EXPECT_TRUE((w * 2).sum().requires_grad());
    }
  });
  for (int pass = 0; pass < kPasses; ++pass) {
    (w * w).sum().backward();
  }
  stop = true;
}

// Another thread releases the graph.
TEST(BackwardThreads, GraphsMayBeDestroyedElsewhere) {
  for (int round = 0; round < 50; ++round) {
    const Tensor w = leaf({4});
    Tensor y = w;
    for (int i = 0; i < 20; ++i) {
      y = y * 1.0 + y * y;
    }
    Tensor a = y * 2;
    Tensor b = y * 3;
    std::jthread first([mine = std::move(a)]() mutable { mine = Tensor(); });
    std::jthread second([mine = std::move(b)]() mutable { mine = Tensor(); });
    y = Tensor();
  }
}

TEST(BackwardThreads, OneMovesOnWhenAnotherIsDone) {
  const Tensor w = leaf({4});
  for (int round = 0; round < 50; ++round) {
    std::jthread([&] { (w * 1.0).sum().backward(); }).join();
    (w * 1.0).sum().backward();
  }
  EXPECT_EQ(w.grad().to_vector<double>(), Values(4, 100.0));
}

}  // namespace
}  // namespace tandem
