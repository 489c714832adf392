#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>

#include "property.h"
#include "random_tensor.h"

// Elementwise functions, compared with a loop over index tuples in f64.

namespace tandem {
namespace {

using test::check_property;
using test::Grid;
using test::grid_of;
using test::Index;
using test::kAll;
using test::kNumbers;
using test::once_in;
using test::one_of;
using test::pick_broadcast;
using test::pick_dtype;
using test::pick_sample;
using test::pick_sizes;
using test::require_equal;
using test::Sample;
using test::Values;
using enum DType;

// Sums and products of small integers; u8 wraps around.
double wrapped(double value, DType dtype) { return dtype == u8 ? value - 256 * std::floor(value / 256) : value; }

struct Unary {
  std::string name;
  std::function<Tensor(const Tensor&)> run;
  double (*naive)(double);
  Values values = Values::any;
  bool keeps_whole = false;  // integers stay integers
  double times = 1;          // factor on the tolerance of the dtype
};

const std::vector<Unary>& unaries() {
  static const std::vector<Unary> table{
      {"neg", [](const Tensor& x) { return -x; }, [](double x) { return -x; }, Values::any, true},
      {"abs", [](const Tensor& x) { return x.abs(); }, [](double x) { return std::abs(x); }, Values::any, true},
      {"sign", [](const Tensor& x) { return x.sign(); }, [](double x) { return double(x > 0) - double(x < 0); },
       Values::any, true},
      {"relu", [](const Tensor& x) { return x.relu(); }, [](double x) { return x > 0 ? x : 0; }, Values::any, true},
      {"floor", [](const Tensor& x) { return x.floor(); }, [](double x) { return std::floor(x); }, Values::any, true},
      {"ceil", [](const Tensor& x) { return x.ceil(); }, [](double x) { return std::ceil(x); }, Values::any, true},
      {"round", [](const Tensor& x) { return x.round(); }, [](double x) { return std::nearbyint(x); }, Values::any,
       true},
      {"clamp", [](const Tensor& x) { return x.clamp(1, 3); }, [](double x) { return x < 1 ? 1 : (x > 3 ? 3 : x); },
       Values::any, true},
      {"square", [](const Tensor& x) { return x.pow(2); }, [](double x) { return x * x; }, Values::any, true},
      {"exp", [](const Tensor& x) { return x.exp(); }, [](double x) { return std::exp(x); }, Values::any, false},
      {"log", [](const Tensor& x) { return x.log(); }, [](double x) { return std::log(x); }, Values::positive, false},
      {"log1p", [](const Tensor& x) { return x.log1p(); }, [](double x) { return std::log1p(x); }, Values::positive,
       false},
      {"sqrt", [](const Tensor& x) { return x.sqrt(); }, [](double x) { return std::sqrt(x); }, Values::positive,
       false},
      {"rsqrt", [](const Tensor& x) { return x.rsqrt(); }, [](double x) { return 1 / std::sqrt(x); }, Values::positive,
       false},
      {"sin", [](const Tensor& x) { return x.sin(); }, [](double x) { return std::sin(x); }, Values::any, false},
      {"cos", [](const Tensor& x) { return x.cos(); }, [](double x) { return std::cos(x); }, Values::any, false},
      {"tanh", [](const Tensor& x) { return x.tanh(); }, [](double x) { return std::tanh(x); }, Values::any, false},
      {"sigmoid", [](const Tensor& x) { return x.sigmoid(); }, [](double x) { return 1 / (1 + std::exp(-x)); },
       Values::any, false},
      {"silu", [](const Tensor& x) { return silu(x); }, [](double x) { return x / (1 + std::exp(-x)); }, Values::any,
       false},
      {"gelu", [](const Tensor& x) { return gelu(x); }, [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); },
       Values::any, false, 32},
      {"softplus", [](const Tensor& x) { return softplus(x); },
       [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); }, Values::any, false},
  };
  return table;
}

TEST(PointwiseProperty, FunctionsOfOneTensor) {
  check_property(14000, [] {
    const Unary& op = one_of(unaries());
    const DType dtype = pick_dtype(kNumbers);
    const Sample x = pick_sample(pick_sizes(), dtype, op.values);
    const Tensor got = op.run(x.tensor);
    RC_ASSERT(got.dtype() == (is_floating_point(dtype) || op.keeps_whole ? dtype : f32));
    const Grid expected = grid_of(x.grid.sizes, [&](const Index& i) {
      const double value = op.naive(x.grid.at(i));
      return op.keeps_whole ? wrapped(value, dtype) : value;
    });
    require_equal(got, expected, op.name, op.times);
  });
}

struct Binary {
  std::string name;
  std::function<Tensor(const Tensor&, const Tensor&)> run;
  double (*naive)(double, double);
  enum Result : std::uint8_t { common, divided, truth } result = common;
};

const std::vector<Binary>& binaries() {
  using T = const Tensor&;
  static const std::vector<Binary> table{
      {"add", [](T a, T b) { return a + b; }, [](double a, double b) { return a + b; }},
      {"sub", [](T a, T b) { return a - b; }, [](double a, double b) { return a - b; }},
      {"mul", [](T a, T b) { return a * b; }, [](double a, double b) { return a * b; }},
      {"div", [](T a, T b) { return a / b; }, [](double a, double b) { return a / b; }, Binary::divided},
      {"maximum", [](T a, T b) { return maximum(a, b); }, [](double a, double b) { return a > b ? a : b; }},
      {"minimum", [](T a, T b) { return minimum(a, b); }, [](double a, double b) { return a < b ? a : b; }},
      {"eq", [](T a, T b) { return a == b; }, [](double a, double b) { return double(a == b); }, Binary::truth},
      {"ne", [](T a, T b) { return a != b; }, [](double a, double b) { return double(a != b); }, Binary::truth},
      {"lt", [](T a, T b) { return a < b; }, [](double a, double b) { return double(a < b); }, Binary::truth},
      {"le", [](T a, T b) { return a <= b; }, [](double a, double b) { return double(a <= b); }, Binary::truth},
      {"gt", [](T a, T b) { return a > b; }, [](double a, double b) { return double(a > b); }, Binary::truth},
      {"ge", [](T a, T b) { return a >= b; }, [](double a, double b) { return double(a >= b); }, Binary::truth},
      {"and", [](T a, T b) { return logical_and(a, b); }, [](double a, double b) { return double(a != 0 && b != 0); },
       Binary::truth},
      {"or", [](T a, T b) { return logical_or(a, b); }, [](double a, double b) { return double(a != 0 || b != 0); },
       Binary::truth},
      {"xor", [](T a, T b) { return logical_xor(a, b); },
       [](double a, double b) { return double((a != 0) != (b != 0)); }, Binary::truth},
  };
  return table;
}

// Two samples that broadcast to each other; either may be the smaller one.
struct Operands {
  Sample a;
  Sample b;
  Index sizes;
};

Operands pick_operands(DType a_type, DType b_type) {
  const Index sizes = pick_sizes();
  const Index other = pick_broadcast(sizes);
  const bool swap = once_in(2);
  // A tensor without dimensions takes the other's dtype, so negative values would change on conversion to u8.
  const bool signs = a_type == b_type || (a_type != u8 && b_type != u8);
  Sample a = pick_sample(swap ? other : sizes, a_type, signs ? Values::any : Values::positive);
  Sample b = pick_sample(swap ? sizes : other, b_type, signs ? Values::nonzero : Values::positive);
  return {std::move(a), std::move(b), sizes};
}

TEST(PointwiseProperty, FunctionsOfTwoTensorsBroadcast) {
  check_property(18000, [] {
    const Binary& op = one_of(binaries());
    const DType first = pick_dtype(kNumbers);
    const DType second = once_in(3) ? pick_dtype(kNumbers) : first;
    const Operands x = pick_operands(first, second);
    const Tensor got = op.run(x.a.tensor, x.b.tensor);
    if (op.result == Binary::truth) {
      RC_ASSERT(got.dtype() == boolean);
    } else if (op.result == Binary::divided) {
      RC_ASSERT(is_floating_point(got.dtype()));
    }
    const DType dtype = got.dtype();
    const bool may_wrap = op.result == Binary::common;
    require_equal(got,
                  grid_of(x.sizes,
                          [&](const Index& i) {
                            const double value = op.naive(x.a.grid.at_broadcast(i), x.b.grid.at_broadcast(i));
                            return may_wrap ? wrapped(value, dtype) : value;
                          }),
                  op.name);
  });
}

TEST(PointwiseProperty, WhereTakesFromEither) {
  check_property(7000, [] {
    const DType dtype = pick_dtype(kAll);
    const Operands x = pick_operands(dtype, dtype);
    const Sample condition = pick_sample(pick_broadcast(x.sizes), boolean);
    const auto expected = grid_of(x.sizes, [&](const Index& i) {
      return condition.grid.at_broadcast(i) != 0 ? x.a.grid.at_broadcast(i) : x.b.grid.at_broadcast(i);
    });
    require_equal(where(condition.tensor, x.a.tensor, x.b.tensor), expected, "where");
  });
}

// A change of a view shows in the larger tensor, and only inside the view.
void require_only_view_changed(const Sample& x, const Grid& expected, const Tensor& before, const std::string& what) {
  require_equal(x.tensor, expected, what);
  const Tensor after = x.whole.clone();
  x.tensor.detach().fill_(0);
  const Tensor outside = x.whole != 0;  // every nonzero element is outside the view
  RC_ASSERT(where(outside, after != before, false).any().item<bool>() == false);
}

TEST(PointwiseProperty, InPlaceChangesTheViewAlone) {
  check_property(7000, [] {
    const DType dtype = pick_dtype(kNumbers);
    const Index sizes = pick_sizes();
    Sample x = pick_sample(sizes, dtype, Values::any, false);
    const Sample y = pick_sample(pick_broadcast(sizes), dtype, Values::nonzero);
    const Tensor before = x.whole.clone();
    struct InPlace {
      std::string name;
      Tensor& (*run)(Tensor&, const Tensor&);
      double (*naive)(double, double);
    };
    using T = const Tensor&;
    static const std::vector<InPlace> table{
        {"add_", [](Tensor& a, T b) -> Tensor& { return a.add_(b); }, [](double a, double b) { return a + b; }},
        {"sub_", [](Tensor& a, T b) -> Tensor& { return a.sub_(b); }, [](double a, double b) { return a - b; }},
        {"mul_", [](Tensor& a, T b) -> Tensor& { return a.mul_(b); }, [](double a, double b) { return a * b; }},
        {"copy_", [](Tensor& a, T b) -> Tensor& { return a.copy_(b); }, [](double, double b) { return b; }},
        {"neg_", [](Tensor& a, T) -> Tensor& { return a.neg_(); }, [](double a, double) { return -a; }},
        {"relu_", [](Tensor& a, T) -> Tensor& { return a.relu_(); }, [](double a, double) { return a > 0 ? a : 0; }},
        {"fill_", [](Tensor& a, T) -> Tensor& { return a.fill_(5); }, [](double, double) { return 5.0; }},
        {"pow_", [](Tensor& a, T) -> Tensor& { return a.pow_(2); }, [](double a, double) { return a * a; }},
        {"masked_fill_", [](Tensor& a, T b) -> Tensor& { return a.masked_fill_(b > 1, 3); },
         [](double a, double b) { return b > 1 ? 3.0 : a; }},
    };
    const InPlace& op = one_of(table);
    op.run(x.tensor, y.tensor);
    const Grid expected =
        grid_of(sizes, [&](const Index& i) { return wrapped(op.naive(x.grid.at(i), y.grid.at_broadcast(i)), dtype); });
    require_only_view_changed(x, expected, before, op.name);
  });
}

TEST(PointwiseProperty, CopyConvertsBetweenAnyTwoTypes) {
  check_property(7000, [] {
    const DType from = pick_dtype(kAll);
    const DType to = pick_dtype(kAll);
    const Index sizes = pick_sizes();
    Sample target = pick_sample(sizes, to, Values::any, false);
    const Sample source = pick_sample(pick_broadcast(sizes), from);
    const Tensor before = target.whole.clone();
    target.tensor.copy_(source.tensor);
    const Grid expected = grid_of(sizes, [&](const Index& i) {
      const double value = source.grid.at_broadcast(i);
      return to == boolean ? double(value != 0) : is_floating_point(to) ? value : wrapped(std::trunc(value), to);
    });
    require_only_view_changed(target, expected, before, "copy_");
  });
}

}  // namespace
}  // namespace tandem
