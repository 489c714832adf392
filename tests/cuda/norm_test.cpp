#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/batch_norm.h>
#include <tandem/kernels/layer_norm.h>

#include "cuda/device_array.h"
#include "cuda/near.h"
#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::DeviceArray;
using test::Rng;

void expect_near(const std::vector<NormStatistics>& got, const std::vector<NormStatistics>& expected, double slack) {
  ASSERT_EQ(got.size(), expected.size());
  const auto near = [=](double a, double b) {
    return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= slack * (1 + std::abs(b));
  };
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(near(got[i].mean, expected[i].mean)) << i << ": " << got[i].mean << " " << expected[i].mean;
    ASSERT_TRUE(near(got[i].rstd, expected[i].rstd)) << i << ": " << got[i].rstd << " " << expected[i].rstd;
  }
}

// The arrays of a norm on both devices, and a pass over them: run(context, pointers) is called once per device.
template <class T>
struct Case {
  Rng& rng;
  std::int64_t outer, channels, inner;  // a layer norm uses rows, size, 1
  bool layer;
  std::size_t offset;  // of all arrays
  bool with_weight, with_bias, training;
  Accumulate accumulate;

  std::int64_t numel() const { return outer * channels * inner; }
  std::int64_t statistics_count() const { return layer ? outer : channels; }

  void forward() const {
    const auto in = test::random_values<T>(rng, numel(), -2, 3);
    const auto weight = test::random_values<T>(rng, channels, 0.5, 1.5);
    const auto bias = test::random_values<T>(rng, channels, -1, 1);
    auto running_mean = test::random_values<T>(rng, channels, -1, 1);
    auto running_var = test::random_values<T>(rng, channels, 1, 2);
    std::vector<T> out(in.size());
    std::vector<NormStatistics> statistics(static_cast<std::size_t>(statistics_count()));
    const DeviceArray<T> gpu_in(in, offset), gpu_weight(weight, offset), gpu_bias(bias, offset), gpu_out(out, offset),
        gpu_mean(running_mean, offset), gpu_var(running_var, offset);
    const DeviceArray<NormStatistics> gpu_statistics(statistics);
    const auto run = [&](Context& context, const T* x, const T* w, const T* b, T* mean, T* var, NormStatistics* s,
                         T* y) {
      w = with_weight ? w : nullptr;
      b = with_bias ? b : nullptr;
      if (layer) {
        launch(context, LayerNorm{dtype_of<T>, outer, channels, 1e-5, x, w, b, s, y});
      } else {
        launch(context,
               BatchNorm{dtype_of<T>, training, outer, channels, inner, 1e-5, {0.1}, x, w, b, mean, var, s, y});
      }
    };
    run(test::cpu(), in.data(), weight.data(), bias.data(), running_mean.data(), running_var.data(), statistics.data(),
        out.data());
    run(test::gpu(), gpu_in.data(), gpu_weight.data(), gpu_bias.data(), gpu_mean.data(), gpu_var.data(),
        gpu_statistics.data(), gpu_out.data());
    test::expect_near(gpu_out.download(), out, "out", 4);
    test::expect_near(gpu_mean.download(), running_mean, "running mean");
    test::expect_near(gpu_var.download(), running_var, "running variance");
    expect_near(gpu_statistics.download(), statistics, std::is_same_v<T, double> ? 1e-12 : 1e-6);
  }

  void backward(bool of_in, bool of_weight, bool of_bias) const {
    const auto in = test::random_values<T>(rng, numel(), -2, 3);
    const auto grad = test::random_values<T>(rng, numel(), -1, 1);
    const auto weight = test::random_values<T>(rng, channels, 0.5, 1.5);
    auto in_grad = test::random_values<T>(rng, numel(), -1, 1);
    auto weight_grad = test::random_values<T>(rng, channels, -1, 1);
    auto bias_grad = test::random_values<T>(rng, channels, -1, 1);
    std::vector<NormStatistics> statistics;
    for (std::int64_t i = 0; i < statistics_count(); ++i)
      statistics.push_back({test::real_between(rng, -1, 1), test::real_between(rng, 0.5, 1.5)});
    const DeviceArray<T> gpu_in(in, offset), gpu_grad(grad, offset), gpu_weight(weight, offset),
        gpu_in_grad(in_grad, offset), gpu_weight_grad(weight_grad, offset), gpu_bias_grad(bias_grad, offset);
    const DeviceArray<NormStatistics> gpu_statistics(statistics);
    const auto run = [&](Context& context, const T* g, const T* x, const T* w, const NormStatistics* s, T* dx, T* dw,
                         T* db) {
      w = with_weight ? w : nullptr;
      x = of_weight || (of_in && (layer || training)) || (!layer && training) ? x : nullptr;
      dx = of_in ? dx : nullptr;
      dw = of_weight ? dw : nullptr;
      db = of_bias ? db : nullptr;
      if (layer) {
        launch(context,
               LayerNormGrad{dtype_of<T>, outer, channels, g, x, w, s, dx, accumulate, dw, accumulate, db, accumulate});
      } else {
        launch(context, BatchNormGrad{dtype_of<T>, training, outer, channels, inner, g, x, w, s, dx, accumulate, dw,
                                      accumulate, db, accumulate});
      }
    };
    run(test::cpu(), grad.data(), in.data(), weight.data(), statistics.data(), in_grad.data(), weight_grad.data(),
        bias_grad.data());
    run(test::gpu(), gpu_grad.data(), gpu_in.data(), gpu_weight.data(), gpu_statistics.data(), gpu_in_grad.data(),
        gpu_weight_grad.data(), gpu_bias_grad.data());
    test::expect_near(gpu_in_grad.download(), in_grad, "gradient of the input", 4);
    const double terms = std::sqrt(static_cast<double>(numel()));
    test::expect_near(gpu_weight_grad.download(), weight_grad, "gradient of the weight", terms);
    test::expect_near(gpu_bias_grad.download(), bias_grad, "gradient of the bias", terms);
  }
};

struct Cube {
  std::int64_t outer, channels, inner;
};

template <class T>
void compare(bool layer, const std::vector<Cube>& cubes) {
  Rng rng(9);
  for (const Cube& cube : cubes) {
    for (int round = 0; round < 6; ++round) {
      const Case<T> one{rng,
                        cube.outer,
                        cube.channels,
                        cube.inner,
                        layer,
                        round % 2 == 0 ? 0 : rng() % 9,
                        round != 4 && rng() % 2 == 0,
                        round != 4 && rng() % 2 == 0,
                        rng() % 3 != 0,
                        rng() % 2 == 0 ? Accumulate::yes : Accumulate::no};
      SCOPED_TRACE(std::to_string(cube.outer) + " " + std::to_string(cube.channels) + " " + std::to_string(cube.inner) +
                   " round " + std::to_string(round) + (one.training ? " training" : ""));
      one.forward();
      one.backward(round < 3, round % 3 != 1, round != 2);
      if (round == 3) one.backward(true, false, false);
    }
  }
}

template <class T>
class GpuNormOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Float16>;
TYPED_TEST_SUITE(GpuNormOf, Types);

TYPED_TEST(GpuNormOf, LayerNormEqualsTheCpus) {
  TANDEM_NEEDS_GPU();
  compare<TypeParam>(true, {{1, 1, 1},
                            {5, 1, 1},
                            {300, 1, 1},
                            {3, 7, 1},
                            {0, 8, 1},
                            {4, 0, 1},
                            {9, 64, 1},
                            {700, 16, 1},
                            {33, 1000, 1},
                            {2, 1027, 1},
                            {3, 8192, 1},
                            {2, 8200, 1}});
}

TYPED_TEST(GpuNormOf, BatchNormEqualsTheCpus) {
  TANDEM_NEEDS_GPU();
  compare<TypeParam>(false, {{2, 1, 1},
                             {5, 3, 1},
                             {1, 4, 9},
                             {700, 5, 1},
                             {64, 128, 1},
                             {4000, 8, 1},
                             {10, 3, 300},
                             {3, 16, 64},
                             {100, 2, 9},
                             {2, 3, 5000},
                             {0, 3, 2},
                             {3, 0, 2},
                             {3, 2, 0}});
}

TYPED_TEST(GpuNormOf, ALargeMeanLosesNoDigits) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  if constexpr (is_16_bit<T>) {
    GTEST_SKIP() << "values of 16 bits have no such digits";
  } else {
    Rng rng(7);
    const T step = T(std::nextafter(10'000.0F, 20'000.0F) - 10'000.0F);
    for (const Cube& cube : {Cube{700, 5, 1}, Cube{10, 3, 300}}) {
      std::vector<T> in;
      for (std::int64_t i = 0; i < cube.outer * cube.channels * cube.inner; ++i)
        in.push_back(T(10'000) + static_cast<T>(rng() % 7) * step);
      std::vector<T> out(in.size());
      std::vector<NormStatistics> statistics(static_cast<std::size_t>(cube.outer));
      const DeviceArray<T> gpu_in(in), gpu_out(out);
      const DeviceArray<NormStatistics> gpu_statistics(statistics);
      for (const bool layer : {false, true}) {
        const auto run = [&](Context& context, const T* x, NormStatistics* s, T* y) {
          if (layer) {
            launch(context,
                   LayerNorm{dtype_of<T>, cube.outer, cube.channels * cube.inner, 0, x, nullptr, nullptr, s, y});
          } else {
            launch(context, BatchNorm{dtype_of<T>,
                                      true,
                                      cube.outer,
                                      cube.channels,
                                      cube.inner,
                                      0,
                                      {},
                                      x,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      s,
                                      y});
          }
        };
        run(test::cpu(), in.data(), statistics.data(), out.data());
        run(test::gpu(), gpu_in.data(), gpu_statistics.data(), gpu_out.data());
        test::expect_near(gpu_out.download(), out, "out", std::is_same_v<T, double> ? 1e4 : 1);
      }
    }
  }
}

TYPED_TEST(GpuNormOf, EqualValuesHaveNoVariance) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  for (const Cube& cube : {Cube{700, 5, 1}, Cube{10, 3, 300}, Cube{100, 2, 9}}) {
    const std::vector<T> in(static_cast<std::size_t>(cube.outer * cube.channels * cube.inner), T(1234.567F));
    const DeviceArray<T> gpu_in(in), out(in);
    const DeviceArray<NormStatistics> statistics(std::vector<NormStatistics>(in.size()));
    launch(test::gpu(), BatchNorm{dtype_of<T>,
                                  true,
                                  cube.outer,
                                  cube.channels,
                                  cube.inner,
                                  1e-5,
                                  {},
                                  gpu_in.data(),
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  statistics.data(),
                                  out.data()});
    for (const T value : out.download())
      ASSERT_EQ(static_cast<double>(value), 0);
    EXPECT_EQ(statistics.download()[0].rstd, 1 / std::sqrt(1e-5));
    launch(test::gpu(), LayerNorm{dtype_of<T>, cube.outer, cube.channels * cube.inner, 1e-5, gpu_in.data(), nullptr,
                                  nullptr, statistics.data(), out.data()});
    for (const T value : out.download())
      ASSERT_EQ(static_cast<double>(value), 0);
  }
}

}  // namespace
}  // namespace tandem::kernels
