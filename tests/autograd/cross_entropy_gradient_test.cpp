#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "kernels/recorder.h"
#include "support/thread_count.h"

// In its usual form cross-entropy computes the gradient of the logits in the forward pass. The losses of single rows do
// not, so their gradients serve as the reference.

namespace tandem {
namespace {

constexpr std::int64_t kIgnored = -100;

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, double scale) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 4e-7 * scale) << i;
  }
}

struct Batch {
  Tensor logits;
  Tensor classes;
  std::int64_t counted = 0;

  Batch(std::int64_t rows, std::int64_t size, bool ignores) : logits((randn({rows, size}) * 4).requires_grad_()) {
    std::vector<std::int64_t> wanted;
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool ignored = ignores && row % 3 == 1;
      wanted.push_back(ignored ? kIgnored : (row * 7 + 3) % size);
      counted += ignored ? 0 : 1;
    }
    classes = from_data(wanted);
  }
  Tensor loss(Reduction reduction = Reduction::mean) const {
    return nn::cross_entropy(logits, classes, {.reduction = reduction});
  }
  std::vector<float> take_gradient() {
    auto gradient = logits.grad().to_vector<float>();
    logits.zero_grad();
    return gradient;
  }
  std::vector<float> expected(double factor) {
    (loss(Reduction::none).sum() * factor).backward();
    return take_gradient();
  }
  /// Expects the current gradient to be `factor` times the sum of the rows' gradients.
  void expect_gradient(double factor) {
    const std::vector<float> gradient = take_gradient();
    expect_near(gradient, expected(factor), factor);
  }
};

TEST(CrossEntropyGradient, IsThatOfTheSingleRows) {
  manual_seed(5);
  for (const std::int64_t rows : {1, 3, 16, 17, 40}) {
    for (const std::int64_t size : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 100, 1000}) {
      for (const bool ignores : {false, true}) {
        SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(size) + " classes");
        Batch batch(rows, size, ignores);
        batch.loss().backward();
        const double share = 1 / static_cast<double>(batch.counted);
        batch.expect_gradient(share);
        batch.loss(Reduction::sum).backward();
        batch.expect_gradient(1);
      }
    }
  }
}

TEST(CrossEntropyGradient, IsScaledByTheGradientOfTheLoss) {
  Batch batch(6, 20, true);
  (batch.loss(Reduction::sum) * 3).backward();
  batch.expect_gradient(3);
}

TEST(CrossEntropyGradient, OfARetainedGraphIsThereAgain) {
  Batch batch(6, 20, true);
  const Tensor loss = batch.loss(Reduction::sum);
  loss.backward({}, true);
  const std::vector<float> first = batch.take_gradient();
  for (int round = 0; round < 2; ++round) {
    loss.backward({}, true);
    expect_near(batch.take_gradient(), first, 1);
  }
}

TEST(CrossEntropyGradient, AddsToWhatOtherUsesOfTheLogitsGive) {
  Batch batch(6, 20, false);
  const Tensor logits = batch.logits * 1;
  (nn::cross_entropy(logits, batch.classes, {.reduction = Reduction::sum}) + logits.sum() +
   nn::cross_entropy(logits, batch.classes, {.reduction = Reduction::sum}))
      .backward();
  const std::vector<float> gradient = batch.take_gradient();
  std::vector<float> expected = batch.expected(2);
  for (float& g : expected) {
    g += 1;
  }
  expect_near(gradient, expected, 4);
}

TEST(CrossEntropyGradient, IsZeroForIgnoredRowsWhateverTheyHold) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t size : {2, 20}) {
    Tensor logits = full({2, size}, nan).requires_grad_();
    nn::cross_entropy(logits, tensor<std::int64_t>({kIgnored, kIgnored})).backward();
    EXPECT_EQ(logits.grad().to_vector<float>(), std::vector<float>(static_cast<std::size_t>(2 * size), 0));
  }
}

TEST(CrossEntropyGradient, IsTheSameForAnyNumberOfThreads) {
  manual_seed(5);
  Batch batch(300, 700, true);
  std::vector<std::vector<float>> all;
  for (const int threads : {1, 2, 5}) {
    const test::ThreadCount scope(threads);
    batch.loss().backward();
    all.push_back(batch.take_gradient());
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

// Targets of [rows, classes, ...] and logits that are not dense.
TEST(CrossEntropyGradient, ReachesLogitsOfAnyLayout) {
  const Tensor logits = randn({2, 5, 3}).requires_grad_();
  const Tensor classes = tensor<std::int64_t>({0, 1, 2, 3, 4, 0}).reshape({2, 3});
  nn::cross_entropy(logits, classes).backward();
  const std::vector<float> gradient = logits.grad().to_vector<float>();
  logits.zero_grad();
  (nn::cross_entropy(logits, classes, {.reduction = Reduction::none}).sum() / 6).backward();
  expect_near(gradient, logits.grad().to_vector<float>(), 1);
}

TEST(CrossEntropyGradient, TakesNoKernelInTheBackwardPass) {
  Batch batch(4, 6, false);
  Tensor loss = batch.loss();
  EXPECT_EQ(test::launches_of([&] { loss.backward(); }), std::vector<std::string>());
}

TEST(CrossEntropyGradient, TakesNoExponentialsInTheBackwardPassOfAScaledLoss) {
  Batch batch(4, 6, false);
  Tensor loss = batch.loss() * 2;
  const std::vector<std::string> names = test::launches_of([&] { loss.backward(); });
  EXPECT_EQ(names, (std::vector<std::string>{"fill", "pointwise", "rescale_gradient"}));
}

}  // namespace
}  // namespace tandem
