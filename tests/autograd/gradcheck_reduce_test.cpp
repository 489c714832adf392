#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "leaves.h"

namespace tandem {
namespace {

using test::expect_gradient;
using test::leaf;

void check_reduction(const Shape& sizes, const std::function<Tensor(const Tensor&)>& fn) {
  SCOPED_TRACE(to_string(sizes));
  const auto plain = [&](const std::vector<Tensor>& in) { return fn(in[0]); };
  const Tensor x = leaf(sizes);
  expect_gradient(plain, {x});
  expect_gradient([&](const std::vector<Tensor>& in) { return fn(in[0] * in[0]) * fn(in[0]); }, {x});
  if (sizes.ndim() > 0 && x.numel() > 0) {
    expect_gradient(plain, {test::transposed_leaf(x)});
    expect_gradient(plain, {test::stepped_leaf(x)});
  }
}

const Shape kShapes[] = {{}, {1}, {7}, {2, 3}, {3, 1, 2}, {2, 3, 2, 2}};

// Every subset of the dimensions of a shape, including the empty one.
std::vector<Shape> subsets(int ndim) {
  std::vector<Shape> all;
  for (int mask = 0; mask < 1 << ndim; ++mask) {
    Shape dims;
    for (int d = 0; d < ndim; ++d) {
      if ((mask >> d & 1) != 0) {
        dims.push_back(d % 2 == 0 ? d : d - ndim);  // counted from either end
      }
    }
    all.push_back(dims);
  }
  return all;
}

TEST(GradcheckReduce, SumAndMeanOverEverySetOfDimensions) {
  for (const Shape& sizes : kShapes) {
    for (const Shape& dims : subsets(sizes.ndim())) {
      for (const bool keepdim : {false, true}) {
        SCOPED_TRACE(to_string(dims) + (keepdim ? " keepdim" : ""));
        check_reduction(sizes, [&](const Tensor& x) { return x.sum(dims, keepdim); });
        check_reduction(sizes, [&](const Tensor& x) { return x.mean(dims, keepdim); });
      }
    }
    check_reduction(sizes, [](const Tensor& x) { return x.sum(); });
    check_reduction(sizes, [](const Tensor& x) { return x.mean(); });
  }
}

TEST(GradcheckReduce, MaxAndMinAlongEveryDimension) {
  for (const Shape& sizes : kShapes) {
    for (int dim = -sizes.ndim(); dim < sizes.ndim(); ++dim) {
      for (const bool keepdim : {false, true}) {
        SCOPED_TRACE(std::to_string(dim) + (keepdim ? " keepdim" : ""));
        check_reduction(sizes, [&](const Tensor& x) { return x.max(dim, keepdim); });
        check_reduction(sizes, [&](const Tensor& x) { return x.min(dim, keepdim); });
      }
    }
    check_reduction(sizes, [](const Tensor& x) { return x.max(); });
    check_reduction(sizes, [](const Tensor& x) { return x.min(); });
  }
  check_reduction({}, [](const Tensor& x) { return x.max(0); });
  check_reduction({}, [](const Tensor& x) { return x.min(-1, true); });
}

TEST(GradcheckReduce, AmaxAminAndCumsum) {
  for (const Shape& sizes : kShapes) {
    for (int dim = -sizes.ndim(); dim < sizes.ndim(); ++dim) {
      check_reduction(sizes, [&](const Tensor& x) { return x.amax({dim}); });
      check_reduction(sizes, [&](const Tensor& x) { return x.amin({dim}, true); });
      check_reduction(sizes, [&](const Tensor& x) { return x.cumsum(dim); });
    }
  }
  check_reduction({2, 3, 2}, [](const Tensor& x) { return x.amax({0, 2}); });
  check_reduction({2, 3, 2}, [](const Tensor& x) { return x.norm(INFINITY, {0, 2}); });
  check_reduction({2, 3, 2}, [](const Tensor& x) { return x.logsumexp({0, 2}); });
  check_reduction({2, 3, 2}, [](const Tensor& x) { return x.cumsum(1).transpose(0, 2); });
}

TEST(Cumsum, OfIntegersAndBoolsIsI64) {
  EXPECT_EQ(tensor({true, true, false}).cumsum(0).to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 2}));
  EXPECT_EQ(tensor({200, 100}, {.dtype = DType::u8}).cumsum(0).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{200, 300}));
  EXPECT_THROW(leaf({2}).cumsum(1), ShapeError);
}

TEST(GradcheckReduce, OfEmptyTensors) {
  check_reduction({0, 3}, [](const Tensor& x) { return x.sum(); });
  check_reduction({0, 3}, [](const Tensor& x) { return x.sum({0}); });
  check_reduction({0, 3}, [](const Tensor& x) { return x.sum({1}); });
  check_reduction({0, 3}, [](const Tensor& x) { return x.mean({1}); });
  check_reduction({0, 3}, [](const Tensor& x) { return x.max(1); });
  EXPECT_THROW(leaf({0, 3}).max(), ShapeError);
  EXPECT_THROW(leaf({0, 3}).min(0), ShapeError);
}

TEST(GradcheckReduce, WithAGradientThatIsNotDense) {
  check_reduction({2, 3, 2}, [](const Tensor& x) { return x.sum({0}).t(); });
  check_reduction({2, 3, 2}, [](const Tensor& x) { return x.mean({0}).t(); });
  check_reduction({2, 3, 2}, [](const Tensor& x) { return x.max(0).t(); });
  check_reduction({2, 3, 2}, [](const Tensor& x) { return x.sum({1}).expand({2, 2, 2}); });
}

TEST(Reduce, EqualMaximaShareTheGradientOverEverything) {
  const Tensor x = from_data(std::vector<double>{3, 1, 3, 3}, {2, 2}, {.requires_grad = true});
  (x.max() * 6).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 0, 2, 2}));
}

TEST(Reduce, TheFirstOfEqualMaximaGetsTheGradientAlongADimension) {
  const Tensor x = from_data(std::vector<double>{3, 1, 3, 3}, {2, 2}, {.requires_grad = true});
  (x.max(1) * 6).sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{6, 0, 6, 0}));
}

TEST(Reduce, MaximaAddToWhatIsThere) {
  const Tensor x = from_data(std::vector<double>{3, 1, 2, 4}, {2, 2}, {.requires_grad = true});
  x.sum().backward();
  x.max(0).sum().backward();
  x.max().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 1, 1, 3}));
}

TEST(Reduce, WrongDimensionsAreNamed) {
  const Tensor x = leaf({2, 3});
  EXPECT_THROW(x.sum({2}), ShapeError);
  EXPECT_THROW(x.sum({0, -2}), ShapeError);
  EXPECT_THROW(x.max(-3), ShapeError);
  EXPECT_THROW(x.to(DType::i64).mean(), DTypeError);
}

}  // namespace
}  // namespace tandem
