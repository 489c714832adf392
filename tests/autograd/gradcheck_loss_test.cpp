#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "leaves.h"

// Softmax, losses and dropout.

namespace tandem {
namespace {

using test::expect_gradient;
using test::kReductions;
using test::leaf;
using test::stepped_leaf;
using test::transposed_leaf;

TEST(GradcheckSoftmax, AlongEveryDimension) {
  for (const Shape& sizes : {Shape{1}, {5}, {2, 3}, {3, 1}, {2, 3, 4}, {0, 3}, {2, 0}}) {
    for (int dim = -sizes.ndim(); dim < sizes.ndim(); ++dim) {
      SCOPED_TRACE(to_string(sizes) + " along " + std::to_string(dim));
      const Tensor x = leaf(sizes, -3, 3);
      const auto soft = [dim](const std::vector<Tensor>& in) { return softmax(in[0], dim); };
      const auto log_soft = [dim](const std::vector<Tensor>& in) { return log_softmax(in[0], dim); };
      for (const Tensor& in : {x, transposed_leaf(x), stepped_leaf(x)}) {
        expect_gradient(soft, {in});
        expect_gradient(log_soft, {in});
      }
      if (sizes.ndim() == 2) {
        expect_gradient([dim](const std::vector<Tensor>& in) { return softmax(in[0], dim).t(); }, {x});
        expect_gradient([dim](const std::vector<Tensor>& in) { return log_softmax(in[0], dim).t(); }, {x});
      }
      expect_gradient([dim](const std::vector<Tensor>& in) { return softmax(in[0], dim) * log_softmax(in[0], dim); },
                      {x});
    }
  }
}

TEST(GradcheckSoftmax, OfLargeValues) {
  expect_gradient([](const std::vector<Tensor>& in) { return softmax(in[0] * 300, 1); }, {leaf({3, 4})});
  expect_gradient([](const std::vector<Tensor>& in) { return log_softmax(in[0] + 1000, 1); }, {leaf({3, 4})});
}

TEST(GradcheckCrossEntropy, EveryReductionAndLayout) {
  const Tensor logits = leaf({4, 3}, -3, 3);
  const Tensor target = tensor({2, 0, 1, 2});
  for (const Reduction reduction : kReductions) {
    const auto loss = [&](const std::vector<Tensor>& in) {
      return cross_entropy(in[0], target, {.reduction = reduction});
    };
    for (const Tensor& in : {logits, transposed_leaf(logits), stepped_leaf(logits)}) {
      expect_gradient(loss, {in});
    }
    expect_gradient(
        [&](const std::vector<Tensor>& in) { return cross_entropy(in[0], target, {.reduction = reduction}) * 2.5; },
        {logits});
    expect_gradient(
        [&](const std::vector<Tensor>& in) { return cross_entropy(in[0].t(), target, {.reduction = reduction}); },
        {leaf({3, 4})});
    const Tensor stepped = tensor({2, 9, 0, 9, 1, 9, 2}).slice(0, 0, 7, 2);
    expect_gradient(
        [&](const std::vector<Tensor>& in) { return cross_entropy(in[0], stepped, {.reduction = reduction}); },
        {logits});
  }
}

TEST(GradcheckCrossEntropy, SmallestSizes) {
  for (const Reduction reduction : kReductions) {
    // With one class, the loss and its gradient are zero.
    expect_gradient(
        [&](const std::vector<Tensor>& in) { return cross_entropy(in[0], tensor({0, 0}), {.reduction = reduction}); },
        {leaf({2, 1})});
    // Logits without rows.
    const Tensor scalar_target = tensor({1}).reshape({});
    expect_gradient(
        [&](const std::vector<Tensor>& in) { return cross_entropy(in[0], scalar_target, {.reduction = reduction}); },
        {leaf({3})});
  }
  const Tensor none = from_data(std::vector<std::int64_t>{});
  expect_gradient(
      [&](const std::vector<Tensor>& in) { return cross_entropy(in[0], none, {.reduction = Reduction::sum}); },
      {leaf({0, 3})});
  expect_gradient(
      [&](const std::vector<Tensor>& in) { return cross_entropy(in[0], none, {.reduction = Reduction::none}); },
      {leaf({0, 3})});
}

// Every call makes the same draws, so dropout is a function here.
TEST(GradcheckDropout, WithFixedDraws) {
  for (const double p : {0.0, 0.3, 0.5, 0.9, 1.0}) {
    SCOPED_TRACE(p);
    const auto fn = [p](const std::vector<Tensor>& in) {
      Generator fixed(5);
      const GeneratorScope scope(fixed);
      return dropout(in[0], p);
    };
    for (const Shape& sizes : {Shape{}, {1}, {13}, {3, 5}, {0, 3}}) {
      expect_gradient(fn, {leaf(sizes)});
    }
    expect_gradient(fn, {transposed_leaf(leaf({3, 5}))});
    expect_gradient(fn, {stepped_leaf(leaf({3, 5}))});
    expect_gradient([&](const std::vector<Tensor>& in) { return fn(in).t() * in[0].t(); }, {leaf({3, 5})});
  }
  expect_gradient([](const std::vector<Tensor>& in) { return dropout(in[0], 0.5, false); }, {leaf({3, 5})});
}

TEST(GradcheckNetwork, TwoLayersWithSoftmaxLoss) {
  const Tensor target = tensor({1, 0, 2});
  expect_gradient(
      [&](const std::vector<Tensor>& in) {
        const Tensor hidden = linear_relu(in[0], in[1], in[2]);
        return cross_entropy(linear(hidden, in[3], in[4]) + linear(hidden, in[3]), target);
      },
      {leaf({3, 4}), leaf({5, 4}, -1, 1, 2), leaf({5}, -1, 1, 3), leaf({3, 5}, -1, 1, 4), leaf({3}, -1, 1, 5)});
}

}  // namespace
}  // namespace tandem
