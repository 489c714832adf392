#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "leaves.h"

// Arithmetic on two tensors with every kind of broadcasting, and with gradients of one operand, the other, and both.

namespace tandem {
namespace {

using test::expect_gradient;
using test::leaf;

struct Binary {
  const char* name;
  Tensor (*fn)(const Tensor&, const Tensor&);
};

std::ostream& operator<<(std::ostream& out, const Binary& binary) { return out << binary.name; }

const Binary kBinary[] = {
    {"add", [](const Tensor& a, const Tensor& b) { return a + b; }},
    {"sub", [](const Tensor& a, const Tensor& b) { return a - b; }},
    {"mul", [](const Tensor& a, const Tensor& b) { return a * b; }},
    {"div", [](const Tensor& a, const Tensor& b) { return a / b; }},
};

const std::pair<Shape, Shape> kShapePairs[] = {
    {{}, {}},      {{1}, {1}},          {{5}, {5}},          {{}, {3}},
    {{3}, {}},     {{1}, {4}},          {{4}, {1}},          {{2, 3}, {3}},
    {{3}, {2, 3}}, {{2, 3}, {1, 3}},    {{2, 1}, {2, 3}},    {{2, 1}, {1, 3}},
    {{2, 3}, {}},  {{2, 1, 3}, {4, 1}}, {{4, 1}, {2, 1, 3}}, {{1, 1, 1}, {2, 3}},
    {{0, 3}, {3}}, {{3}, {0, 3}},       {{0}, {1}},          {{2, 3, 1, 5}, {3, 4, 1}},
};

class GradcheckBroadcast : public ::testing::TestWithParam<Binary> {
 protected:
  void check(const Tensor& a, const Tensor& b) const {
    SCOPED_TRACE(to_string(a.shape()) + " and " + to_string(b.shape()));
    const auto fn = GetParam().fn;
    expect_gradient([fn](const std::vector<Tensor>& in) { return fn(in[0], in[1]); }, {a, b});
  }
  // Checks a function of one tensor.
  template <class Use>
  void check_uses(const Tensor& x, Use use) const {
    const auto fn = GetParam().fn;
    expect_gradient([fn, use](const std::vector<Tensor>& in) { return use(fn, in[0]); }, {x});
  }
};

TEST_P(GradcheckBroadcast, OfBoth) {
  for (const auto& [left, right] : kShapePairs) {
    check(leaf(left), leaf(right, 0.5, 2, 8));
  }
}

TEST_P(GradcheckBroadcast, OfOneAlone) {
  for (const auto& [left, right] : kShapePairs) {
    check(leaf(left), test::values(right, 0.5, 2, 8));
    check(test::values(left), leaf(right, 0.5, 2, 8));
  }
}

TEST_P(GradcheckBroadcast, OfLayoutsThatAreNotDense) {
  const Tensor a = leaf({3, 4});
  for (const Tensor& b : {leaf({3, 4}, 0.5, 2, 8), leaf({1, 4}, 0.5, 2, 8), leaf({4}, 0.5, 2, 8)}) {
    check(test::transposed_leaf(a), b);
    check(a, test::transposed_leaf(b));
    check(test::stepped_leaf(a), test::stepped_leaf(b));
    check(test::transposed_leaf(a), test::stepped_leaf(b));
  }
}

TEST_P(GradcheckBroadcast, OfTheSameTensorTwice) {
  check_uses(leaf({3, 3}, 0.5, 2), [](auto fn, const Tensor& x) { return fn(x, x); });
  check_uses(leaf({}, 0.5, 2), [](auto fn, const Tensor& x) { return fn(x, x); });
  check_uses(leaf({3, 3}, 0.5, 2), [](auto fn, const Tensor& x) { return fn(x, x.t()); });
  check_uses(leaf({3, 3}, 0.5, 2), [](auto fn, const Tensor& x) { return fn(x[0], x); });
  check_uses(leaf({3, 3}, 0.5, 2), [](auto fn, const Tensor& x) { return fn(fn(x, x), x); });
  check_uses(leaf({3}, 0.5, 2), [](auto fn, const Tensor& x) {
    const Tensor y = x * 1;  // an interior tensor instead of a leaf
    return fn(y, y);
  });
}

TEST_P(GradcheckBroadcast, WithAGradientThatIsNotDense) {
  const auto fn = GetParam().fn;
  expect_gradient([fn](const std::vector<Tensor>& in) { return fn(in[0], in[1]).t(); },
                  {leaf({3, 4}), leaf({4}, 0.5, 2, 8)});
  expect_gradient([fn](const std::vector<Tensor>& in) { return fn(in[0], in[1]).sum().expand({2, 2}); },
                  {leaf({3, 4}), leaf({3, 1}, 0.5, 2, 8)});
}

INSTANTIATE_TEST_SUITE_P(Arithmetic, GradcheckBroadcast, ::testing::ValuesIn(kBinary),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(GradcheckDiamond, SharedSubexpressionsAreSummed) {
  expect_gradient(
      [](const std::vector<Tensor>& in) {
        Tensor x = in[0];
        for (int i = 0; i < 6; ++i) {
          x = x * 0.5 + x * x * 0.25 + in[0];
        }
        return x;
      },
      {leaf({3})});
}

TEST(GradcheckDiamond, AnInputThatIsUsedFourTimes) {
  expect_gradient([](const std::vector<Tensor>& in) { return in[0] + in[0] + in[0] * in[0]; }, {leaf({2, 2})});
  expect_gradient([](const std::vector<Tensor>& in) { return in[0] - in[0]; }, {leaf({2, 2})});
}

}  // namespace
}  // namespace tandem
