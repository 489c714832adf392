#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "leaves.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::f64;
using test::message_of;
using ::testing::ElementsAre;

using Values = std::vector<double>;

TEST(PostAccumulateHook, RunsOnceWhenTheGradientIsInPlace) {
  const Tensor a = f64({1, 2});
  const Tensor b = f64({3, 4});
  std::vector<Values> seen;
  a.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    EXPECT_EQ(leaf.unresolved(), a.unresolved());
    seen.push_back(leaf.grad().to_vector<double>());
  });
  const Tensor y = a * a;
  (y * b + a * 3 + y).sum().backward();
  EXPECT_THAT(seen, ElementsAre(Values{11, 23}));
  (a * 1).sum().backward();
  EXPECT_THAT(seen, ElementsAre(Values{11, 23}, Values{12, 24}));
}

TEST(PostAccumulateHook, RunsWhileTheRestOfThePassGoesOn) {
  const Tensor first = f64({1});
  const Tensor last = f64({1});
  std::vector<std::string> order;
  first.register_post_accumulate_grad_hook([&](const Tensor&) {
    order.emplace_back("first");
    EXPECT_TRUE(last.grad().defined()) << "the last layer is finished before the first";
  });
  last.register_post_accumulate_grad_hook([&](const Tensor&) {
    order.emplace_back("last");
    EXPECT_FALSE(first.grad().defined());
  });
  ((first * 2) * 3 * last).backward();
  EXPECT_THAT(order, ElementsAre("last", "first"));
}

TEST(PostAccumulateHook, SeesReplacedGradients) {
  const Tensor a = f64({1});
  double seen = 0;
  a.register_hook([](const Tensor& g) { return g * 7; });
  a.register_post_accumulate_grad_hook([&](const Tensor& leaf) { seen = leaf.grad().item(); });
  (a + a).backward();
  EXPECT_EQ(seen, 14);
}

TEST(PostAccumulateHook, MayUseUpTheGradient) {
  Tensor a = f64({10});
  a.register_post_accumulate_grad_hook([](const Tensor& leaf) {
    Tensor handle = leaf;
    handle.sub_(leaf.grad());
    leaf.zero_grad();
  });
  (a * 3).backward();
  EXPECT_EQ(a.item(), 7);
  EXPECT_FALSE(a.grad().defined());
  (a * 2).backward();
  EXPECT_EQ(a.item(), 5);
}

TEST(PostAccumulateHook, DoesNotRunForALeafThatGotNothing) {
  const Tensor a = f64({1});
  const Tensor b = f64({1});
  int calls = 0;
  b.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  (a * 2).backward();
  EXPECT_EQ(calls, 0);
  b.backward();
  EXPECT_EQ(calls, 1) << "backward of a leaf itself is a pass too";
}

TEST(PostAccumulateHook, MayBeRemovedEvenInsideItself) {
  const Tensor a = f64({1});
  int calls = 0;
  auto handle = std::make_shared<HookHandle>();
  *handle = a.register_post_accumulate_grad_hook([&, big = std::make_shared<int>(1)](const Tensor&) {
    handle->remove();
    calls += *big;
  });
  a.backward();
  a.backward();
  EXPECT_EQ(calls, 1);
}

TEST(PostAccumulateHook, FailureArrivesAndTheNextPassIsClean) {
  const Tensor a = f64({1});
  int calls = 0;
  a.register_post_accumulate_grad_hook([&](const Tensor&) {
    if (++calls == 1) throw ValueError("not yet");
  });
  EXPECT_EQ(message_of<ValueError>([&] { (a * 2).backward(); }), "not yet");
  a.zero_grad();
  (a * 3).backward();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(a.grad().item(), 3);
}

TEST(PostAccumulateHook, IsForLeaves) {
  const Tensor a = f64({1});
  EXPECT_EQ(message_of<AutogradError>([&] { (a * 2).register_post_accumulate_grad_hook([](const Tensor&) {}); }),
            "register_post_accumulate_grad_hook: only leaves that require a gradient accumulate one");
  EXPECT_THROW(zeros({1}).register_post_accumulate_grad_hook([](const Tensor&) {}), AutogradError);
}

}  // namespace
}  // namespace tandem
