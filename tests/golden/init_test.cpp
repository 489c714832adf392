#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/nn/linear.h>
#include <tandem/tensor/generator.h>

#include "golden_file.h"

// Other generators draw other values, so the initial values of nn.Linear are compared by their distribution.

namespace tandem::golden {
namespace {

using nlohmann::json;

// Draws exceed these limits about once in a million seeds. The seed is fixed, so the outcome is the same in every run.
constexpr double kSigmas = 5;

void expect_uniform(const Tensor& values, double bound, double std) {
  const std::vector<double> v = values.to_vector<double>();
  const double count = static_cast<double>(v.size());
  double mean = 0;
  for (const double x : v) {
    mean += x / count;
  }
  double variance = 0;
  double largest = 0;
  for (const double x : v) {
    variance += (x - mean) * (x - mean) / count;
    largest = std::max(largest, std::abs(x));
  }
  EXPECT_LE(largest, bound);
  EXPECT_GE(largest, bound * (1 - 14 / count)) << "the range is not used up";  // exp(-14) is about a millionth
  EXPECT_LE(std::abs(mean), kSigmas * std / std::sqrt(count));
  // The squares of a uniform variable have the variance 0.8 std^4.
  EXPECT_NEAR(std::sqrt(variance) / std, 1, kSigmas * std::sqrt(0.2 / count) + 1 / count);
}

TEST(GoldenInit, LinearIsDrawnFromPyTorchsDistribution) {
  manual_seed(0);
  const json layers = read_family("init").at("layers");
  EXPECT_GE(layers.size(), 5u);
  for (const json& layer : layers) {
    const std::int64_t in = layer.at("in");
    const std::int64_t out = layer.at("out");
    SCOPED_TRACE(fmt::format("Linear({}, {})", in, out));
    for (const DType dtype : {DType::f32, DType::f64}) {
      const nn::Linear linear(in, out, {.dtype = dtype});
      EXPECT_EQ(linear.weight.numel(), layer.at("weight").at("count").get<std::int64_t>());
      EXPECT_EQ(linear.bias.numel(), layer.at("bias").at("count").get<std::int64_t>());
      expect_uniform(linear.weight, layer.at("bound"), layer.at("std"));
      expect_uniform(linear.bias, layer.at("bound"), layer.at("std"));
    }
  }
}

}  // namespace
}  // namespace tandem::golden
