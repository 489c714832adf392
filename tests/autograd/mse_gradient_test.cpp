#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "kernels/recorder.h"
#include "support/thread_count.h"

// Losses of differences compute the gradient of their input in the forward pass. The losses of single elements do not,
// so their gradients serve as the reference.

namespace tandem {
namespace {

using Loss = std::function<Tensor(const Tensor&, const Tensor&, Reduction)>;

const std::vector<Loss> kLosses{
    [](const Tensor& x, const Tensor& y, Reduction r) { return nn::mse_loss(x, y, r); },
    [](const Tensor& x, const Tensor& y, Reduction r) { return nn::l1_loss(x, y, r); },
    [](const Tensor& x, const Tensor& y, Reduction r) { return nn::smooth_l1_loss(x, y, r, 0.7); },
    [](const Tensor& x, const Tensor& y, Reduction r) { return nn::huber_loss(x, y, r, 0.7); },
};

std::vector<float> taken(const Tensor& x) {
  auto gradient = x.grad().to_vector<float>();
  x.zero_grad();
  return gradient;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_FLOAT_EQ(actual[i], expected[i]) << i;
  }
}

TEST(LossGradient, IsThatOfTheSingleElements) {
  manual_seed(4);
  for (const Loss& loss : kLosses) {
    for (const std::int64_t size : {1, 3, 17, 20'001}) {
      const Tensor x = randn({size}).requires_grad_();
      const Tensor y = randn({size});
      for (const double factor : {1.0, 3.0}) {
        (loss(x, y, Reduction::mean) * factor).backward();
        const auto mean = taken(x);
        (loss(x, y, Reduction::none).sum() * (factor / static_cast<double>(size))).backward();
        expect_near(mean, taken(x));
        (loss(x, y, Reduction::sum) * factor).backward();
        const auto sum = taken(x);
        (loss(x, y, Reduction::none).sum() * factor).backward();
        expect_near(sum, taken(x));
      }
    }
  }
}

TEST(LossGradient, OfARetainedGraphIsThereAgain) {
  const Tensor x = randn({20'000}).requires_grad_();
  const Tensor loss = nn::mse_loss(x, randn({20'000}));
  loss.backward({}, true);
  const auto first = taken(x);
  loss.backward({}, true);
  expect_near(taken(x), first);
}

TEST(LossGradient, ReachesATargetThatWantsOneToo) {
  const Tensor x = randn({20'000}).requires_grad_();
  const Tensor y = randn({20'000}).requires_grad_();
  nn::mse_loss(x, y).backward();
  expect_near(taken(x), (y.grad() * -1).to_vector<float>());
}

TEST(LossGradient, IsTheSameForAnyNumberOfThreads) {
  const Tensor x = randn({100'000}).requires_grad_();
  const Tensor y = randn({100'000});
  std::vector<std::vector<float>> all;
  for (const int threads : {1, 2, 5}) {
    const test::ThreadCount scope(threads);
    nn::mse_loss(x, y).backward();
    all.push_back(taken(x));
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

TEST(LossGradient, DoesNotReadTheInputsAgain) {
  const Tensor x = randn({20'000}).requires_grad_();
  const Tensor loss = nn::mse_loss(x, randn({20'000}));
  EXPECT_EQ(test::launches_of([&] { loss.backward(); }), std::vector<std::string>());
}

}  // namespace
}  // namespace tandem
