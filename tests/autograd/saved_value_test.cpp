#include <tandem/autograd/record.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/parameter.h>
#include <tandem/core/error.h>
#include <tandem/optim/sgd.h>

#include "leaves.h"
#include "support/gpu.h"
#include "support/message.h"

// Values that were changed after an op saved them for its backward pass: the error texts, and the cases without error.

namespace tandem {
namespace {

using test::leaf;
using test::message_of;
using test::values;
using ::testing::HasSubstr;

using Values = std::vector<double>;

TEST(SavedValue, ChangedInPlaceIsNamedWithOpAndVersions) {
  const Tensor a = leaf({2, 3});
  Tensor y = a * 2;
  const Tensor loss = exp(y).sum();
  const Tensor squares = (y * y).sum();
  y.add_(1.0);
  EXPECT_NO_THROW(loss.backward({}, true)) << "exp saves its result, not its input";
  EXPECT_EQ(message_of<AutogradError>([&] { squares.backward(); }),
            "backward of 'mul': a tensor [2, 3] that it saved was changed in place since (version 0, now 1). Call "
            "backward() before changing it, or change a copy (.clone())");
}

TEST(SavedValue, OfAParameterIsCalledByItsName) {
  Parameter weight(values({3, 3}));
  autograd::set_parameter_name(weight, "encoder.0.weight");
  const Tensor x = leaf({2, 3});
  const Tensor loss = linear(x, weight).sum();
  {
    const NoGradGuard no_grad;
    weight.add_(1.0);
    weight.add_(1.0);
  }
  EXPECT_EQ(message_of<AutogradError>([&] { loss.backward(); }),
            "backward of 'linear': parameter 'encoder.0.weight' [3, 3] that it saved was changed in place since "
            "(version 0, now 2). Call backward() before changing it, or change a copy (.clone())");
}

TEST(SavedValue, ChangedByAnOptimizerBetweenForwardAndBackward) {
  Parameter weight(values({3, 3}));
  autograd::set_parameter_name(weight, "weight");
  const Tensor x = leaf({2, 3});
  optim::SGD sgd({weight}, {.lr = 0.1});
  linear(x, weight).sum().backward();
  const Tensor late = linear(x, weight).sum();
  sgd.step();
  EXPECT_THAT(message_of<AutogradError>([&] { late.backward(); }),
              HasSubstr("parameter 'weight' [3, 3] that it saved was changed in place since"));
}

TEST(SavedValue, OneOptimizerDoesNotDisturbParametersThatItDoesNotHave) {
  Parameter first(values({3, 3}));
  Parameter second(values({3, 3}, -1, 1, 8));
  optim::SGD both({first, second}, {.lr = 0.1});  // one allocation, two versions
  optim::SGD sgd({first}, {.lr = 0.1});
  const Tensor x = leaf({2, 3});
  linear(x, first).sum().backward();
  const Tensor loss = linear(x, second).sum();
  sgd.step();
  EXPECT_NO_THROW(loss.backward());
}

TEST(SavedValue, ChangedThroughMutableData) {
  TANDEM_SKIP_ON_GPU("the host reads and writes the memory");
  Tensor x = values({3});
  const Tensor weight = leaf({3});
  const Tensor loss = (x * weight).sum();
  x.mutable_data<double>()[1] = 5;
  EXPECT_THROW(loss.backward(), AutogradError);
  const Tensor again = (x * weight).sum();
  x.mutable_span<double>()[1] = 6;
  EXPECT_THROW(again.backward(), AutogradError);
}

TEST(SavedValue, ReadingIsNoChange) {
  TANDEM_SKIP_ON_GPU("the host reads and writes the memory");
  const Tensor x = values({3});
  const Tensor weight = leaf({3});
  const Tensor loss = (x * weight).sum();
  x.data<double>();
  x.span<double>();
  x.to_vector<double>();
  EXPECT_NO_THROW(loss.backward());
}

TEST(SavedValue, RefillingADataBufferIsNoticed) {
  Tensor batch = values({4, 3});
  Tensor target = tensor({0, 1, 2, 0});
  const Tensor weight = leaf({3, 3});
  const Tensor one = cross_entropy(linear(batch, weight), target);
  batch.uniform_();
  EXPECT_THROW(one.backward(), AutogradError);
  const Tensor two = cross_entropy(linear(batch, weight), target);
  target.fill_(1);
  EXPECT_THAT(message_of<AutogradError>([&] { two.backward(); }), HasSubstr("backward of 'cross_entropy'"));
  // Also where the forward pass has computed the gradient already.
  const Tensor logits = full({4, 3}, 0.5).requires_grad_();
  const Tensor three = cross_entropy(logits, target);
  target.fill_(2);
  EXPECT_THAT(message_of<AutogradError>([&] { three.backward(); }), HasSubstr("backward of 'cross_entropy'"));
}

// A value that no gradient needs is not saved: its memory can be released, and it may be changed.
TEST(SavedValue, IsOnlyWhatTheGradientsNeed) {
  const Tensor weight = leaf({2, 3}, 0.5, 2);
  Tensor x = values({2, 3}, 0.5, 2, 8);
  const Values before = x.to_vector<double>();
  const auto change = [](Tensor& t) {
    const NoGradGuard no_grad;
    t.mul_(3.0);
  };
  {
    Tensor y = weight * 1;
    const Tensor loss = (y * x).sum();  // y's gradient needs only x
    y.add_(1.0);
    EXPECT_NO_THROW(loss.backward());
    EXPECT_EQ(weight.grad().to_vector<double>(), before);
  }
  weight.zero_grad();
  {
    Tensor y = weight * 1;
    const Tensor loss = (y / x).sum();
    y.add_(1.0);
    EXPECT_NO_THROW(loss.backward());
    EXPECT_EQ(weight.grad().to_vector<double>(), (1 / x).to_vector<double>());
  }
  {
    Tensor w = values({4, 3});
    Tensor bias = values({4});
    const Tensor loss = linear(weight, w, bias).sum();
    change(bias);
    EXPECT_NO_THROW(loss.backward());
  }
  {
    Tensor y = weight * 1;
    const Tensor w = values({4, 3});
    const Tensor loss = linear(y, w).sum();  // the input's gradient needs only the weight
    y.add_(1.0);
    EXPECT_NO_THROW(loss.backward());
  }
  {
    const Tensor w = leaf({4, 3});
    Tensor frozen = values({2, 3});
    const Tensor loss = linear(frozen, w).sum();  // the weight's gradient needs only the input
    Tensor handle = w;
    change(handle);
    EXPECT_NO_THROW(loss.backward());
  }
  {
    Tensor y = weight * 1;
    const Tensor loss = matmul(y, values({3, 4})).sum();
    y.add_(1.0);
    EXPECT_NO_THROW(loss.backward());
  }
}

// The gradient of a leaf is ordinary memory, and backward() writes to it.
TEST(SavedValue, MayBeTheGradientThatIsBeingAccumulated) {
  for (const bool transposed : {false, true}) {
    const Tensor x = leaf({3, 3});
    (x * x).sum().backward();
    const Values first = x.grad().to_vector<double>();
    const Tensor factor = x.grad().clone();
    const auto use = [&](const Tensor& g) { return (x * (transposed ? g.t() : g)).sum(); };
    Values expected = first;
    const Values added = (transposed ? factor.t() : factor).to_vector<double>();
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] += added[i];
    try {
      use(x.grad()).backward();
    } catch (const AutogradError&) {
      continue;  // a refusal is acceptable
    }
    EXPECT_EQ(x.grad().to_vector<double>(), expected) << (transposed ? "transposed" : "as it is");
  }
}

TEST(SavedValue, IsLetGoByBackward) {
  Tensor x = values({100});
  const Tensor weight = leaf({100});
  const Tensor y = x * weight;
  y.sum().backward();
  EXPECT_NO_THROW(x.fill_(0)) << "nothing depends on it any more";
  EXPECT_THROW(y.sum().backward(), AutogradError);
}

}  // namespace
}  // namespace tandem
