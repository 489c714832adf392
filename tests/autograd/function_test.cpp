#include <algorithm>
#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/function.h>
#include <tandem/autograd/grad.h>
#include <tandem/tensor/factories.h>

#include "leaves.h"
#include "support/message.h"

// Tests of functions with gradients of their own.

namespace tandem {
namespace {

using autograd::Function;
using test::expect_gradient;
using test::leaf;
using test::message_of;
using ::testing::Each;
using ::testing::ElementsAre;

struct Swish : Function<Swish> {
  static Tensor forward(Context& context, const Tensor& x) {
    context.save(x);
    return x * sigmoid(x);
  }
  static Tensor backward(Context& context, const Tensor& grad) {
    const auto [x] = context.saved<1>();
    const Tensor s = sigmoid(x);
    return grad * s * (1 + x * (1 - s));
  }
};

struct SavesItsResult : Function<SavesItsResult> {
  static Tensor forward(Context& context, const Tensor& x) {
    Tensor y = x.exp();
    context.save(y);
    return y;
  }
  static Tensor backward(Context& context, const Tensor& grad) {
    const auto [y] = context.saved<1>();
    return grad * y;
  }
};

struct ScaledProductAndSum : Function<ScaledProductAndSum> {
  static std::array<Tensor, 2> forward(Context& context, const Tensor& x, double scale, const Tensor& y) {
    context.save(x, y, full({}, scale, {.dtype = x.dtype()}));
    return {x * y * scale, x + y};
  }
  static std::array<Tensor, 2> backward(Context& context, const Tensor& of_product, const Tensor& of_sum) {
    const auto [x, y, scale] = context.saved<3>();
    return {of_product * y * scale + of_sum, of_product * x * scale + of_sum};
  }
};

struct KeepsItsGradient : Function<KeepsItsGradient> {
  static inline Tensor kept;
  static Tensor forward(Context&, const Tensor& x) { return x * 2; }
  static Tensor backward(Context&, const Tensor& grad) {
    kept = grad * 2;
    return kept;
  }
};

struct GivesABuffer : Function<GivesABuffer> {
  static inline double buffer[3];
  static Tensor forward(Context&, const Tensor& x) { return x * 2; }
  static Tensor backward(Context&, const Tensor& grad) {
    const std::vector<double> values = (grad * 2).to_vector<double>();
    std::copy(values.begin(), values.end(), buffer);
    return from_blob(buffer, {3});
  }
};

struct HandsOn : Function<HandsOn> {
  static std::array<Tensor, 2> forward(Context&, const Tensor& x) { return {x * 1, x * 1}; }
  static Tensor backward(Context&, const Tensor& a, const Tensor&) { return a; }
};

struct Largest : Function<Largest> {
  static std::vector<Tensor> forward(Context& context, const Tensor& x) {
    const Tensor at = x.argmax(0);
    const Tensor copy = x.clone();
    context.save(at, x);
    context.mark_non_differentiable(copy);
    return {x.max(0), at, copy};
  }
  static Tensor backward(Context& context, const std::vector<Tensor>& grads) {
    const auto [at, x] = context.saved<2>();
    return zeros_like(x).scatter_add(0, at.reshape({1}), grads[0].reshape({1}));
  }
};

struct Reversed : Function<Reversed> {
  static Tensor forward(Context&, const Tensor& x) { return x; }
  static Tensor backward(Context&, const Tensor& grad) { return -grad; }
};

struct OfAnotherShape : Function<OfAnotherShape> {
  static Tensor forward(Context&, const Tensor& x) { return x * 2; }
  static Tensor backward(Context&, const Tensor& grad) { return grad.sum(); }
};

struct OneTooFew : Function<OneTooFew> {
  static Tensor forward(Context&, const Tensor& x, const Tensor&) { return x * 2; }
  static Tensor backward(Context&, const Tensor& grad) { return grad; }
};

struct Once : Function<Once> {
  static Tensor forward(Context& context, const Tensor& x) {
    context.set_once_differentiable();
    return x * 2;
  }
  static Tensor backward(Context&, const Tensor& grad) { return grad * 2; }
};

TEST(OwnFunction, HasFirstAndSecondDerivatives) {
  expect_gradient([](const auto& in) { return Swish::apply(in[0]); }, {leaf({2, 3}, -2, 2)});
  expect_gradient([](const auto& in) { return SavesItsResult::apply(in[0]); }, {leaf({3})});
  expect_gradient(
      [](const auto& in) {
        const auto [product, sum] = ScaledProductAndSum::apply(in[0], 3.0, in[1]);
        return product * sum;
      },
      {leaf({3}), leaf({3}, -1, 1, 8)});
  expect_gradient([](const auto& in) { return ScaledProductAndSum::apply(in[0], 3.0, in[1])[1]; },
                  {leaf({3}), leaf({3}, -1, 1, 8)});
  expect_gradient([](const auto& in) { return Largest::apply(in[0])[0]; }, {leaf({3})});
}

TEST(OwnFunction, MayReturnItsInput) {
  const Tensor x = leaf({3});
  Reversed::apply(x).sum().backward();
  EXPECT_THAT(x.grad().to_vector<double>(), Each(-1));
}

TEST(OwnFunction, GivesAwayNoGradientThatSomebodyElseHas) {
  const Tensor x = leaf({3});
  for (int pass = 0; pass < 2; ++pass) {
    (KeepsItsGradient::apply(x) + x).sum().backward();
    EXPECT_THAT(KeepsItsGradient::kept.to_vector<double>(), Each(2));
  }
  EXPECT_THAT(x.grad().to_vector<double>(), Each(6));
  KeepsItsGradient::kept = Tensor();

  x.zero_grad();
  for (int pass = 0; pass < 2; ++pass) {
    (GivesABuffer::apply(x) + x).sum().backward();
    EXPECT_THAT(GivesABuffer::buffer, Each(2));
  }
  EXPECT_THAT(x.grad().to_vector<double>(), Each(6));

  x.zero_grad();
  const Tensor y = x * 1;
  const Tensor handed = HandsOn::apply(y)[0];
  handed.retain_grad();
  ((y * 3).sum() + handed.sum()).backward();
  EXPECT_THAT(x.grad().to_vector<double>(), Each(4));
  EXPECT_THAT(handed.grad().to_vector<double>(), Each(1));
}

TEST(OwnFunction, HasNoHistoryWhereNobodyAsks) {
  const Tensor x = leaf({3});
  EXPECT_FALSE(Swish::apply(ones({3})).requires_grad());
  const std::vector<Tensor> results = Largest::apply(x);
  EXPECT_TRUE(results[0].requires_grad());
  EXPECT_FALSE(results[1].requires_grad()) << "integers";
  EXPECT_FALSE(results[2].requires_grad()) << "not differentiable";
  const NoGradGuard no_grad;
  EXPECT_FALSE(Swish::apply(x).requires_grad());
}

TEST(OwnFunction, IsNamedInErrors) {
  const Tensor x = leaf({3});
  EXPECT_EQ(message_of<ShapeError>([&] { OfAnotherShape::apply(x).sum().backward(); }),
            "OfAnotherShape: backward() returned [] as the gradient of input 0, which is [3]\n"
            "  in the backward pass of 'OfAnotherShape'");
  EXPECT_EQ(message_of<AutogradError>([&] { OneTooFew::apply(x, x).sum().backward(); }),
            "OneTooFew: backward() returned 1 gradients, and apply() got 2 tensors\n"
            "  in the backward pass of 'OneTooFew'");
  EXPECT_EQ(
      message_of<AutogradError>([&] { autograd::grad(Once::apply(x).sum(), std::array{x}, {.create_graph = true}); }),
      "grad: 'Once' has no second derivative: leave create_graph out, or compute it by ops that have one");
}

TEST(OwnFunction, FindsSavedValuesThatWereChanged) {
  const Tensor x = leaf({3});
  Tensor h = x * 1;
  const Tensor y = Swish::apply(h);
  {
    const NoGradGuard no_grad;
    h.zero_();
  }
  EXPECT_EQ(message_of<AutogradError>([&] { y.sum().backward(); }),
            "backward of 'Swish': a tensor [3] that it saved was changed in place since (version 0, now 1). Call "
            "backward() before changing it, or change a copy (.clone())");
}

}  // namespace
}  // namespace tandem
