#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/pipeline/stages.h"
#include "support/message.h"

namespace tandem::test {
namespace {

using parallel::StageSplit;
using parallel::detail::split_evenly;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(PipelineSplit, MakesTheLargestStageSmall) {
  EXPECT_THAT(split_evenly({3, 1, 1, 1}, 2), ElementsAre(1, 3));
  EXPECT_THAT(split_evenly({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3), ElementsAre(5, 2, 2));
  EXPECT_THAT(split_evenly({5}, 1), ElementsAre(1));
  EXPECT_THAT(split_evenly({1, 1, 9}, 3), ElementsAre(1, 1, 1));
}

// A ReLU costs nothing here, and fuses with the Linear before it.
TEST(PipelineSplit, KeepsAnActivationWithTheLayerBeforeIt) {
  EXPECT_THAT(split_evenly({10, 0, 10, 0, 0, 10}, 3), ElementsAre(2, 3, 1));
  EXPECT_THAT(split_evenly({0, 0, 0, 0}, 3), ElementsAre(2, 1, 1));
}

TEST(PipelineSplit, IsTheBestOfAll) {
  Generator generator(3);
  const GeneratorScope draws(generator);
  for (int i = 0; i < 200; ++i) {
    const std::vector<double> costs = rand({1 + i % 9}, {.dtype = DType::f64}).to_vector<double>();
    const std::size_t parts = std::min<std::size_t>(3, costs.size());
    const auto largest = [&](const std::vector<std::size_t>& counts) {
      double most = 0;
      auto at = costs.begin();
      for (const std::size_t count : counts) {
        most = std::max(most, std::accumulate(at, at + static_cast<std::ptrdiff_t>(count), 0.0));
        at += static_cast<std::ptrdiff_t>(count);
      }
      return most;
    };
    const std::vector<std::size_t> got = split_evenly(costs, parts);
    ASSERT_EQ(std::accumulate(got.begin(), got.end(), std::size_t{0}), costs.size());
    for (std::size_t a = 1; a < costs.size(); ++a) {
      for (std::size_t b = 1; parts == 3 && a + b < costs.size(); ++b) {
        EXPECT_LE(largest(got), largest({a, b, costs.size() - a - b}) + 1e-12);
      }
    }
  }
}

TEST(PipelineSplit, CountsBytes) {
  const nn::Sequential model = plain_net();
  const StageSplit split = parallel::split_by_bytes(model, 2);
  EXPECT_THAT(split.layers, ElementsAre(2, 3));
  EXPECT_THAT(split.costs, ElementsAre(8 * (48 + 8), 0, 8 * (40 + 5), 0, 8 * (15 + 3)));
  const std::string text = to_string(split);
  EXPECT_THAT(text, HasSubstr("stage  layers             bytes   share\n"));
  EXPECT_THAT(text, HasSubstr("0      0-1                  448  47.1 %\n"));
}

TEST(PipelineSplit, MeasuresWithoutAnyChange) {
  nn::Sequential model = noisy_net();
  const StateDict before = model.state_dict();
  std::vector<std::vector<double>> values;
  for (const auto& [name, tensor] : before) {
    values.push_back(tensor.to(DType::f64).to_vector<double>());
  }
  const std::uint64_t drawn = current_generator().offset();
  const StageSplit split = parallel::split_by_time(model, rows_of_step(0, 8).x, 3);
  EXPECT_THAT(split.layers, SizeIs(3));
  EXPECT_EQ(split.unit, "us");
  EXPECT_TRUE(std::ranges::all_of(split.costs, [](double us) { return us > 0; }));
  EXPECT_EQ(current_generator().offset(), drawn);
  std::size_t i = 0;
  for (const auto& [name, tensor] : model.state_dict()) {
    EXPECT_EQ(tensor.to(DType::f64).to_vector<double>(), values[i++]) << name;
  }
  for (const Tensor& parameter : model.parameters()) {
    EXPECT_FALSE(parameter.grad().defined());
  }
}

TEST(PipelineSplit, RefusesMoreStagesThanLayers) {
  const nn::Sequential model = plain_net();
  EXPECT_THAT(message_of<ConfigError>([&] { parallel::split_by_bytes(model, 6); }),
              HasSubstr("6 stages for a Sequential of 5 layers"));
  EXPECT_THROW(parallel::split_by_bytes(model, 0), ConfigError);
}

}  // namespace
}  // namespace tandem::test
