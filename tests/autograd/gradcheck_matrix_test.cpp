#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "leaves.h"

// Products: matmul, linear, and linear with ReLU.

namespace tandem {
namespace {

using test::expect_gradient;
using test::leaf;
using test::stepped_leaf;
using test::transposed_leaf;

Tensor product(const std::vector<Tensor>& in) { return matmul(in[0], in[1]); }

TEST(GradcheckMatmul, EveryPairOfRanks) {
  const std::pair<Shape, Shape> shapes[] = {{{2, 3}, {3, 4}}, {{3}, {3, 4}},    {{2, 3}, {3}},    {{3}, {3}},
                                            {{1, 1}, {1, 1}}, {{1, 5}, {5, 1}}, {{5, 1}, {1, 5}}, {{1}, {1}},
                                            {{7, 5}, {5, 9}}, {{1, 3}, {3}}};
  for (const auto& [left, right] : shapes) {
    SCOPED_TRACE(to_string(left) + " x " + to_string(right));
    expect_gradient(product, {leaf(left), leaf(right, -1, 1, 8)});
    expect_gradient(product, {leaf(left), test::values(right)});
    expect_gradient(product, {test::values(left), leaf(right)});
  }
}

TEST(GradcheckMatmul, EmptySizes) {
  const std::pair<Shape, Shape> shapes[] = {{{0, 3}, {3, 4}}, {{2, 0}, {0, 4}}, {{2, 3}, {3, 0}},
                                            {{0}, {0}},       {{0, 0}, {0, 0}}, {{0}, {0, 4}}};
  for (const auto& [left, right] : shapes) {
    SCOPED_TRACE(to_string(left) + " x " + to_string(right));
    const Tensor a = leaf(left);
    const Tensor b = leaf(right);
    expect_gradient(product, {a, b});
    EXPECT_EQ(a.grad().shape(), left);
    EXPECT_EQ(b.grad().shape(), right);
  }
}

TEST(GradcheckMatmul, EveryLayout) {
  const Tensor a = leaf({3, 4});
  const Tensor b = leaf({4, 5}, -1, 1, 8);
  for (const Tensor& left : {a, transposed_leaf(a), stepped_leaf(a)}) {
    for (const Tensor& right : {b, transposed_leaf(b), stepped_leaf(b)}) {
      expect_gradient(product, {left, right});
    }
  }
  expect_gradient(product, {stepped_leaf(leaf({4})), stepped_leaf(b)});
  expect_gradient(product, {stepped_leaf(a), stepped_leaf(leaf({4}))});
}

TEST(GradcheckMatmul, WithGradientsThatAreNotDense) {
  expect_gradient([](const std::vector<Tensor>& in) { return matmul(in[0], in[1]).t(); }, {leaf({3, 4}), leaf({4, 5})});
  expect_gradient([](const std::vector<Tensor>& in) { return matmul(in[0], in[1]).slice(1, 0, 5, 2); },
                  {leaf({3, 4}), leaf({4, 5})});
  expect_gradient([](const std::vector<Tensor>& in) { return matmul(in[0], in[1]).sum(); },
                  {leaf({3, 4}), leaf({4, 5})});
}

TEST(GradcheckMatmul, OfTheSameTensorTwice) {
  expect_gradient([](const std::vector<Tensor>& in) { return matmul(in[0], in[0]); }, {leaf({3, 3})});
  expect_gradient([](const std::vector<Tensor>& in) { return matmul(in[0], in[0].t()); }, {leaf({3, 4})});
  expect_gradient([](const std::vector<Tensor>& in) { return matmul(in[0].t(), in[0]); }, {leaf({3, 4})});
  expect_gradient([](const std::vector<Tensor>& in) { return matmul(in[0], in[0]); }, {leaf({5})});
  expect_gradient([](const std::vector<Tensor>& in) { return matmul(matmul(in[0], in[0]), in[0]); }, {leaf({3, 3})});
}

TEST(GradcheckMatmul, OfBroadcastMatrices) {
  expect_gradient([](const std::vector<Tensor>& in) { return matmul(in[0].expand({3, 4}), in[1].expand({4, 2})); },
                  {leaf({4}), leaf({4, 1})});
}

TEST(GradcheckMatmul, OfBatches) {
  const std::vector<std::pair<Shape, Shape>> shapes{
      {{2, 3, 4}, {2, 4, 2}}, {{2, 3, 4}, {4, 2}}, {{3, 4}, {2, 4, 2}},    {{2, 1, 3, 4}, {3, 4, 2}},
      {{2, 3, 4}, {4}},       {{4}, {2, 4, 3}},    {{1, 3, 4}, {5, 4, 2}}, {{0, 3, 4}, {0, 4, 2}},
      {{2, 3, 0}, {2, 0, 2}}, {{2, 0, 4}, {4, 2}}, {{2, 1, 1}, {2, 1, 1}}, {{2, 2, 3, 2}, {2, 2, 2, 3}}};
  for (const auto& [a, b] : shapes) {
    SCOPED_TRACE(to_string(a) + " x " + to_string(b));
    expect_gradient(product, {leaf(a), leaf(b)});
  }
  expect_gradient([](const std::vector<Tensor>& in) { return matmul(in[0].transpose(1, 2), in[1].permute({2, 1, 0})); },
                  {leaf({2, 4, 3}), leaf({2, 4, 2})});
}

TEST(GradcheckMatmul, WrongShapesThrow) {
  EXPECT_THROW(matmul(leaf({2, 3}), leaf({4, 2})), ShapeError);
  EXPECT_THROW(matmul(leaf({}), leaf({2})), ShapeError);
  EXPECT_THROW(matmul(leaf({2, 2, 2}), leaf({3, 2})), ShapeError);
  EXPECT_THROW(matmul(leaf({2, 2, 2}), leaf({3, 2, 2})), ShapeError);
  EXPECT_THROW(matmul(leaf({2, 2}), ones({2, 2})), DTypeError);
  EXPECT_THROW(matmul(leaf({2, 2}), leaf({2, 2}).to("cpu:1")), DeviceError);
}

// ---- linear ----

using Linear = Tensor (*)(const Tensor&, const Tensor&, const Tensor&);

class GradcheckLinear : public ::testing::TestWithParam<std::tuple<const char*, Linear>> {
 protected:
  Tensor run(const std::vector<Tensor>& in) const {
    return std::get<1>(GetParam())(in[0], in[1], in.size() > 2 ? in[2] : Tensor());
  }
  void check(const std::vector<Tensor>& inputs) const {
    SCOPED_TRACE(to_string(inputs[0].shape()) + " through " + to_string(inputs[1].shape()));
    expect_gradient([this](const std::vector<Tensor>& in) { return run(in); }, inputs);
  }
};

TEST_P(GradcheckLinear, OneToFourDimensions) {
  for (const Shape& sizes : {Shape{3}, {2, 3}, {1, 3}, {2, 2, 3}, {2, 1, 2, 3}}) {
    check({leaf(sizes), leaf({4, 3}, -1, 1, 8), leaf({4}, -1, 1, 9)});
    check({leaf(sizes), leaf({4, 3}, -1, 1, 8)});
    check({test::values(sizes), leaf({4, 3}, -1, 1, 8), leaf({4}, -1, 1, 9)});
    check({leaf(sizes), test::values({4, 3}), leaf({4}, -1, 1, 9)});
    check({leaf(sizes), test::values({4, 3})});
    check({test::values(sizes), test::values({4, 3}), leaf({4}, -1, 1, 9)});
  }
}

TEST_P(GradcheckLinear, SmallestAndEmptySizes) {
  check({leaf({1}), leaf({1, 1}), leaf({1})});
  check({leaf({7, 1}), leaf({5, 1}, -1, 1, 8), leaf({5}, -1, 1, 9)});
  check({leaf({7, 5}), leaf({1, 5}, -1, 1, 8), leaf({1}, -1, 1, 9)});
  check({leaf({0, 3}), leaf({4, 3}), leaf({4})});
  check({leaf({2, 0, 3}), leaf({4, 3}), leaf({4})});
  check({leaf({2, 3}), leaf({0, 3}), leaf({0})});
  // Without features, only the bias remains.
  check({leaf({2, 0}), leaf({4, 0}), test::leaf_with_signs({4})});
  check({leaf({2, 2, 0}), leaf({4, 0}), test::leaf_with_signs({4})});
}

TEST_P(GradcheckLinear, EveryLayout) {
  const Tensor x = leaf({5, 3});
  const Tensor deep = leaf({2, 2, 3});
  const Tensor weight = leaf({4, 3}, -1, 1, 8);
  const Tensor bias = leaf({4}, -1, 1, 9);
  for (const Tensor& in : {x, transposed_leaf(x), stepped_leaf(x), transposed_leaf(deep), stepped_leaf(deep)}) {
    for (const Tensor& w : {weight, transposed_leaf(weight), stepped_leaf(weight)}) {
      check({in, w, bias});
      check({in, w, stepped_leaf(bias)});
    }
  }
}

TEST_P(GradcheckLinear, WithTheSameTensorTwice) {
  const auto fn = std::get<1>(GetParam());
  expect_gradient([fn](const std::vector<Tensor>& in) { return fn(in[0], in[0], {}); }, {leaf({3, 3})});
  expect_gradient([fn](const std::vector<Tensor>& in) { return fn(in[0], in[0].t(), in[0][0]); }, {leaf({3, 3})});
  expect_gradient([fn](const std::vector<Tensor>& in) { return fn(fn(in[0], in[1], in[2]), in[1], in[2]); },
                  {leaf({2, 3}), leaf({3, 3}, -1, 1, 8), leaf({3}, -1, 1, 9)});
}

TEST_P(GradcheckLinear, WithGradientsThatAreNotDense) {
  const auto fn = std::get<1>(GetParam());
  const std::vector<Tensor> in{leaf({5, 3}), leaf({4, 3}, -1, 1, 8), leaf({4}, -1, 1, 9)};
  expect_gradient([fn](const std::vector<Tensor>& t) { return fn(t[0], t[1], t[2]).t(); }, in);
  expect_gradient([fn](const std::vector<Tensor>& t) { return fn(t[0], t[1], t[2]).slice(1, 1, 4, 2); }, in);
  expect_gradient([fn](const std::vector<Tensor>& t) { return fn(t[0], t[1], t[2]).sum(); }, in);
}

INSTANTIATE_TEST_SUITE_P(Functions, GradcheckLinear,
                         ::testing::Values(std::tuple{"linear", &linear}, std::tuple{"linear_relu", &linear_relu}),
                         [](const auto& test) { return std::string(std::get<0>(test.param)); });

TEST(LinearRelu, EqualsReluOfLinearToTheBit) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    std::vector<Tensor> fused;
    std::vector<Tensor> apart;
    for (const Shape& sizes : {Shape{9, 17}, {23, 17}, {23}}) {
      fused.push_back(test::values(sizes).to(dtype).requires_grad_());
      apart.push_back(fused.back().detach().clone().requires_grad_());
    }
    const Tensor a = linear_relu(fused[0], fused[1], fused[2]);
    const Tensor b = relu(linear(apart[0], apart[1], apart[2]));
    EXPECT_EQ(a.to_vector<double>(), b.to_vector<double>());
    (a * a).sum().backward();
    (b * b).sum().backward();
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(fused[i].grad().to_vector<double>(), apart[i].grad().to_vector<double>()) << "input " << i;
    }
  }
}

}  // namespace
}  // namespace tandem
