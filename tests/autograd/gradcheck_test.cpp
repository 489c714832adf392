#include <tandem/autograd/gradcheck.h>

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/record.h>
#include <tandem/core/error.h>
#include <tandem/tensor/raw.h>

#include "leaves.h"
#include "support/message.h"

// The check on which all others rely: gradcheck must detect wrong gradients.

namespace tandem {
namespace {

using autograd::gradcheck;
using test::leaf;
using test::message_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// x * x with a gradient that `distort` changes before its delivery.
template <class Distort>
Tensor square_with(const Tensor& x, Distort distort) {
  detail::View out = detail::empty_view(x.shape(), x.dtype(), x.device());
  detail::pointwise(kernels::PointwiseOp::mul, out, {&x.raw(), &x.raw()});
  return autograd::record("square", std::move(out), {&x}, [&] {
    return [x = autograd::Saved(x), distort](autograd::Gradients& g) {
      const detail::View& in = x.get(g);
      const detail::View grad = detail::empty_view(in.sizes, in.dtype, in.device());
      detail::pointwise(kernels::PointwiseOp::mul, grad, {&g.output(), &in});
      detail::pointwise(kernels::PointwiseOp::mul_scalar, grad, {&grad}, {2});
      const detail::View host = detail::on_host(grad);
      distort(static_cast<double*>(host.data()));
      if (host.data() != grad.data()) {
        detail::copy(grad, host);
      }
      g.deliver(0, grad, true);
    };
  });
}

template <class Distort>
auto squares(Distort distort) {
  return [distort](const std::vector<Tensor>& in) { return square_with(in[0], distort); };
}

TEST(Gradcheck, AcceptsARightGradient) {
  EXPECT_NO_THROW(gradcheck(squares([](double*) {}), {leaf({3, 5})}));
}

TEST(Gradcheck, NoticesAWrongFactor) {
  const auto wrong = squares([](double* g) {
    for (int i = 0; i < 15; ++i)
      g[i] *= 1.01;
  });
  EXPECT_THROW(gradcheck(wrong, {leaf({3, 5})}), AutogradError);
}

TEST(Gradcheck, NoticesOneWrongElementAndNamesIt) {
  const auto wrong = squares([](double* g) { g[7] += 0.01; });
  EXPECT_THAT(message_of<AutogradError>([&] { gradcheck(wrong, {leaf({3, 5})}); }),
              StartsWith("gradcheck: input 0 [3, 5], element 7: backward gives "));
}

TEST(Gradcheck, NoticesAGradientThatIsNotANumber) {
  const auto wrong = squares([](double* g) { g[0] = std::nan(""); });
  EXPECT_THROW(gradcheck(wrong, {leaf({3, 5})}), AutogradError);
}

TEST(Gradcheck, NoticesAMissingGradient) {
  const auto cut = [](const std::vector<Tensor>& in) { return in[0] * in[1].detach(); };
  EXPECT_EQ(message_of<AutogradError>([&] { gradcheck(cut, {ones({2}, {.dtype = DType::f64})}); }),
            "gradcheck: none of the 1 inputs requires a gradient; call requires_grad_() on those to check");
  EXPECT_THAT(message_of<AutogradError>([&] { gradcheck(cut, {leaf({2}), leaf({2}, -1, 1, 8)}); }),
              HasSubstr("input 1 [2], element 0: backward gives 0"));
}

TEST(Gradcheck, NoticesAGradientThatIsSummedButShouldNotBe) {
  // Equal weights would hide the error, because the sum of the result is unchanged.
  const auto rolled = squares([](double* g) { std::swap(g[0], g[1]); });
  const Tensor x = test::dense_leaf(full({2}, 0.5, {.dtype = DType::f64}));
  EXPECT_THROW(gradcheck(rolled, {x}), AutogradError);
}

TEST(Gradcheck, PassesOverInputsThatNeedNoGradient) {
  const auto product = [](const std::vector<Tensor>& in) { return in[0] * in[1]; };
  EXPECT_NO_THROW(gradcheck(product, {leaf({2, 3}), test::values({3})}));
}

TEST(Gradcheck, LeavesInputsAsTheyWere) {
  const Tensor x = leaf({4});
  const std::vector<double> before = x.to_vector<double>();
  EXPECT_NO_THROW(gradcheck(squares([](double*) {}), {x}));
  EXPECT_EQ(x.to_vector<double>(), before);
}

TEST(Gradcheck, ForgetsWhatWasAccumulatedBefore) {
  const Tensor x = leaf({4});
  (x * 100).sum().backward();
  EXPECT_NO_THROW(gradcheck(squares([](double*) {}), {x}));
}

TEST(Gradcheck, IsForF64) {
  EXPECT_EQ(message_of<DTypeError>([] {
              gradcheck([](const std::vector<Tensor>& in) { return in[0]; }, {ones({2}, {.requires_grad = true})});
            }),
            "gradcheck: inputs must be f64 (differences in f32 say little), got f32");
}

}  // namespace
}  // namespace tandem
