#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

#include "leaves.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::f64;
using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Values = std::vector<double>;

TEST(TensorHook, SeesTheCompleteGradientOfALeaf) {
  const Tensor a = f64({1, 2});
  std::vector<Values> seen;
  a.register_hook([&](const Tensor& g) {
    seen.push_back(g.to_vector<double>());
    return Tensor();
  });
  (a * a + a).sum().backward();
  EXPECT_THAT(seen, ElementsAre(Values{3, 5}));
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{3, 5}));
}

TEST(TensorHook, SeesOnlyThisPassesPart) {
  const Tensor a = f64({1, 2});
  (a * 10).sum().backward();
  a.register_hook([&](const Tensor& g) { return g * 2; });
  (a * 3).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{16, 16}));
}

TEST(TensorHook, SeesTheCompleteGradientOfAResult) {
  const Tensor a = f64({1, 2});
  const Tensor y = a * 2;
  std::vector<Values> seen;
  y.register_hook([&](const Tensor& g) {
    seen.push_back(g.to_vector<double>());
    return Tensor();
  });
  (y * y + y).sum().backward();
  EXPECT_THAT(seen, ElementsAre(Values{5, 9}));
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{10, 18}));
}

TEST(TensorHook, MayReplaceTheGradient) {
  const Tensor a = f64({1, 2});
  const Tensor b = f64({3, 4});
  const Tensor y = a * b;
  y.register_hook([](const Tensor& g) { return g * 10; });
  a.register_hook([](const Tensor& g) { return g + 1; });
  y.sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{31, 41}));
  EXPECT_EQ(b.grad().to_vector<double>(), (Values{10, 20}));
}

TEST(TensorHook, MayReplaceTheGradientOfTheRoot) {
  const Tensor a = f64({2});
  const Tensor loss = a * a;
  loss.register_hook([](const Tensor& g) { return g * 5; });
  loss.backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{20}));
}

// The gradient of the root is only known to be 1 until a hook, retain_grad() or an op reads it.
TEST(TensorHook, OfTheRootSeesOne) {
  const Tensor x = f64({1, 2, 3});
  const Tensor loss = mse_loss(x, zeros({3}, {.dtype = DType::f64}), Reduction::sum);
  Values seen;
  loss.register_hook([&](const Tensor& g) {
    seen = g.to_vector<double>();
    return Tensor();
  });
  loss.retain_grad();
  loss.backward();
  EXPECT_EQ(seen, Values{1});
  EXPECT_EQ(loss.grad().to_vector<double>(), Values{1});
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{2, 4, 6}));
}

TEST(TensorHook, OfTheRootMayChangeTheGradientInPlace) {
  const Tensor logits = zeros({2, 4}).requires_grad_();
  const Tensor loss = cross_entropy(logits, zeros({2}, {.dtype = DType::i64}));
  loss.register_hook([](const Tensor& g) {
    Tensor(g).mul_(8);
    return Tensor();
  });
  loss.backward();
  EXPECT_EQ(logits.grad().to_vector<double>(), (Values{-3, 1, 1, 1, -3, 1, 1, 1}));
}

TEST(TensorHook, AReplacementNeedNotBeDense) {
  const Tensor a = test::leaf({2, 2});
  const Tensor y = a * 1;
  const Tensor other = from_data(Values{1, 2, 3, 4}, {2, 2});
  y.register_hook([&](const Tensor&) { return other.t(); });
  y.sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{1, 3, 2, 4}));
  a.zero_grad();
  a.register_hook([&](const Tensor&) { return other.t(); });
  a.sum().backward();
  a.sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2, 6, 4, 8}));
  EXPECT_EQ(other.to_vector<double>(), (Values{1, 2, 3, 4})) << "what a hook returned is not the engine's to change";
}

TEST(TensorHook, RunsInTheOrderOfRegistration) {
  const Tensor a = f64({1});
  const Tensor y = a * 1;
  y.register_hook([](const Tensor& g) { return g + 1; });
  y.register_hook([](const Tensor& g) { return g * 10; });
  y.backward();
  EXPECT_EQ(a.grad().item(), 20);
}

TEST(TensorHook, AReplacementMustFit) {
  const Tensor a = f64({1, 2});
  const Tensor y = a * 1;
  HookHandle handle = y.register_hook([](const Tensor&) { return zeros({3}, {.dtype = DType::f64}); });
  EXPECT_THAT(message_of<ShapeError>([&] { y.sum().backward({}, true); }),
              HasSubstr("gradient hook: returned [3] f64 on cpu:0, the gradient is [2] f64 on cpu:0"));
  handle.remove();
  handle = y.register_hook([](const Tensor& g) { return g.to(DType::f32); });
  EXPECT_THROW(y.sum().backward({}, true), ShapeError);
  handle.remove();
  handle = y.register_hook([](const Tensor& g) { return g.to("cpu:1"); });
  EXPECT_THROW(y.sum().backward({}, true), ShapeError);
  handle.remove();
  y.sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{1, 1}));
}

TEST(TensorHook, WhatItKeepsDoesNotChangeLater) {
  const Tensor a = f64({1, 2});
  std::vector<Tensor> kept;
  const auto keep = [&](const Tensor& g) {
    kept.push_back(g);
    return Tensor();
  };
  a.register_hook(keep);
  for (const double factor : {1.0, 10.0, 100.0}) {
    const Tensor y = a * factor;
    y.register_hook(keep);
    (y + y).sum().backward();
  }
  a.zero_grad();
  (a * 1000).sum().backward();
  std::vector<Values> seen;
  for (const Tensor& g : kept) {
    seen.push_back(g.to_vector<double>());
  }
  EXPECT_THAT(seen, ElementsAre(Values{2, 2}, Values{2, 2}, Values{2, 2}, Values{20, 20}, Values{2, 2},
                                Values{200, 200}, Values{1000, 1000}));
}

TEST(TensorHook, MayBeRemoved) {
  const Tensor a = f64({1});
  int calls = 0;
  HookHandle handle = a.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 2;
  });
  a.backward();
  handle.remove();
  handle.remove();
  a.backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(a.grad().item(), 3);
}

TEST(TensorHook, MayRemoveItself) {
  const Tensor a = f64({1});
  int others = 0;
  auto handle = std::make_shared<HookHandle>();
  *handle = a.register_hook([&, big = std::make_shared<int>(7)](const Tensor& g) {
    handle->remove();
    return g * *big;  // the captured value must still exist
  });
  a.register_hook([&](const Tensor&) {
    ++others;
    return Tensor();
  });
  a.backward();
  a.backward();
  EXPECT_EQ(others, 2);
  EXPECT_EQ(a.grad().item(), 8);
}

TEST(TensorHook, OutlivesTheHandleAndTheTensorOutlivesTheHook) {
  const Tensor a = f64({1});
  {
    const HookHandle dropped = a.register_hook([](const Tensor& g) { return g * 2; });
  }
  a.backward();
  EXPECT_EQ(a.grad().item(), 2);
  HookHandle handle;
  {
    const Tensor gone = f64({1});
    handle = gone.register_hook([](const Tensor& g) { return g; });
  }
  EXPECT_NO_THROW(handle.remove());
  EXPECT_NO_THROW(HookHandle().remove());
}

TEST(TensorHook, IsLetGoWithTheGraph) {
  const auto token = std::make_shared<int>(0);
  {
    const Tensor a = f64({1});
    const Tensor y = a * 2;
    y.register_hook([token](const Tensor&) { return Tensor(); });
    a.register_hook([token](const Tensor&) { return Tensor(); });
    a.register_post_accumulate_grad_hook([token](const Tensor&) {});
    EXPECT_GT(token.use_count(), 3);
    y.backward();
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(TensorHook, NeedsATensorThatRequiresAGradient) {
  EXPECT_EQ(message_of<AutogradError>([] { zeros({2}).register_hook([](const Tensor& g) { return g; }); }),
            "register_hook: this tensor does not require a gradient");
}

TEST(TensorHook, RecordsNothing) {
  const Tensor a = f64({1});
  bool recorded = true;
  a.register_hook([&](const Tensor& g) {
    recorded = (g * a).requires_grad();
    return Tensor();
  });
  a.backward();
  EXPECT_FALSE(recorded);
}

TEST(TensorHook, MayRunAnotherBackward) {
  const Tensor a = f64({2});
  const Tensor b = f64({3});
  const Tensor y = a * a;
  y.register_hook([&](const Tensor& g) {
    const GradModeScope on(true);
    (b * b).backward();
    return g + b.grad();
  });
  (y * 1).backward();
  EXPECT_EQ(b.grad().item(), 6);
  EXPECT_EQ(a.grad().item(), 28);
}

TEST(TensorHook, BackwardThroughItsOwnGraphIsAnError) {
  const Tensor a = f64({2});
  const Tensor y = a * a;
  y.register_hook([&](const Tensor&) {
    const GradModeScope on(true);
    (a * 1).backward();
    return Tensor();
  });
  const std::string text = message_of<AutogradError>([&] { y.backward(); });
  EXPECT_THAT(text, HasSubstr("backward: 'leaf' is part of another backward pass that is still running (of another "
                              "thread, or around a hook)"));
  EXPECT_FALSE(a.grad().defined());
  (a * 5).backward();
  EXPECT_EQ(a.grad().item(), 5);
}

}  // namespace
}  // namespace tandem
