#include <bit>
#include <cmath>
#include <limits>

#include "emulated_gpu.h"
#include "test_support.h"

// How device code rounds: contraction, and results of mathematical functions that differ from the C library's.

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class MoveResults {
 public:
  explicit MoveResults(int most) { emulated_gpu::move_results(most); }
  ~MoveResults() { emulated_gpu::move_results(0); }
  MoveResults(const MoveResults&) = delete;
  MoveResults& operator=(const MoveResults&) = delete;
};

template <class T, class F>
__global__ void apply(const T* x, T* y, F f) {
  y[blockIdx.x] = f(x[blockIdx.x]);
}

// The results of f in device code.
template <class T, class F>
std::vector<T> on_device(const std::vector<T>& x, F f) {
  const Array<T> in(x);
  const Array<T> out(x.size());
  const Stream stream;
  EXPECT_CUDA(launch(stream, static_cast<unsigned>(x.size()), 1, 0, apply<T, F>, in.data(), out.data(), f));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  return out.values();
}

std::vector<float> ramp(float first, float step) {
  std::vector<float> x;
  for (int i = 0; i < 200; ++i) {
    x.push_back(first + step * static_cast<float>(i));
  }
  return x;
}

int units_between(float a, float b) { return std::abs(std::bit_cast<int>(a) - std::bit_cast<int>(b)); }

constexpr auto kExp = [](float x) { return std::exp(x); };

TEST(Rounding, DeviceCodeRoundsAProductAndASumOnce) {
#if !defined(__FMA__)
  GTEST_SKIP() << "this processor has no FMA";
#endif
  const std::vector<float> x{1 + 0x1p-12F};
  constexpr float rounded = 1 + 0x1p-11F;  // x * x without its last bit
  EXPECT_EQ(on_device(x, [](float v) { return v * v - rounded; })[0], 0x1p-24F);
  EXPECT_EQ(on_device(x, [](float v) { return __fmul_rn(v, v) - rounded; })[0], 0.0F);
  EXPECT_EQ(on_device(x, [](float v) { return __fsub_rn(v * v, rounded); })[0], 0.0F);
}

TEST(Rounding, ResultsAreTheCLibrarysUnlessTheyAreToldToMove) {
  const std::vector<float> x = ramp(-3, 0.03F);
  const std::vector<float> y = on_device(x, kExp);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], std::exp(x[i]));
  }
}

TEST(Rounding, ResultsMoveByAFewUnitsAlwaysInTheSameWay) {
  const MoveResults by(2);
  const std::vector<float> x = ramp(-3, 0.03F);
  const std::vector<float> y = on_device(x, kExp);
  int up = 0;
  int down = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float exact = std::exp(x[i]);
    EXPECT_LE(units_between(y[i], exact), 2) << x[i];
    up += y[i] > exact ? 1 : 0;
    down += y[i] < exact ? 1 : 0;
  }
  EXPECT_GT(up, 50);
  EXPECT_GT(down, 50);
  EXPECT_EQ(on_device(x, kExp), y);
}

TEST(Rounding, DoublesAndPowersMoveToo) {
  const MoveResults by(2);
  const std::vector<double> x{1.1, 1.2, 1.3, 1.4, 1.5};
  const std::vector<double> log1p = on_device(x, [](double v) { return std::log1p(v); });
  const std::vector<double> power = on_device(x, [](double v) { return std::pow(v, 1.5); });
  int moved_logarithms = 0;
  int moved_powers = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(log1p[i], std::log1p(x[i]), 1e-15);
    EXPECT_NEAR(power[i], std::pow(x[i], 1.5), 1e-15);
    moved_logarithms += log1p[i] != std::log1p(x[i]) ? 1 : 0;
    moved_powers += power[i] != std::pow(x[i], 1.5) ? 1 : 0;
  }
  EXPECT_GT(moved_logarithms, 0);
  EXPECT_GT(moved_powers, 0);
}

TEST(Rounding, WhatCudaComputesExactlyStaysExact) {
  const MoveResults by(2);
  EXPECT_EQ(on_device<float>({0, -kInfinity, kInfinity}, kExp), (std::vector<float>{1, 0, kInfinity}));
  EXPECT_EQ(on_device<float>({1, 0, kInfinity}, [](float x) { return std::log(x); }),
            (std::vector<float>{0, -kInfinity, kInfinity}));
  EXPECT_EQ(on_device<float>({0}, [](float x) { return std::cos(x); }), std::vector<float>{1});
  EXPECT_EQ(on_device<float>({1, 2.5F}, [](float x) { return std::pow(x, 0.0F); }), (std::vector<float>{1, 1}));
  for (const float y : on_device(ramp(8, 0.1F), [](float x) { return std::tanh(x); })) {
    EXPECT_LE(y, 1.0F);
  }
  const std::vector<float> x = ramp(2, 0.1F);
  const std::vector<float> roots = on_device(x, [](float v) { return std::sqrt(v) / 3; });
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(roots[i], std::sqrt(x[i]) / 3);
  }
}

TEST(Rounding, HostCodeInACuFileKeepsTheCLibrarysResults) {
  const std::vector<float> x = ramp(-3, 0.03F);
  std::vector<float> before;
  for (const float each : x) {
    before.push_back(kExp(each));
  }
  const MoveResults by(2);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(kExp(x[i]), before[i]);
  }
}

TEST(Rounding, FastFunctionsHaveTheirDocumentedErrors) {
  EXPECT_EQ(on_device<float>({1}, [](float x) { return __fdividef(x, 0x1.8p126F); })[0], 0.0F);
  EXPECT_TRUE(std::isnan(on_device<float>({kInfinity}, [](float x) { return __fdividef(x, 0x1.8p126F); })[0]));
  const MoveResults by(2);
  const std::vector<float> x = ramp(1, 0.1F);
  const std::vector<float> quotient = on_device(x, [](float v) { return __fdividef(1.0F, v); });
  const std::vector<float> power = on_device(x, [](float v) { return __expf(v); });
  int farthest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(units_between(quotient[i], 1 / x[i]), 2);
    EXPECT_LE(units_between(power[i], std::exp(x[i])), 2 + static_cast<int>(1.173F * x[i]));
    farthest = std::max(farthest, units_between(power[i], std::exp(x[i])));
  }
  EXPECT_GT(farthest, 4);
}

}  // namespace
