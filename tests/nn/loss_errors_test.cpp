#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/nn/loss.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/message.h"

// Tests of the exact error messages of losses.

namespace tandem {
namespace {

using test::message_of;

Tensor indices(const std::vector<std::int64_t>& values) { return from_data(values); }

TEST(CrossEntropyErrors, ATargetThatIsNoClassIsNamedWithItsRow) {
  const Tensor logits = zeros({4, 5});
  EXPECT_EQ(message_of<ValueError>([&] { cross_entropy(logits, tensor({0, 4, 7, 1})); }),
            "cross_entropy: target 7 in row 2 is not a class index: expected 0 to 4, or -100 (ignore_index)");
  EXPECT_EQ(message_of<ValueError>([&] { cross_entropy(logits, tensor({0, -1, 7, 1}), {.ignore_index = 7}); }),
            "cross_entropy: target -1 in row 1 is not a class index: expected 0 to 4, or 7 (ignore_index)");
  EXPECT_EQ(message_of<ValueError>([&] { nn::CrossEntropyLoss()(logits, tensor({5, 0, 0, 0})); }),
            "CrossEntropyLoss: cross_entropy: target 5 in row 0 is not a class index: expected 0 to 4, or -100 "
            "(ignore_index)");
  EXPECT_EQ(message_of<ValueError>([&] { nll_loss(logits, tensor({0, 4, 7, 1})); }),
            "nll_loss: target 7 in row 2 is not a class index: expected 0 to 4, or -100 (ignore_index)");
  EXPECT_NO_THROW(cross_entropy(logits, tensor({0, -100, -100, 1})));
}

TEST(CrossEntropyErrors, ATargetOfSeveralDimensionsIsNamedWithItsPlace) {
  TANDEM_SKIP_ON_GPU("a GPU names the row: it counts places in one dimension");
  EXPECT_EQ(message_of<ValueError>([] { cross_entropy(zeros({2, 3, 2}), indices({0, 1, 2, 3}).reshape({2, 2})); }),
            "cross_entropy: target 3 in place [1, 1] is not a class index: expected 0 to 2, or -100 (ignore_index)");
}

TEST(CrossEntropyErrors, ShapesOfIndices) {
  const Tensor logits = zeros({4, 5});
  EXPECT_EQ(message_of<ShapeError>([&] { cross_entropy(logits, tensor({0, 1})); }),
            "cross_entropy: expected logits [rows, classes] and targets [rows], got [4, 5] and [2]");
  EXPECT_EQ(message_of<ShapeError>([&] { cross_entropy(zeros({4, 5, 2}), tensor({0, 1, 2, 3})); }),
            "cross_entropy: expected logits [rows, classes, ...] and targets [rows, ...], got [4, 5, 2] and [4]");
  EXPECT_EQ(message_of<ShapeError>([&] { nll_loss(logits, tensor({0, 1})); }),
            "nll_loss: expected log_probs [rows, classes] and targets [rows], got [4, 5] and [2]");
  for (const auto& loss : std::vector<std::function<void(const Tensor&, const Tensor&)>>{
           [](const Tensor& x, const Tensor& y) { cross_entropy(x, y); },
           [](const Tensor& x, const Tensor& y) { nll_loss(x, y); }}) {
    EXPECT_THROW(loss(logits, tensor({0, 1, 2, 3}).reshape({4, 1})), ShapeError);
    EXPECT_THROW(loss(zeros({4, 0}), tensor({0, 1, 2, 3})), ShapeError);
    EXPECT_THROW(loss(zeros({0, 0}), indices({})), ShapeError);
    EXPECT_THROW(loss(zeros({}), tensor({0}).reshape({})), ShapeError);
    EXPECT_THROW(loss(zeros({5}), tensor({0})), ShapeError);
  }
}

TEST(CrossEntropyErrors, TypesAndDevices) {
  const Tensor logits = zeros({4, 5});
  EXPECT_EQ(message_of<DTypeError>([&] { cross_entropy(logits, tensor({0.0, 1.0, 2.0, 3.0})); }),
            "cross_entropy: targets must be class indices of type i64, got f32; convert with .to(DType::i64)");
  EXPECT_EQ(message_of<DTypeError>([&] { cross_entropy(logits, tensor({0, 1, 2, 3}).to(DType::i32)); }),
            "cross_entropy: targets must be class indices of type i64, got i32; convert with .to(DType::i64)");
  EXPECT_EQ(message_of<DTypeError>([&] { nll_loss(logits, zeros({4, 5})); }),
            "nll_loss: targets must be class indices of type i64, got f32; convert with .to(DType::i64)");
  EXPECT_EQ(message_of<DTypeError>([&] { cross_entropy(tensor({1, 2}), tensor({0}).reshape({})); }),
            "cross_entropy: needs floating point, got i64 [2]; convert with .to(DType::f32)");
  EXPECT_EQ(message_of<DeviceError>([&] { cross_entropy(logits, tensor({0, 1, 2, 3}).to("cpu:1")); }),
            "cross_entropy: logits are on cpu:0, targets on cpu:1. Move the targets: y.to(\"cpu:0\")");
  EXPECT_EQ(message_of<DeviceError>([&] { nll_loss(logits, tensor({0, 1, 2, 3}).to("cpu:1")); }),
            "nll_loss: log_probs are on cpu:0, targets on cpu:1. Move the targets: y.to(\"cpu:0\")");
}

TEST(CrossEntropyErrors, Probabilities) {
  const Tensor logits = zeros({4, 5});
  EXPECT_EQ(message_of<ShapeError>([&] { cross_entropy(logits, zeros({5, 4})); }),
            "cross_entropy: targets of type f32 are probabilities: expected the shape of the logits, [4, 5] with a "
            "class or more, got [5, 4]. Class indices are of type i64");
  EXPECT_EQ(message_of<DTypeError>([&] { cross_entropy(logits, zeros({4, 5}, {.dtype = DType::f64})); }),
            "cross_entropy: expected one dtype, got f32 [4, 5] and f64 [4, 5]; convert one with .to(DType::f64)");
  EXPECT_EQ(message_of<DeviceError>([&] { cross_entropy(logits, logits.to("cpu:1")); }),
            "cross_entropy: logits are on cpu:0, targets on cpu:1. Move the targets: y.to(\"cpu:0\")");
  EXPECT_EQ(message_of<ConfigError>([&] { cross_entropy(logits, logits, {.ignore_index = 2}); }),
            "cross_entropy: ignore_index is 2, but the targets are probabilities [4, 5]: no class index is there to "
            "ignore");
  EXPECT_THROW(cross_entropy(zeros({4, 0}), zeros({4, 0})), ShapeError);
  EXPECT_THROW(cross_entropy(zeros({}), zeros({})), ShapeError);
}

TEST(CrossEntropyErrors, Options) {
  const Tensor logits = zeros({4, 5});
  const Tensor target = tensor({0, 1, 2, 3});
  EXPECT_EQ(message_of<ConfigError>([&] { cross_entropy(logits, target, {.label_smoothing = 1.5}); }),
            "cross_entropy: label_smoothing must be between 0 and 1, got 1.5");
  EXPECT_THROW(cross_entropy(logits, target, {.label_smoothing = -0.1}), ConfigError);
  EXPECT_THROW(cross_entropy(logits, target, {.label_smoothing = std::nan("")}), ConfigError);
  EXPECT_EQ(message_of<ShapeError>([&] { cross_entropy(logits, target, {.weight = ones({4})}); }),
            "cross_entropy: expected one weight for each of the 5 classes of the logits [4, 5], got [4]");
  EXPECT_THROW(cross_entropy(logits, target, {.weight = ones({1, 5})}), ShapeError);
  EXPECT_EQ(message_of<DTypeError>([&] { nll_loss(logits, target, {.weight = ones({5}, {.dtype = DType::f64})}); }),
            "nll_loss: log_probs are f32, weight is f64; convert with .to(DType::f32)");
  EXPECT_EQ(message_of<DeviceError>([&] { cross_entropy(logits, target, {.weight = ones({5}).to("cpu:1")}); }),
            "cross_entropy: logits are on cpu:0, weight on cpu:1; move one with .to(device)");
  EXPECT_EQ(
      message_of<AutogradError>([&] { cross_entropy(logits, target, {.weight = ones({5}, {.requires_grad = true})}); }),
      "cross_entropy: weight requires a gradient, but has none here; hand in weight.detach()");
}

TEST(RegressionErrors, NothingIsBroadcast) {
  EXPECT_EQ(message_of<ShapeError>([] { mse_loss(zeros({4, 1}), zeros({4})); }),
            "mse_loss: input [4, 1] and target [4] differ; reshape one (y.reshape({-1, 1}) for a column)");
  EXPECT_EQ(message_of<ShapeError>([] { nn::MSELoss()(zeros({4}), zeros({})); }),
            "MSELoss: input [4] and target [] differ");
  using Loss = Tensor (*)(const Tensor&, const Tensor&);
  const std::vector<std::pair<std::string, Loss>> losses{
      {"mse_loss", [](const Tensor& x, const Tensor& y) { return mse_loss(x, y); }},
      {"l1_loss", [](const Tensor& x, const Tensor& y) { return l1_loss(x, y); }},
      {"smooth_l1_loss", [](const Tensor& x, const Tensor& y) { return smooth_l1_loss(x, y); }},
      {"huber_loss", [](const Tensor& x, const Tensor& y) { return huber_loss(x, y); }},
      {"binary_cross_entropy", [](const Tensor& x, const Tensor& y) { return binary_cross_entropy(x, y); }},
  };
  for (const auto& [op, loss] : losses) {
    EXPECT_EQ(message_of<ShapeError>([&, of = loss] { of(zeros({4, 1}), zeros({4})); }),
              op + ": input [4, 1] and target [4] differ; reshape one (y.reshape({-1, 1}) for a column)");
    if (op == "huber_loss" || op == "binary_cross_entropy") {
      EXPECT_EQ(message_of<DTypeError>([&, of = loss] { of(zeros({2}), zeros({2}, {.dtype = DType::f64})); }),
                op + ": expected one dtype, got f32 [2] and f64 [2]; convert one with .to(DType::f64)");
      EXPECT_EQ(message_of<DTypeError>([&, of = loss] { of(zeros({2}), tensor({1, 0})); }),
                op + ": expected one dtype, got f32 [2] and i64 [2]; convert one with .to(DType::f32)");
    }
    EXPECT_EQ(message_of<DTypeError>([&, of = loss] { of(tensor({1, 2}), tensor({1, 2})); }),
              op + ": needs floating point, got i64 [2]; convert with .to(DType::f32)");
    EXPECT_THROW(loss(zeros({2}), zeros({2}, {.device = "cpu:1"})), DeviceError);
  }
}

TEST(RegressionErrors, Thresholds) {
  EXPECT_EQ(message_of<ConfigError>([] { huber_loss(zeros({2}), zeros({2}), Reduction::mean, 0); }),
            "huber_loss: delta must be positive, got 0");
  EXPECT_THROW(huber_loss(zeros({2}), zeros({2}), Reduction::mean, std::nan("")), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([] { nn::HuberLoss(Reduction::mean, -1)(zeros({2}), zeros({2})); }),
            "HuberLoss: delta must be positive, got -1");
  EXPECT_EQ(message_of<ConfigError>([] { smooth_l1_loss(zeros({2}), zeros({2}), Reduction::mean, -0.5); }),
            "smooth_l1_loss: beta must not be negative, got -0.5");
}

TEST(BinaryErrors, ProbabilitiesAndWeights) {
  const Tensor x = zeros({4, 5});
  EXPECT_EQ(message_of<ValueError>([] { binary_cross_entropy(tensor({0.5, 1.25}), zeros({2})); }),
            "binary_cross_entropy: element 1 of the input is 1.25, expected a probability between 0 and 1; for logits "
            "use binary_cross_entropy_with_logits");
  EXPECT_THROW(binary_cross_entropy(tensor({-0.5}), zeros({1})).item(), ValueError);
  EXPECT_THROW(binary_cross_entropy(tensor({std::nan("")}), zeros({1})).item(), ValueError);
  EXPECT_EQ(message_of<ShapeError>([&] { binary_cross_entropy(x, x, {.weight = ones({4})}); }),
            "binary_cross_entropy: weight [4] does not broadcast to the input [4, 5]");
  EXPECT_EQ(message_of<ShapeError>([&] { binary_cross_entropy_with_logits(x, x, {.pos_weight = ones({2, 4, 5})}); }),
            "binary_cross_entropy_with_logits: pos_weight [2, 4, 5] does not broadcast to the logits [4, 5]");
  EXPECT_EQ(message_of<ShapeError>([&] { binary_cross_entropy_with_logits(x, zeros({5})); }),
            "binary_cross_entropy_with_logits: logits [4, 5] and target [5] differ");
  EXPECT_EQ(message_of<DTypeError>(
                [&] { binary_cross_entropy_with_logits(x, x, {.pos_weight = ones({5}, {.dtype = DType::f64})}); }),
            "binary_cross_entropy_with_logits: logits are f32, pos_weight is f64; convert with .to(DType::f32)");
  EXPECT_EQ(message_of<AutogradError>(
                [&] { binary_cross_entropy_with_logits(x, x, {.weight = ones({5}, {.requires_grad = true})}); }),
            "binary_cross_entropy_with_logits: weight requires a gradient, but has none here; hand in "
            "weight.detach()");
}

}  // namespace
}  // namespace tandem
