#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/clip.h>
#include <tandem/kernels/combine.h>
#include <tandem/kernels/compare.h>
#include <tandem/kernels/copy.h>
#include <tandem/kernels/elementwise_loss.h>
#include <tandem/kernels/index.h>
#include <tandem/kernels/reduce.h>

#include "kernels/arrays.h"

// Kernels that work on pieces of 16-bit arrays: they give what f32 gives, rounded once, for rows that are shorter and
// longer than a piece.

namespace tandem::kernels {
namespace {

using test::Rng;

template <class T>
class HalfKernelsOf : public ::testing::Test {};
using HalfTypes = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(HalfKernelsOf, HalfTypes);

constexpr std::int64_t kCounts[] = {1, 31, 32, 33, 1023, 1025, 2500, 70001};

template <class T>
std::vector<float> widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

template <class T>
void expect_rounded(const std::vector<T>& got, const std::vector<float>& exact) {
  ASSERT_EQ(got.size(), exact.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].bits(), T(exact[i]).bits()) << "element " << i << ": " << exact[i];
  }
}

template <class T>
Operand dense(const T* data) {
  Operand operand;
  operand.data = const_cast<T*>(data);
  operand.strides[0] = 1;
  return operand;
}

// Some elements of a loss. The binary losses want numbers between 0 and 1.
template <class T>
struct LossInput {
  std::vector<T> input, target, weight, pos_weight, before;

  LossInput(Rng& rng, std::int64_t count)
      : input(test::random_values<T>(rng, count, 0.05, 0.95)),
        target(test::random_values<T>(rng, count, 0, 1)),
        weight(test::random_values<T>(rng, count, 0.5, 2)),
        pos_weight(test::random_values<T>(rng, count, 0.5, 2)),
        before(test::random_values<T>(rng, count)) {}
  template <class Narrow>
  explicit LossInput(const LossInput<Narrow>& of)
      : input(widened(of.input)),
        target(widened(of.target)),
        weight(widened(of.weight)),
        pos_weight(widened(of.pos_weight)),
        before(widened(of.before)) {}

  std::int64_t count() const { return static_cast<std::int64_t>(input.size()); }

  // The loss, and the gradient that is written with it.
  std::vector<T> forward(LossOp op, bool weighted) const {
    std::vector<T> made(1 + input.size());
    launch(test::cpu(), ElementwiseLoss{.op = op,
                                        .dtype = dtype_of<T>,
                                        .loss_per_element = false,
                                        .scale = 0.5,
                                        .threshold = 0.25,
                                        .count = count(),
                                        .input = input.data(),
                                        .target = target.data(),
                                        .weight = weighted ? weight.data() : nullptr,
                                        .pos_weight = weighted ? pos_weight.data() : nullptr,
                                        .loss = made.data(),
                                        .input_grad = made.data() + 1});
    return made;
  }

  std::vector<T> gradient(LossOp op, bool weighted, Accumulate accumulate) const {
    std::vector<T> made = before;
    const T grad(0.75F);
    launch(test::cpu(), ElementwiseLossGrad{.op = op,
                                            .dtype = dtype_of<T>,
                                            .loss_per_element = false,
                                            .of_target = false,
                                            .accumulate = accumulate,
                                            .scale = 0.5,
                                            .threshold = 0.25,
                                            .count = count(),
                                            .input = input.data(),
                                            .target = target.data(),
                                            .weight = weighted ? weight.data() : nullptr,
                                            .pos_weight = weighted ? pos_weight.data() : nullptr,
                                            .grad = &grad,
                                            .result = made.data()});
    return made;
  }
};

TYPED_TEST(HalfKernelsOf, LossesAndTheirGradientsAreRoundedOnce) {
  Rng rng(11);
  for (const std::int64_t count : kCounts) {
    const LossInput<TypeParam> narrow(rng, count);
    const LossInput<float> wide(narrow);
    for (int op = 0; op <= static_cast<int>(LossOp::binary_logits); ++op) {
      for (const bool weighted : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "op " << op << ", " << count << " elements, weights: " << weighted);
        const auto of = static_cast<LossOp>(op);
        expect_rounded(narrow.forward(of, weighted), wide.forward(of, weighted));
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          expect_rounded(narrow.gradient(of, weighted, accumulate), wide.gradient(of, weighted, accumulate));
        }
      }
    }
  }
}

TYPED_TEST(HalfKernelsOf, ALossIsRescaledInPlace) {
  Rng rng(12);
  for (const std::int64_t count : kCounts) {
    auto gradient = test::random_values<TypeParam>(rng, count);
    std::vector<float> expected = widened(gradient);
    std::ranges::for_each(expected, [](float& value) { value *= 0.3125F; });
    const TypeParam grad(0.3125F);
    launch(test::cpu(),
           RescaleGradient{.dtype = dtype_of<TypeParam>, .count = count, .grad = &grad, .gradient = gradient.data()});
    expect_rounded(gradient, expected);
  }
}

TYPED_TEST(HalfKernelsOf, ArraysAreCombinedInF32) {
  Rng rng(13);
  for (const std::int64_t count : kCounts) {
    for (const CombineOp op : {CombineOp::sum, CombineOp::avg, CombineOp::min, CombineOp::max, CombineOp::product}) {
      for (const int ins : {1, 2, 4}) {
        std::vector<std::vector<TypeParam>> narrow;
        std::vector<std::vector<float>> wide;
        std::vector<const void*> in;
        std::vector<const void*> wide_in;
        for (int k = 0; k < ins; ++k) {
          narrow.push_back(test::random_values<TypeParam>(rng, count));
          wide.push_back(widened(narrow.back()));
        }
        for (int k = 0; k < ins; ++k) {
          in.push_back(narrow[static_cast<std::size_t>(k)].data());
          wide_in.push_back(wide[static_cast<std::size_t>(k)].data());
        }
        // The first array takes the result, and another one a copy.
        std::vector<TypeParam> copy(static_cast<std::size_t>(count));
        void* const out[] = {narrow[0].data(), copy.data()};
        void* const wide_out[] = {wide[0].data()};
        launch(test::cpu(), Combine{.op = op,
                                    .dtype = dtype_of<TypeParam>,
                                    .in = in.data(),
                                    .ins = ins,
                                    .out = out,
                                    .outs = 2,
                                    .count = count,
                                    .divisor = 3});
        launch(test::cpu(), Combine{.op = op,
                                    .dtype = DType::f32,
                                    .in = wide_in.data(),
                                    .ins = ins,
                                    .out = wide_out,
                                    .outs = 1,
                                    .count = count,
                                    .divisor = 3});
        expect_rounded(narrow[0], wide[0]);
        expect_rounded(copy, wide[0]);
      }
    }
  }
}

TYPED_TEST(HalfKernelsOf, RowsAreAddedWithOneRounding) {
  Rng rng(14);
  for (const std::int64_t count : kCounts) {
    const auto values = test::random_values<TypeParam>(rng, count);
    const auto before = test::random_values<TypeParam>(rng, count);
    std::vector<float> once;
    std::vector<float> twice;
    for (std::size_t i = 0; i < values.size(); ++i) {
      once.push_back(before[i] + values[i]);
      twice.push_back(TypeParam(once.back()) + values[i]);
    }
    std::vector<TypeParam> copied = before;
    launch(test::cpu(), Copy{.in_dtype = dtype_of<TypeParam>,
                             .out_dtype = dtype_of<TypeParam>,
                             .accumulate = Accumulate::yes,
                             .loop = test::loop_of({count}),
                             .out = dense(copied.data()),
                             .in = dense(values.data())});
    expect_rounded(copied, once);

    // Row 1 of three takes the values twice; an index is left out.
    std::vector<TypeParam> rows;
    std::vector<TypeParam> added;
    for (int row = 0; row < 3; ++row) {
      rows.insert(rows.end(), before.begin(), before.end());
      added.insert(added.end(), values.begin(), values.end());
    }
    const std::int64_t index[] = {1, -1, 1};
    launch(test::cpu(), IndexAdd{.dtype = dtype_of<TypeParam>,
                                 .out = rows.data(),
                                 .in = added.data(),
                                 .index = index,
                                 .outer = 1,
                                 .size = 3,
                                 .count = 3,
                                 .inner = count});
    expect_rounded(std::vector<TypeParam>(rows.begin(), rows.begin() + count), widened(before));
    expect_rounded(std::vector<TypeParam>(rows.begin() + count, rows.begin() + 2 * count), twice);
    expect_rounded(std::vector<TypeParam>(rows.begin() + 2 * count, rows.end()), widened(before));
  }
}

TYPED_TEST(HalfKernelsOf, RowsAreCompared) {
  Rng rng(15);
  for (const std::int64_t count : kCounts) {
    auto a = test::random_values<TypeParam>(rng, count);
    const auto b = test::random_values<TypeParam>(rng, count);
    for (std::size_t i = 0; i < a.size(); i += 3) {
      a[i] = i % 2 == 0 ? b[i] : TypeParam(NAN);
    }
    const auto holds = [&](CompareOp op, auto&& expected) {
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count), 7);
      launch(test::cpu(), Compare{.op = op,
                                  .dtype = dtype_of<TypeParam>,
                                  .loop = test::loop_of({count}),
                                  .out = dense(reinterpret_cast<bool*>(bytes.data())),
                                  .a = dense(a.data()),
                                  .b = dense(b.data())});
      for (std::size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(bytes[i], expected(static_cast<float>(a[i]), static_cast<float>(b[i])) ? 1 : 0) << i;
      }
    };
    holds(CompareOp::lt, [](float x, float y) { return x < y; });
    holds(CompareOp::eq, [](float x, float y) { return x == y; });
    holds(CompareOp::ne, [](float x, float y) { return x != y; });
    holds(CompareOp::logical_xor, [](float x, float y) { return (x != 0) != (y != 0); });
  }
}

TYPED_TEST(HalfKernelsOf, SumsAndNormsKeepTheirDigits) {
  Rng rng(16);
  for (const std::int64_t count : kCounts) {
    const auto values = test::random_values<TypeParam>(rng, count, 0.5, 1);
    double sum = 0;
    double squares = 0;
    double cubes = 0;
    for (const TypeParam value : values) {
      const double exact = static_cast<double>(value);
      sum += exact;
      squares += exact * exact;
      cubes += exact * exact * exact;
    }
    std::vector<TypeParam> mean(1);
    launch(test::cpu(), Reduce{.op = ReduceOp::sum,
                               .dtype = dtype_of<TypeParam>,
                               .kept = test::loop_of({1}),
                               .reduced = test::loop_of({count}),
                               .out = dense(mean.data()),
                               .in = dense(values.data()),
                               .in_reduced = dense(values.data()),
                               .scale = 1 / static_cast<double>(count)});
    expect_rounded(mean, {static_cast<float>(sum / static_cast<double>(count))});
    double total = 0;
    launch(test::cpu(),
           SquaredNorm{.dtype = dtype_of<TypeParam>, .count = count, .values = values.data(), .total = &total});
    EXPECT_NEAR(total, squares, 1e-12 * squares);
    launch(
        test::cpu(),
        PowerNorm{.dtype = dtype_of<TypeParam>, .count = count, .values = values.data(), .total = &total, .power = 3});
    EXPECT_NEAR(total, cubes, 1e-12 * cubes);
  }
}

TEST(PowerNorm, WholeAndOtherPowersAgreeWithTheCLibrary) {
  Rng rng(17);
  for (const std::int64_t count : {1, 255, 256, 257, 1000}) {
    auto values = test::random_values<double>(rng, count, -3, 3);
    values[static_cast<std::size_t>(count / 2)] = 0;
    for (const double power : {1.0, 2.0, 3.0, 6.0, 63.0, 64.0, 65.0, 0.5, 2.5}) {
      double expected = 0;
      for (const double value : values) {
        expected += std::pow(std::abs(value), power);
      }
      double total = 7;
      launch(test::cpu(),
             PowerNorm{.dtype = DType::f64, .count = count, .values = values.data(), .total = &total, .power = power});
      EXPECT_NEAR(total, expected, 1e-13 * expected) << power;
    }
  }
  const std::vector<double> special{1e200, NAN};
  double total = 0;
  launch(test::cpu(),
         PowerNorm{.dtype = DType::f64, .count = 1, .values = special.data(), .total = &total, .power = 3});
  EXPECT_EQ(total, INFINITY);
  launch(test::cpu(),
         PowerNorm{.dtype = DType::f64, .count = 2, .values = special.data(), .total = &total, .power = 3});
  EXPECT_TRUE(std::isnan(total));
}

}  // namespace
}  // namespace tandem::kernels
