#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "leaves.h"
#include "support/message.h"

// The elementwise losses, and the options of the losses over classes.

namespace tandem {
namespace {

using test::expect_gradient;
using test::kReductions;
using test::leaf;
using test::message_of;
using test::stepped_leaf;
using test::transposed_leaf;
using test::values;

using Tensors = std::vector<Tensor>;

TEST(GradcheckMse, EveryReductionAndLayout) {
  for (const Shape& sizes : {Shape{}, {1}, {7}, {3, 5}, {2, 1, 3}}) {
    for (const Reduction reduction : kReductions) {
      const auto loss = [&](const std::vector<Tensor>& in) { return mse_loss(in[0], in[1], reduction); };
      const Tensor a = leaf(sizes);
      const Tensor b = leaf(sizes, -1, 1, 8);
      expect_gradient(loss, {a, b});
      expect_gradient(loss, {a, test::values(sizes, -1, 1, 8)});
      expect_gradient(loss, {test::values(sizes), b});
      if (sizes.ndim() > 0) {
        expect_gradient(loss, {transposed_leaf(a), stepped_leaf(b)});
      }
      expect_gradient([&](const std::vector<Tensor>& in) { return mse_loss(in[0], in[0] * 2, reduction); }, {a});
      expect_gradient([&](const std::vector<Tensor>& in) { return mse_loss(in[0], in[0], reduction); }, {a});
    }
  }
  expect_gradient([](const std::vector<Tensor>& in) { return mse_loss(in[0], in[1], Reduction::sum); },
                  {leaf({0, 3}), leaf({0, 3})});
}

TEST(GradcheckMse, WithAGradientThatIsNotDense) {
  expect_gradient([](const std::vector<Tensor>& in) { return mse_loss(in[0], in[1], Reduction::none).t(); },
                  {leaf({3, 4}), leaf({3, 4}, -1, 1, 8)});
}

TEST(GradcheckRegression, EveryReductionOnBothSidesOfTheKinks) {
  using Loss = std::function<Tensor(const Tensor&, const Tensor&, Reduction)>;
  const std::vector<std::pair<std::string, Loss>> losses{
      {"l1", [](const auto& a, const auto& b, Reduction r) { return l1_loss(a, b, r); }},
      {"smooth_l1", [](const auto& a, const auto& b, Reduction r) { return smooth_l1_loss(a, b, r); }},
      {"smooth_l1 0.25", [](const auto& a, const auto& b, Reduction r) { return smooth_l1_loss(a, b, r, 0.25); }},
      {"smooth_l1 0", [](const auto& a, const auto& b, Reduction r) { return smooth_l1_loss(a, b, r, 0); }},
      {"huber", [](const auto& a, const auto& b, Reduction r) { return huber_loss(a, b, r); }},
      {"huber 0.25", [](const auto& a, const auto& b, Reduction r) { return huber_loss(a, b, r, 0.25); }},
  };
  for (const auto& [name, function] : losses) {
    SCOPED_TRACE(name);
    for (const Reduction reduction : kReductions) {
      const auto loss = [&, &of = function](const Tensors& in) { return of(in[0], in[1], reduction); };
      for (const Shape& sizes : {Shape{}, {1}, {3, 5}}) {
        const Tensor a = leaf(sizes, -2, 2);
        const Tensor b = leaf(sizes, -2, 2, 8);
        expect_gradient(loss, {a, b});
        expect_gradient(loss, {a, values(sizes, -2, 2, 8)});
        expect_gradient(loss, {values(sizes, -2, 2), b});
      }
      expect_gradient(loss, {transposed_leaf(leaf({3, 4}, -2, 2)), stepped_leaf(leaf({3, 4}, -2, 2, 8))});
    }
    expect_gradient([&, &of = function](const Tensors& in) { return of(in[0], in[1], Reduction::none).t(); },
                    {leaf({3, 4}, -2, 2), leaf({3, 4}, -2, 2, 8)});
    expect_gradient([&, &of = function](const Tensors& in) { return of(in[0], in[1], Reduction::sum); },
                    {leaf({0, 3}), leaf({0, 3})});
  }
}

TEST(GradcheckBinary, EveryReductionAndWeight) {
  for (const Reduction reduction : kReductions) {
    for (const Tensor& weight : {Tensor(), values({3, 5}, 0.5, 2, 9), values({5}, 0.5, 2, 9), values({3, 1}, 0.5, 2)}) {
      const auto of_probabilities = [&](const Tensors& in) {
        return binary_cross_entropy(in[0], in[1], {.weight = weight, .reduction = reduction});
      };
      const Tensor target = leaf({3, 5}, 0.1, 0.9, 8);
      expect_gradient(of_probabilities, {leaf({3, 5}, 0.1, 0.9), target});
      expect_gradient(of_probabilities, {transposed_leaf(leaf({3, 5}, 0.1, 0.9)), stepped_leaf(target)});
      for (const Tensor& pos_weight : {Tensor(), values({5}, 0.5, 3, 10), values({3, 5}, 0.5, 3, 10)}) {
        const auto of_logits = [&](const Tensors& in) {
          return binary_cross_entropy_with_logits(in[0], in[1],
                                                  {.weight = weight, .reduction = reduction, .pos_weight = pos_weight});
        };
        expect_gradient(of_logits, {leaf({3, 5}, -4, 4), target});
        expect_gradient(of_logits, {transposed_leaf(leaf({3, 5}, -4, 4)), stepped_leaf(target)});
        expect_gradient(of_logits, {leaf({3, 5}, -4, 4), values({3, 5}, 0, 1)});
        expect_gradient(of_logits, {values({3, 5}, -4, 4), target});
      }
    }
  }
}

TEST(GradcheckClasses, EveryOptionOfIndices) {
  for (const Shape& sizes : {Shape{4}, {4, 3}, {2, 3, 2}, {2, 3, 2, 2}}) {
    const std::int64_t classes = sizes.ndim() == 1 ? sizes[0] : sizes[1];
    Shape rows = sizes;
    rows.erase(sizes.ndim() == 1 ? 0 : 1);
    const Tensor target = (arange(rows.numel()) * 2 + 1).reshape(rows).to(DType::i64);
    const Tensor wrapped = target - floor(target.to(DType::f64) / classes).to(DType::i64) * classes;
    for (const Reduction reduction : kReductions) {
      for (const std::int64_t ignore_index : {std::int64_t{-100}, std::int64_t{0}}) {
        for (const Tensor& weight : {Tensor(), values({classes}, 0.5, 2, 9)}) {
          const auto nll = [&](const Tensors& in) {
            return nll_loss(in[0], wrapped, {.weight = weight, .ignore_index = ignore_index, .reduction = reduction});
          };
          expect_gradient(nll, {leaf(sizes)});
          expect_gradient(nll, {transposed_leaf(leaf(sizes))});
          for (const double label_smoothing : {0.0, 0.3, 1.0}) {
            const auto entropy = [&](const Tensors& in) {
              return cross_entropy(in[0], wrapped,
                                   {.weight = weight,
                                    .ignore_index = ignore_index,
                                    .reduction = reduction,
                                    .label_smoothing = label_smoothing});
            };
            expect_gradient(entropy, {leaf(sizes, -3, 3)});
            expect_gradient(entropy, {transposed_leaf(leaf(sizes, -3, 3))});
          }
        }
      }
    }
  }
}

TEST(GradcheckClasses, EveryOptionOfProbabilities) {
  for (const Shape& sizes : {Shape{4}, {4, 3}, {2, 3, 2}}) {
    const std::int64_t classes = sizes.ndim() == 1 ? sizes[0] : sizes[1];
    for (const Reduction reduction : kReductions) {
      for (const Tensor& weight : {Tensor(), values({classes}, 0.5, 2, 9)}) {
        for (const double label_smoothing : {0.0, 0.3}) {
          const auto loss = [&](const Tensors& in) {
            return cross_entropy(in[0], in[1],
                                 {.weight = weight, .reduction = reduction, .label_smoothing = label_smoothing});
          };
          const Tensor target = leaf(sizes, 0, 1, 8);
          expect_gradient(loss, {leaf(sizes, -3, 3), target});
          expect_gradient(loss, {transposed_leaf(leaf(sizes, -3, 3)), stepped_leaf(target)});
          expect_gradient(loss, {leaf(sizes, -3, 3), values(sizes, 0, 1)});
          expect_gradient(loss, {values(sizes, -3, 3), target});
        }
      }
    }
  }
  expect_gradient([](const Tensors& in) { return cross_entropy(in[0], softmax(in[0] * 2, 1)); }, {leaf({3, 4})});
}

// Ignored rows get a gradient of exactly zero whatever they contain, because padding often contains nonsense.
TEST(IgnoredRows, HaveNoGradientAndAddNothing) {
  const Tensor x = from_data(std::vector<double>{1, 2, std::nan(""), 4, 0.5, -1}, {3, 2}, {.requires_grad = true});
  const Tensor target = tensor({0, -1, 1});
  for (const double label_smoothing : {0.0, 0.1}) {
    const CrossEntropyLossOptions options{.ignore_index = -1, .label_smoothing = label_smoothing};
    const Tensor loss = cross_entropy(x, target, options);
    const Tensor others = cross_entropy(x.index_select(0, tensor({0, 2})), tensor({0, 1}), options);
    EXPECT_DOUBLE_EQ(loss.item(), others.item());
    x.zero_grad();
    loss.backward();
    EXPECT_EQ(x.grad()[1].to_vector<double>(), (std::vector<double>{0, 0}));
    EXPECT_FALSE(std::isnan(x.grad().sum().item()));
  }
}

TEST(ClassWeights, ThatChangedAfterTheLossAreNoticed) {
  const Tensor x = leaf({3, 3}, -1, 1);
  Tensor weight = values({3}, 0.5, 2);
  const Tensor target = tensor({0, 2, 1});
  const std::vector<std::pair<std::string, Tensor>> losses{
      {"cross_entropy", cross_entropy(x, target, {.weight = weight})},
      {"nll_loss", nll_loss(x, target, {.weight = weight})},
      {"binary_cross_entropy_with_logits",
       binary_cross_entropy_with_logits(x, values({3, 3}, 0, 1),
                                        {.pos_weight = weight.reshape({1, 3}).expand({3, 3})})},
  };
  weight.mul_(2);
  for (const auto& [op, loss] : losses) {
    if (op == "binary_cross_entropy_with_logits") {
      EXPECT_NO_THROW(loss.backward()) << "spread over the logits, it is a copy";
    } else {
      EXPECT_THAT(
          message_of<AutogradError>([&, &made = loss] { made.backward(); }),
          ::testing::AllOf(::testing::HasSubstr("backward of '" + op + "'"), ::testing::HasSubstr("changed in place")));
    }
  }
}

}  // namespace
}  // namespace tandem
