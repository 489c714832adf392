#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "leaves.h"

// Elementwise functions of one tensor, for many shapes and layouts.

namespace tandem {
namespace {

using test::expect_gradient;

struct Unary {
  const char* name;
  Tensor (*fn)(const Tensor&);
  double low;
  double high;
};

std::ostream& operator<<(std::ostream& out, const Unary& unary) { return out << unary.name; }

const Unary kUnary[] = {
    {"neg", [](const Tensor& x) { return -x; }, -2, 2},
    {"exp", [](const Tensor& x) { return exp(x); }, -2, 2},
    {"log", [](const Tensor& x) { return log(x); }, 0.2, 3},
    {"sqrt", [](const Tensor& x) { return sqrt(x); }, 0.2, 3},
    {"abs_of_positive", [](const Tensor& x) { return abs(x); }, 0.1, 2},
    {"abs_of_negative", [](const Tensor& x) { return abs(x); }, -2, -0.1},
    {"relu_of_positive", [](const Tensor& x) { return relu(x); }, 0.1, 2},
    {"relu_of_negative", [](const Tensor& x) { return relu(x); }, -2, -0.1},
    {"pow_0", [](const Tensor& x) { return pow(x, 0); }, -2, 2},
    {"pow_1", [](const Tensor& x) { return pow(x, 1); }, -2, 2},
    {"pow_2", [](const Tensor& x) { return pow(x, 2); }, -2, 2},
    {"pow_3", [](const Tensor& x) { return pow(x, 3); }, -2, 2},
    {"pow_half", [](const Tensor& x) { return pow(x, 0.5); }, 0.2, 2},
    {"pow_minus_1_5", [](const Tensor& x) { return pow(x, -1.5); }, 0.5, 2},
    {"pow_minus_2_of_negative", [](const Tensor& x) { return pow(x, -2); }, -2, -0.5},
    {"add_scalar", [](const Tensor& x) { return x + 2.5; }, -1, 1},
    {"scalar_add", [](const Tensor& x) { return 2.5 + x; }, -1, 1},
    {"sub_scalar", [](const Tensor& x) { return x - 2.5; }, -1, 1},
    {"scalar_sub", [](const Tensor& x) { return 2.5 - x; }, -1, 1},
    {"mul_scalar", [](const Tensor& x) { return x * 2.5; }, -1, 1},
    {"scalar_mul", [](const Tensor& x) { return -2.5 * x; }, -1, 1},
    {"mul_zero", [](const Tensor& x) { return x * 0; }, -1, 1},
    {"div_scalar", [](const Tensor& x) { return x / 2.5; }, -1, 1},
    {"scalar_div", [](const Tensor& x) { return 2.5 / x; }, 0.5, 2},
    {"scalar_div_negative", [](const Tensor& x) { return 2.5 / x; }, -2, -0.5},
    {"expm1", [](const Tensor& x) { return expm1(x); }, -2, 2},
    {"log1p", [](const Tensor& x) { return log1p(x); }, -0.8, 3},
    {"rsqrt", [](const Tensor& x) { return rsqrt(x); }, 0.3, 3},
    {"sin", [](const Tensor& x) { return sin(x); }, -3, 3},
    {"cos", [](const Tensor& x) { return cos(x); }, -3, 3},
    {"tanh", [](const Tensor& x) { return tanh(x); }, -2, 2},
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); }, -3, 3},
    {"silu", [](const Tensor& x) { return silu(x); }, -3, 3},
    {"gelu", [](const Tensor& x) { return gelu(x); }, -3, 3},
    {"gelu_tanh", [](const Tensor& x) { return gelu(x, GELUApproximation::tanh); }, -3, 3},
    {"softplus", [](const Tensor& x) { return softplus(x, 1.5, 30); }, -3, 3},
    {"softplus_beyond", [](const Tensor& x) { return softplus(x, 2, 1); }, 1, 3},
    {"leaky_relu_of_negative", [](const Tensor& x) { return leaky_relu(x, 0.2); }, -2, -0.1},
    {"leaky_relu_of_positive", [](const Tensor& x) { return leaky_relu(x); }, 0.1, 2},
    {"elu_of_negative", [](const Tensor& x) { return elu(x, 0.7); }, -2, -0.1},
    {"elu_of_positive", [](const Tensor& x) { return elu(x); }, 0.1, 2},
    {"clamp_inside", [](const Tensor& x) { return clamp(x, -1, 1); }, -0.9, 0.9},
    {"clamp_outside", [](const Tensor& x) { return clamp(x, -1, 1); }, 1.1, 2},
    {"sign", [](const Tensor& x) { return sign(x) * x; }, 0.1, 2},
    {"floor", [](const Tensor& x) { return floor(x) + x; }, 0.1, 0.9},
    {"round", [](const Tensor& x) { return round(x) * x; }, 0.6, 1.4},
    {"masked_fill", [](const Tensor& x) { return x.masked_fill(x > 0.2, 3); }, 0.3, 0.9},
    {"pow_of_a_scalar_tensor", [](const Tensor& x) { return x.pow(tensor(1.5, {.dtype = DType::f64})); }, 0.3, 2},
    {"clone", [](const Tensor& x) { return x.clone(); }, -1, 1},
    {"contiguous", [](const Tensor& x) { return x.contiguous(); }, -1, 1},
    {"to_same_dtype", [](const Tensor& x) { return x.to(DType::f64); }, -1, 1},
    {"to_other_device_and_back", [](const Tensor& x) { return x.to("cpu:1").to("cpu:0"); }, -1, 1},
    {"composition", [](const Tensor& x) { return exp(x) * log(x) / (sqrt(x) + 1) - pow(x, 2); }, 0.5, 2},
};

class GradcheckPointwise : public ::testing::TestWithParam<Unary> {
 protected:
  void check(const Tensor& x) const {
    const auto fn = GetParam().fn;
    expect_gradient([fn](const std::vector<Tensor>& in) { return fn(in[0]); }, {x});
  }
  Tensor make(const Shape& sizes) const { return test::leaf(sizes, GetParam().low, GetParam().high); }
};

TEST_P(GradcheckPointwise, Scalar) { check(make({})); }
TEST_P(GradcheckPointwise, OneElement) { check(make({1})); }
TEST_P(GradcheckPointwise, OddVector) { check(make({13})); }
TEST_P(GradcheckPointwise, FourDimensions) { check(make({2, 1, 3, 2})); }
TEST_P(GradcheckPointwise, Empty) { check(make({0, 3})); }
TEST_P(GradcheckPointwise, Transposed) { check(test::transposed_leaf(make({3, 5}))); }
TEST_P(GradcheckPointwise, Stepped) { check(test::stepped_leaf(make({3, 5}))); }

TEST_P(GradcheckPointwise, OfAViewThatIsNotDense) {
  const auto fn = GetParam().fn;
  expect_gradient([fn](const std::vector<Tensor>& in) { return fn(in[0].slice(1, 0, 5, 2).t()); }, {make({3, 5})});
}

TEST_P(GradcheckPointwise, OfABroadcastTensor) {
  const auto fn = GetParam().fn;
  expect_gradient([fn](const std::vector<Tensor>& in) { return fn(in[0].expand({4, 3})); }, {make({3})});
}

// The incoming gradient is a transposed view of another one.
TEST_P(GradcheckPointwise, WithAGradientThatIsNotDense) {
  const auto fn = GetParam().fn;
  expect_gradient([fn](const std::vector<Tensor>& in) { return fn(in[0]).t(); }, {make({3, 5})});
}

INSTANTIATE_TEST_SUITE_P(Functions, GradcheckPointwise, ::testing::ValuesIn(kUnary),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(GradcheckPointwiseKinks, AbsAndReluOfBothSigns) {
  const Tensor x = test::leaf_with_signs({3, 4});
  expect_gradient([](const std::vector<Tensor>& in) { return abs(in[0]); }, {x});
  expect_gradient([](const std::vector<Tensor>& in) { return relu(in[0]); }, {x});
}

TEST(GradcheckPointwiseKinks, GradientAtTheKinkIsZero) {
  const Tensor x = zeros({2}, {.requires_grad = true});
  (abs(x) + relu(x)).sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0}));
}

TEST(GradcheckPointwiseKinks, PowersAtZero) {
  const Tensor x = zeros({1}, {.dtype = DType::f64, .requires_grad = true});
  for (const auto& [exponent, expected] : {std::pair{0.0, 0.0}, {1.0, 1.0}, {2.0, 0.0}, {3.0, 0.0}}) {
    x.zero_grad();
    pow(x, exponent).sum().backward();
    EXPECT_EQ(x.grad().item(), expected) << "exponent " << exponent;
  }
}

// Differences in f32 are too rough in general, but along a linear function a large step is accurate enough.
TEST(GradcheckConvert, ThroughF32AndBack) {
  const Tensor x = test::leaf({3, 5});
  expect_gradient([](const std::vector<Tensor>& in) { return in[0].to(DType::f32).to(DType::f64); }, {x},
                  {.eps = 1e-2, .atol = 1e-4});
  (x.to(DType::f32) * 3).sum().backward();
  EXPECT_EQ(x.grad().dtype(), DType::f64);
}

TEST(GradcheckConvert, IntegersCutTheGraph) {
  const Tensor x = test::leaf({3});
  EXPECT_FALSE(x.to(DType::i64).requires_grad());
  EXPECT_FALSE(x.to(DType::i64).to(DType::f64).requires_grad());
  EXPECT_FALSE(x.argmax().requires_grad());
}

}  // namespace
}  // namespace tandem
