#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/naive_norm.h"

namespace tandem::kernels {
namespace {

template <class T>
class LayerNormOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LayerNormOf, Types);

TYPED_TEST(LayerNormOf, AgreesWithTheNaiveLoop) {
  using T = TypeParam;
  Rng rng(1);
  for (const auto& [rows, size] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                   {1, 7},
                                   {3, 31},
                                   {3, 32},
                                   {5, 33},
                                   {300, 64},
                                   {2, 513},
                                   {3, 5000},
                                   {40, 2000},
                                   {2, 65'537},
                                   {0, 5},
                                   {3, 0}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}", rows, size));
    const auto in = test::random_values<T>(rng, rows * size, -2, 3);
    const auto weight = test::random_values<T>(rng, size, 0.5, 1.5);
    const auto bias = test::random_values<T>(rng, size);
    const Naive naive = by_row(static_cast<std::size_t>(rows), static_cast<std::size_t>(size));
    Statistics statistics;
    for (const auto* w : {&weight, static_cast<const std::vector<T>*>(nullptr)}) {
      for (const auto* b : {&bias, static_cast<const std::vector<T>*>(nullptr)}) {
        const auto got = layer_norm(in, rows, w, b, statistics);
        EXPECT_LE(test::difference(got, naive_forward(naive, in, w, b)), test::tolerance<T>());
      }
    }
  }
}

TYPED_TEST(LayerNormOf, GradientsAgreeWithTheNaiveLoop) {
  using T = TypeParam;
  Rng rng(2);
  for (const auto& [rows, size] : {std::pair<std::int64_t, std::int64_t>{1, 2},
                                   {3, 31},
                                   {5, 33},
                                   {300, 64},
                                   {3, 5000},
                                   {2, 65'537},
                                   {1500, 600},
                                   {0, 5}}) {
    const auto in = test::random_values<T>(rng, rows * size, -2, 3);
    const auto grad = test::random_values<T>(rng, rows * size);
    const auto weight = test::random_values<T>(rng, size, 0.5, 1.5);
    const Naive naive = by_row(static_cast<std::size_t>(rows), static_cast<std::size_t>(size));
    for (const auto* w : {&weight, static_cast<const std::vector<T>*>(nullptr)}) {
      Statistics statistics;
      layer_norm(in, rows, w, w, statistics);
      const NaiveGradients expected = naive_gradients(naive, in, grad, w);
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        SCOPED_TRACE(fmt::format("{} rows of {}{}", rows, size, accumulate == Accumulate::yes ? ", added" : ""));
        const auto before = test::random_values<T>(rng, rows * size);
        const auto before_affine = test::random_values<T>(rng, size);
        auto of_in = before;
        auto of_weight = before_affine;
        auto of_bias = before_affine;
        launch(test::cpu(), LayerNormGrad{.dtype = dtype_of<T>,
                                          .rows = rows,
                                          .size = size,
                                          .grad = grad.data(),
                                          .in = in.data(),
                                          .weight = w != nullptr ? w->data() : nullptr,
                                          .statistics = statistics.data(),
                                          .in_grad = of_in.data(),
                                          .accumulate_in = accumulate,
                                          .weight_grad = of_weight.data(),
                                          .accumulate_weight = accumulate,
                                          .bias_grad = of_bias.data(),
                                          .accumulate_bias = accumulate});
        expect_added(of_in, before, expected.in, accumulate, 1);
        expect_added(of_weight, before_affine, expected.weight, accumulate, 1);
        expect_added(of_bias, before_affine, expected.bias, accumulate, 1);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
