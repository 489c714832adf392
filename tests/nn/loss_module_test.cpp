#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/loss.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

// Tests of losses as modules, in every floating point type and at extreme values.

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Values = std::vector<double>;

const DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

Tensor leaf_of(const Values& values, DType dtype = DType::f64) {
  Tensor made = from_data(values).to(dtype);
  return made.requires_grad_();
}

std::vector<std::string> names_of(const nn::ModuleBase& module) {
  std::vector<std::string> names;
  for (const auto& [name, buffer] : module.named_buffers()) {
    names.push_back(name);
  }
  return names;
}

TEST(LossModules, AreTheFunctionsWithTheirOptions) {
  const Tensor x = randn({4, 3});
  const Tensor y = randn({4, 3});
  const Tensor target = tensor({0, 2, 1, 2});
  const Tensor weight = tensor({0.5, 2.0, 1.0});
  const auto expect_equal = [](const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.shape(), b.shape());
    EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>());
  };
  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    expect_equal(nn::MSELoss(reduction)(x, y), mse_loss(x, y, reduction));
    expect_equal(nn::L1Loss(reduction)(x, y), l1_loss(x, y, reduction));
    expect_equal(nn::SmoothL1Loss(reduction, 0.5)(x, y), smooth_l1_loss(x, y, reduction, 0.5));
    expect_equal(nn::HuberLoss(reduction, 0.5)(x, y), huber_loss(x, y, reduction, 0.5));
    const BCELossOptions binary{.weight = weight, .reduction = reduction};
    expect_equal(nn::BCELoss(binary)(x.sigmoid(), y), binary_cross_entropy(x.sigmoid(), y, binary));
    const BCEWithLogitsLossOptions logits{.weight = weight, .reduction = reduction, .pos_weight = weight + 1};
    expect_equal(nn::BCEWithLogitsLoss(logits)(x, y), binary_cross_entropy_with_logits(x, y, logits));
    const NLLLossOptions likelihood{.weight = weight, .ignore_index = 1, .reduction = reduction};
    expect_equal(nn::NLLLoss(likelihood)(x, target), nll_loss(x, target, likelihood));
    const CrossEntropyLossOptions entropy{
        .weight = weight, .ignore_index = 1, .reduction = reduction, .label_smoothing = 0.1};
    expect_equal(nn::CrossEntropyLoss(entropy)(x, target), cross_entropy(x, target, entropy));
  }
}

TEST(LossModules, KeepTheirWeightsAsBuffers) {
  const Tensor weight = tensor({0.5, 2.0, 1.0});
  nn::CrossEntropyLoss entropy({.weight = weight});
  EXPECT_THAT(names_of(entropy), ElementsAre("weight"));
  EXPECT_THAT(names_of(nn::NLLLoss({.weight = weight})), ElementsAre("weight"));
  EXPECT_THAT(names_of(nn::BCELoss({.weight = weight})), ElementsAre("weight"));
  EXPECT_THAT(names_of(nn::BCEWithLogitsLoss({.weight = weight, .pos_weight = weight})),
              ElementsAre("weight", "pos_weight"));
  EXPECT_THAT(names_of(nn::BCEWithLogitsLoss({.pos_weight = weight})), ElementsAre("pos_weight"));
  EXPECT_THAT(names_of(nn::CrossEntropyLoss()), IsEmpty());
  EXPECT_THAT(entropy.parameters(), IsEmpty());

  const Device here = weight.device();
  entropy.to("cpu:1");
  entropy.to(DType::f64);
  EXPECT_EQ(entropy.weight.device(), Device("cpu:1"));
  EXPECT_EQ(weight.device(), here) << "what was handed in stays";
  const Tensor x = randn({2, 3}, {.dtype = DType::f64, .device = "cpu:1"});
  EXPECT_EQ(entropy(x, tensor({0, 1}).to("cpu:1")).dtype(), DType::f64);

  nn::CrossEntropyLoss other({.weight = zeros({3}, {.dtype = DType::f64})});
  other.load_state_dict(entropy.state_dict());
  EXPECT_EQ(other.weight.to_vector<double>(), (Values{0.5, 2, 1}));
}

// A loss has nothing to train, so it need not be registered.
TEST(LossModules, MayBeCalledWithinAModelThatDoesNotKnowThem) {
  struct Model : nn::Module<Model> {
    nn::Linear fc = child("fc", nn::Linear(2, 3));
    nn::CrossEntropyLoss loss{{.weight = ones({3})}};
    Tensor forward(const Tensor& x) const { return loss(fc(x), tensor({0, 1})); }
  };
  EXPECT_NO_THROW(Model()(ones({2, 2})).backward());
}

TEST(LossTypes, SixteenBitsAreComputedInF32AndRoundedOnce) {
  const Tensor x = randn({5, 4});
  const Tensor p = rand({5, 4});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor narrow = x.to(dtype);
    const Tensor wide = narrow.to(DType::f32);
    const Tensor narrow_p = p.to(dtype);
    const Tensor wide_p = narrow_p.to(DType::f32);
    const auto expect_rounded = [&](const auto& loss) {
      const Tensor a = narrow.clone().requires_grad_();
      const Tensor b = wide.clone().requires_grad_();
      const Tensor got = loss(a, narrow_p);
      const Tensor expected = loss(b, wide_p);
      EXPECT_EQ(got.dtype(), dtype);
      EXPECT_EQ(got.to_vector<double>(), expected.to(dtype).template to_vector<double>());
      got.backward(ones(got.shape(), {.dtype = dtype}));
      expected.backward(ones(got.shape()));
      EXPECT_EQ(a.grad().template to_vector<double>(), b.grad().to(dtype).template to_vector<double>());
    };
    for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
      const Tensor target = tensor({0, 3, 1, 2, 2});
      expect_rounded(
          [&](const Tensor& a, const Tensor&) { return cross_entropy(a, target, {.reduction = reduction}); });
      expect_rounded([&](const Tensor& a, const Tensor& b) {
        return cross_entropy(a, b, {.reduction = reduction, .label_smoothing = 0.1});
      });
      expect_rounded([&](const Tensor& a, const Tensor&) { return nll_loss(a, target, {.reduction = reduction}); });
      expect_rounded([&](const Tensor& a, const Tensor& b) { return mse_loss(a, b, reduction); });
      expect_rounded([&](const Tensor& a, const Tensor& b) { return l1_loss(a, b, reduction); });
      expect_rounded([&](const Tensor& a, const Tensor& b) { return smooth_l1_loss(a, b, reduction); });
      expect_rounded([&](const Tensor& a, const Tensor& b) { return huber_loss(a, b, reduction); });
      expect_rounded([&](const Tensor& a, const Tensor& b) {
        return binary_cross_entropy_with_logits(a, b, {.reduction = reduction});
      });
    }
  }
}

TEST(LossStability, LogitsOfAnySize) {
  for (const DType dtype : kFloats) {
    const Tensor logits = leaf_of({1e4, -1e4, 1e4, -1e4}, dtype);
    const Tensor target = tensor({1.0, 0.0, 0.0, 1.0}).to(dtype);
    const Tensor loss = binary_cross_entropy_with_logits(logits, target, {.reduction = Reduction::none});
    EXPECT_EQ(loss.to_vector<double>(), (Values{0, 0, logits.to_vector<double>()[0], logits.to_vector<double>()[0]}));
    loss.sum().backward();
    EXPECT_EQ(logits.grad().to_vector<double>(), (Values{0, 0, 1, -1}));
  }
  // Far from zero the loss is exp(-|x|), not 0: no digits may be lost.
  const Tensor small = binary_cross_entropy_with_logits(tensor({-30.0}), tensor({0.0}));
  EXPECT_NEAR(small.item() / std::exp(-30.0), 1, 1e-6);
}

TEST(LossStability, ManyClassesFarApart) {
  constexpr std::int64_t kClasses = 1000;
  const Tensor logits = (arange(kClasses).to(DType::f32).reshape({1, kClasses}) * 20.0 - 1e4).requires_grad_();
  const Tensor soft = full({1, kClasses}, 1.0 / kClasses);
  for (const double label_smoothing : {0.0, 0.1}) {
    const Tensor loss = cross_entropy(logits, tensor({7}), {.label_smoothing = label_smoothing});
    EXPECT_TRUE(std::isfinite(loss.item()));
    logits.zero_grad();
    loss.backward();
    EXPECT_NEAR(logits.grad().sum().item(), 0, 1e-6);
  }
  EXPECT_NEAR(cross_entropy(logits, soft).item(), 9990, 0.1) << "the highest logit is 9980, their mean -10";
}

TEST(LossStability, CertainProbabilities) {
  const Tensor x = leaf_of({0, 1, 0, 1});
  const Tensor loss = binary_cross_entropy(x, from_data(Values{0, 1, 1, 0}), {.reduction = Reduction::none});
  EXPECT_EQ(loss.to_vector<double>(), (Values{0, 0, 100, 100})) << "logarithms end at -100";
  loss.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 0, -1e12, 1e12}));

  const Tensor logits = from_data(Values{0, -HUGE_VAL, 0}, {1, 3});
  EXPECT_NEAR(cross_entropy(logits, from_data(Values{1, 0, 0}, {1, 3})).item(), std::log(2.0), 1e-15)
      << "an impossible class with probability zero";
}

TEST(LossStability, KinksHaveNoSlopeInTheMiddle) {
  const Tensor x = leaf_of({1, 2, 3});
  const Tensor y = from_data(Values{1, 2, 3});
  for (const Tensor& loss : {l1_loss(x, y), smooth_l1_loss(x, y), smooth_l1_loss(x, y, Reduction::mean, 0),
                             huber_loss(x, y), mse_loss(x, y)}) {
    EXPECT_EQ(loss.item(), 0);
    x.zero_grad();
    loss.backward();
    EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 0, 0}));
  }
}

TEST(LossReduction, OfNothingAndOfIgnoredTargets) {
  const Tensor none = zeros({0, 3});
  const std::vector<Tensor> means{l1_loss(none, none),
                                  smooth_l1_loss(none, none),
                                  huber_loss(none, none),
                                  binary_cross_entropy(none, none),
                                  binary_cross_entropy_with_logits(none, none),
                                  cross_entropy(none, none),
                                  nll_loss(none, zeros({0}, {.dtype = DType::i64}))};
  for (const Tensor& loss : means) {
    EXPECT_TRUE(std::isnan(loss.item()));
  }
  const Tensor x = randn({2, 3}).requires_grad_();
  const Tensor ignored = full({2}, -100, {.dtype = DType::i64});
  for (const double label_smoothing : {0.0, 0.1}) {
    const Tensor loss = cross_entropy(x, ignored, {.label_smoothing = label_smoothing});
    EXPECT_TRUE(std::isnan(loss.item()));
    x.zero_grad();
    loss.backward();
    EXPECT_EQ(x.grad().to_vector<double>(), Values(6, 0)) << "as in PyTorch";
  }
  EXPECT_TRUE(std::isnan(nll_loss(x, ignored).item()));
  EXPECT_EQ(nll_loss(x, ignored, {.reduction = Reduction::sum}).item(), 0);
}

}  // namespace
}  // namespace tandem
