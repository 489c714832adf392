#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <sstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/thread_pool.h>
#include <tandem/graph/capture.h>
#include <tandem/kernels/launch.h>
#include <tandem/nn/batch_norm.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/linear.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;

/// The error that `function` throws in one of the first calls.
template <class E = CaptureError, class Function>
std::string refused(Function function) {
  auto step = graph::capture(std::move(function));
  return message_of<E>([&] {
    for (int i = 0; i < 10; ++i)
      step(ones({2}));
  });
}

constexpr const char* kHost =
    ": a captured step cannot read or write elements on the host, a replay would not do it again. Return the tensor "
    "and look at it after the step; make constants before it";

TEST(CaptureErrors, HostAccessIsNamed) {
  EXPECT_EQ(refused([](const Tensor& x) { return x * x.sum().item(); }), std::string("item") + kHost);
  EXPECT_EQ(refused([](const Tensor& x) { return x * x.sum().item<int>(); }), std::string("item") + kHost);
  EXPECT_EQ(refused([](const Tensor& x) { return x * x.to_vector<double>()[0]; }), std::string("to_vector") + kHost);
  EXPECT_EQ(refused([](const Tensor& x) { return x * x.data<float>()[0]; }), std::string("data") + kHost);
  EXPECT_EQ(refused([](const Tensor& x) { return x * x.span<float>()[0]; }), std::string("data") + kHost);
  EXPECT_EQ(refused([](Tensor x) {
              x.mutable_data<float>()[0] = 3;
              return x;
            }),
            std::string("data") + kHost);
  EXPECT_EQ(refused([](const Tensor& x) {
              std::ostringstream text;
              text << x;
              return x;
            }),
            std::string("to_string") + kHost);
  EXPECT_EQ(refused([](const Tensor& x) { return x + tensor(2.0); }), std::string("tensor") + kHost);
  EXPECT_EQ(refused([](const Tensor& x) { return x.nonzero(); }), std::string("nonzero") + kHost);
  EXPECT_EQ(refused([](const Tensor& x) { return x.masked_select(x > 0); }), std::string("masked_select") + kHost);
  EXPECT_EQ(refused([](const Tensor&) { return randperm(5); }), std::string("randperm") + kHost);
}

TEST(CaptureErrors, HostAccessInAModuleNamesTheModule) {
  struct Peek : nn::Module<Peek> {
    Tensor forward(const Tensor& x) const { return x * x.sum().item(); }
  };
  const Peek peek;
  auto step = graph::capture([&](const Tensor& x) { return peek(x); });
  EXPECT_EQ(message_of<CaptureError>([&] { step(ones({4, 2})); }), std::string("Peek: item") + kHost);
}

TEST(CaptureErrors, ControlFlowThatDependsOnValuesIsCaught) {
  EXPECT_EQ(refused([](const Tensor& x) { return (x > 0).all().item<bool>() ? x : -x; }), std::string("item") + kHost);
}

constexpr const char* kForeign =
    " on another thread than that of the step; only what one thread does is recorded. Leave such work outside the "
    "captured function";

TEST(CaptureErrors, LaunchesOfThePoolAreNamed) {
  set_num_threads(2);
  const std::string text = refused([](const Tensor& x) {
    core::parallel_for(64, 1, [&](std::int64_t, std::int64_t) {
      x.sum();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    return x;
  });
  EXPECT_TRUE(text == std::string("captured step: a tensor was made") + kForeign ||
              text.starts_with("captured step: another thread used"))
      << text;
}

TEST(CaptureErrors, WorkOfAThreadOfItsOwnIsNoticed) {
  EXPECT_EQ(refused([](const Tensor& x) {
              const Tensor y = x * 2;
              return std::async(std::launch::async, [&] { return y + 1; }).get() * 2;
            }),
            "captured step: another thread used a tensor of the step while it was recorded; only what one thread does "
            "is recorded. Leave such work outside the captured function");
}

TEST(CaptureErrors, ACapturedStepInsideAnother) {
  auto inner = graph::capture([](const Tensor& x) { return x * 2; });
  for (int i = 0; i < 3; ++i)
    inner(ones({2}));
  EXPECT_EQ(refused([&](const Tensor& x) { return inner(x); }),
            "captured step: called inside another captured step; call the function itself there");
  EXPECT_EQ(inner(ones({2}))[0].item(), 2);
}

TEST(CaptureErrors, InputsThatRequireAGradient) {
  auto step = graph::capture([](const Tensor& x) { return x * 2; });
  EXPECT_EQ(message_of<ConfigError>([&] { step(ones({2, 3}, {.requires_grad = true})); }),
            "captured step: input 0 [2, 3] requires a gradient, but inputs are copied and no gradient flows back; pass "
            "it with .detach(), or use it in the function without passing it");
}

TEST(CaptureErrors, AtLeastOneCapture) {
  EXPECT_EQ(message_of<ConfigError>([] { graph::capture([] {}, {.max_captures = 0}); }),
            "capture: max_captures must be >= 1, got 0");
}

TEST(CaptureErrors, AStepThatNeverDoesTheSame) {
  int i = 0;
  EXPECT_EQ(refused([&](const Tensor& x) { return ++i % 2 == 0 ? x.exp() : x.sum(); }),
            "captured step: 6 runs, and no two in a row did the same: after 0 launches a tensor of 8 bytes was made, "
            "in the run before a tensor of 4 bytes was made. It cannot be captured; call the function itself");
}

constexpr const char* kNoClearedPadding = "clang 19 has no __builtin_clear_padding: arguments cannot be compared";

TEST(CaptureErrors, ANumberThatChanges) {
  if (!kernels::kPaddingIsZero) GTEST_SKIP() << kNoClearedPadding;
  int i = 0;
  EXPECT_EQ(refused([&](const Tensor& x) { return (x + 1) * ++i; }),
            "captured step: 6 runs, and no two in a row did the same: launch 2, 'pointwise', had other numbers or "
            "tensors than in the run before; a number that changes from step to step must be a tensor, and a tensor "
            "be written in place. It cannot be captured; call the function itself");
}

TEST(CaptureErrors, StateThatIsReplaced) {
  if (!kernels::kPaddingIsZero) GTEST_SKIP() << kNoClearedPadding;
  Tensor total = zeros({2});
  EXPECT_EQ(refused([&](const Tensor& x) {
              total = total + x;
              return total * 1;
            }),
            "captured step: 6 runs, and no two in a row did the same: launch 1, 'pointwise', had other numbers or "
            "tensors than in the run before; a number that changes from step to step must be a tensor, and a tensor "
            "be written in place. It cannot be captured; call the function itself");
  EXPECT_EQ(total[0].item(), 6);  // each call was a step
}

TEST(CaptureErrors, TensorsMadeOnAnotherThreadAndLetGo) {
  TANDEM_SKIP_ON_GPU("another thread makes its tensors on the CPU");
  const std::string text =
      refused([](const Tensor& x) { return x + std::async(std::launch::async, [] { return ones({2}); }).get(); });
  EXPECT_TRUE(text.starts_with("captured step: 6 runs, and no two in a row did the same: ")) << text;
}

TEST(CaptureErrors, StateThatIsReplacedAtOneAddress) {
  TANDEM_SKIP_ON_GPU("it uses host memory");
  std::array<float, 2> memory{1, 1};
  const auto view = [&] { return from_blob(memory.data(), {2}); };
  Tensor state = view();
  EXPECT_EQ(refused([&](const Tensor& x) {
              Tensor y = state + x;
              state = view();
              return y;
            }),
            "captured step: 6 runs, and no two in a row did the same: the step read a tensor of 8 bytes from before it "
            "and replaced it or let it go; what goes on from step to step must be written in place: state.copy_(...), "
            "total.add_(...). It cannot be captured; call the function itself");
}

TEST(CaptureErrors, AStepThatSwitchesModes) {
  nn::Linear layer(2, 2);
  EXPECT_EQ(refused([&](const Tensor& x) {
              layer.eval();
              Tensor y = layer(x);
              layer.train();
              return y;
            }),
            "captured step: 6 runs, and no two in a row did the same: the step moves or freezes parameters, switches a "
            "mode or registers hooks. It cannot be captured; call the function itself");
}

struct Words : nn::Module<Words> {
  nn::Embedding first = child("first", nn::Embedding(5, 2));
  nn::Embedding second = child("second", nn::Embedding(9, 2));
  Tensor forward(const Tensor& x) const { return first(x) + second(x); }
};

// The error that `step` throws for `indices`: on a GPU, the next wait throws it.
std::string bad_index(auto& step, const Tensor& indices) {
  return message_of<ValueError>([&] { step(indices).item(); });
}

TEST(CaptureErrors, AFaultInAReplayNamesTheModuleAsAnEagerOneDoes) {
  Words words;
  auto step = graph::capture([&](const Tensor& x) { return words(x).sum(); });
  auto bare = graph::capture([&](const Tensor& x) { return embedding(x, words.second.weight).sum(); });
  const Tensor good = tensor<std::int64_t>({1, 4});
  for (int i = 0; i < 5; ++i) {
    step(good);
    bare(good);
  }
  ASSERT_GT(step.stats().replayed, 0u);
  ASSERT_GT(bare.stats().replayed, 0u);
  const std::string text = bad_index(step, tensor<std::int64_t>({1, 7}));
  EXPECT_TRUE(text.starts_with("Embedding 'first': index 7 at position 1 is outside [0, 5)")) << text;
  const std::string bare_text = bad_index(bare, tensor<std::int64_t>({9, 7}));
  EXPECT_TRUE(bare_text.starts_with("embedding: index 9 at position 0 is outside [0, 9)")) << bare_text;
  EXPECT_EQ(core::thread_state().scope, nullptr);
  EXPECT_NO_THROW(step(good).item());
}

TEST(CaptureErrors, AReplayWithinAModuleNamesTheModuleOfTheOp) {
  Words words;
  auto step = graph::capture([&](const Tensor& x) { return words(x).sum(); });
  for (int i = 0; i < 5; ++i)
    step(tensor<std::int64_t>({1, 2}));
  ASSERT_GT(step.stats().replayed, 0u);
  const core::ModuleScope around{"trainer", "Trainer", nullptr};
  core::ThreadState state = core::thread_state();
  state.scope = &around;
  const core::ThreadStateScope within(state);
  const std::string text = bad_index(step, tensor<std::int64_t>({5, 1}));
  EXPECT_TRUE(text.starts_with("Embedding 'first': index 5 at position 0 is outside [0, 5)")) << text;
  EXPECT_EQ(core::thread_state().scope, &around);
}

TEST(CaptureErrors, AfterAnErrorOpsAreAsBefore) {
  auto step = graph::capture([](const Tensor& x) { return x * x.sum().item(); });
  EXPECT_THROW(step(ones({2})), CaptureError);
  EXPECT_EQ(ones({2}).sum().item(), 2);
  EXPECT_EQ(core::thread_state().observer, nullptr);
  EXPECT_EQ(core::thread_state().recorder, nullptr);
}

}  // namespace
}  // namespace tandem
