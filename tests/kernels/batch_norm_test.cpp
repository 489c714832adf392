#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/naive_norm.h"

namespace tandem::kernels {
namespace {

template <class T>
class BatchNormOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(BatchNormOf, Types);

TYPED_TEST(BatchNormOf, AgreesWithTheNaiveLoop) {
  using T = TypeParam;
  Rng rng(3);
  for (const Cube& cube : kCubes) {
    SCOPED_TRACE(label(cube));
    const auto in = test::random_values<T>(rng, cube.numel(), -2, 3);
    const auto weight = test::random_values<T>(rng, cube.channels, 0.5, 1.5);
    const auto bias = test::random_values<T>(rng, cube.channels);
    const Naive naive = by_channel(cube);
    Statistics statistics;
    for (const auto* w : {&weight, static_cast<const std::vector<T>*>(nullptr)}) {
      for (const auto* b : {&bias, static_cast<const std::vector<T>*>(nullptr)}) {
        const auto got = batch_norm(cube, in, w, b, statistics);
        EXPECT_LE(test::difference(got, naive_forward(naive, in, w, b)), test::tolerance<T>());
      }
    }
  }
}

TYPED_TEST(BatchNormOf, UpdatesTheRunningStatistics) {
  using T = TypeParam;
  Rng rng(4);
  for (const Cube& cube : kCubes) {
    SCOPED_TRACE(label(cube));
    const auto in = test::random_values<T>(rng, cube.numel(), -2, 3);
    const Running<T> before{test::random_values<T>(rng, cube.channels),
                            test::random_values<T>(rng, cube.channels, 1, 2)};
    Running<T> running = before;
    Statistics statistics;
    batch_norm<T>(cube, in, nullptr, nullptr, statistics, &running);
    if (cube.numel() == 0) {
      EXPECT_EQ(running.mean, before.mean) << "a batch of none changes nothing";
      EXPECT_EQ(running.var, before.var);
      continue;
    }
    const NaiveStatistics s(by_channel(cube), in);
    Reals mean, var;
    for (std::size_t c = 0; c < s.mean.size(); ++c) {
      mean.push_back(0.75 * static_cast<double>(before.mean[c]) + 0.25 * static_cast<double>(s.mean[c]));
      var.push_back(0.75 * static_cast<double>(before.var[c]) +
                    0.25 * static_cast<double>(s.variance[c] * s.count[c] / (s.count[c] - 1)));
    }
    EXPECT_LE(test::difference(running.mean, mean), test::tolerance<T>());
    EXPECT_LE(test::difference(running.var, var), test::tolerance<T>());
  }
}

TYPED_TEST(BatchNormOf, InEvaluationUsesTheRunningStatistics) {
  using T = TypeParam;
  Rng rng(5);
  for (const Cube& cube : kCubes) {
    SCOPED_TRACE(label(cube));
    const auto in = test::random_values<T>(rng, cube.numel(), -2, 3);
    const auto weight = test::random_values<T>(rng, cube.channels, 0.5, 1.5);
    const auto grad = test::random_values<T>(rng, cube.numel());
    const Running<T> before{test::random_values<T>(rng, cube.channels),
                            test::random_values<T>(rng, cube.channels, 1, 2)};
    Running<T> running = before;
    Statistics statistics;
    const auto got = batch_norm<T>(cube, in, &weight, nullptr, statistics, &running, false);
    EXPECT_EQ(running.mean, before.mean);
    EXPECT_EQ(running.var, before.var);
    Reals out, of_in, of_weight(weight.size()), of_bias(weight.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::size_t c = cube.channel(static_cast<std::int64_t>(i));
      const double rstd = 1 / std::sqrt(static_cast<double>(running.var[c]) + kEps);
      const double x = (static_cast<double>(in[i]) - static_cast<double>(running.mean[c])) * rstd;
      out.push_back(x * static_cast<double>(weight[c]));
      of_in.push_back(static_cast<double>(grad[i]) * static_cast<double>(weight[c]) * rstd);
      of_weight[c] += static_cast<double>(grad[i]) * x;
      of_bias[c] += static_cast<double>(grad[i]);
    }
    EXPECT_LE(test::difference(got, out), test::tolerance<T>());
    std::vector<T> in_grad(in.size()), weight_grad(weight.size()), bias_grad(weight.size());
    BatchNormGrad kernel{.dtype = dtype_of<T>,
                         .training = false,
                         .outer = cube.outer,
                         .channels = cube.channels,
                         .inner = cube.inner,
                         .grad = grad.data(),
                         .in = in.data(),
                         .weight = weight.data(),
                         .statistics = statistics.data(),
                         .in_grad = in_grad.data(),
                         .weight_grad = weight_grad.data(),
                         .bias_grad = bias_grad.data()};
    launch(test::cpu(), kernel);
    EXPECT_LE(test::difference(in_grad, of_in), test::tolerance<T>());
    EXPECT_LE(test::difference(weight_grad, of_weight, 1), test::tolerance<T>());
    EXPECT_LE(test::difference(bias_grad, of_bias, 1), test::tolerance<T>());
    // Neither gradient needs the input then.
    const auto all = in_grad;
    kernel.in = nullptr;
    kernel.weight_grad = nullptr;
    launch(test::cpu(), kernel);
    EXPECT_EQ(in_grad, all);
    EXPECT_LE(test::difference(bias_grad, of_bias, 1), test::tolerance<T>());
  }
}

TYPED_TEST(BatchNormOf, GradientsAgreeWithTheNaiveLoop) {
  using T = TypeParam;
  Rng rng(6);
  for (const Cube& cube : kCubes) {
    const auto in = test::random_values<T>(rng, cube.numel(), -2, 3);
    const auto grad = test::random_values<T>(rng, cube.numel());
    const auto weight = test::random_values<T>(rng, cube.channels, 0.5, 1.5);
    for (const auto* w : {&weight, static_cast<const std::vector<T>*>(nullptr)}) {
      Statistics statistics;
      batch_norm(cube, in, w, w, statistics);
      const NaiveGradients expected = naive_gradients(by_channel(cube), in, grad, w);
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        SCOPED_TRACE(label(cube) + (accumulate == Accumulate::yes ? ", added" : ""));
        const auto before = test::random_values<T>(rng, cube.numel());
        const auto before_affine = test::random_values<T>(rng, cube.channels);
        auto of_in = before;
        auto of_weight = before_affine;
        auto of_bias = before_affine;
        launch(test::cpu(), BatchNormGrad{.dtype = dtype_of<T>,
                                          .training = true,
                                          .outer = cube.outer,
                                          .channels = cube.channels,
                                          .inner = cube.inner,
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
