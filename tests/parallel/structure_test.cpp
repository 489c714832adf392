#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/parallel/data_parallel/scatter_gather.h>
#include <tandem/tandem.h>

#include "parallel/models.h"
#include "support/message.h"

namespace tandem::parallel {
namespace {

using test::cpus;
using test::message_of;

struct Batch {
  Tensor image, label;
  std::string source;
  std::optional<Tensor> weight;
  friend auto members(Batch& batch) { return std::tie(batch.image, batch.label, batch.source, batch.weight); }
};

struct Options {
  bool train = true;
  double scale = 1;
};

static_assert(HoldsTensors<Tensor>);
static_assert(HoldsTensors<Parameter>);
static_assert(HoldsTensors<std::tuple<int, Tensor>>);
static_assert(HoldsTensors<std::pair<std::string, std::vector<Tensor>>>);
static_assert(HoldsTensors<std::map<std::string, Tensor>>);
static_assert(HoldsTensors<std::vector<std::tuple<Tensor, int>>>);
static_assert(HoldsTensors<std::optional<Tensor>>);
static_assert(HoldsTensors<std::array<Tensor, 2>>);
static_assert(HoldsTensors<Batch>);
static_assert(HoldsTensors<std::vector<Batch>>);
static_assert(!HoldsTensors<int>);
static_assert(!HoldsTensors<std::string>);
static_assert(!HoldsTensors<std::vector<bool>>);
static_assert(!HoldsTensors<std::tuple<>>);
static_assert(!HoldsTensors<Options>);
static_assert(!HoldsTensors<std::map<std::string, int>>);

template <class T>
T there_and_back(const T& value, int devices = 2) {
  return gather(scatter(value, cpus(devices)), "cpu:0");
}

TEST(Structures, TuplesAndPairs) {
  const auto [x, n] = there_and_back(std::tuple<Tensor, int>(arange(5), 7));
  EXPECT_EQ(x.numel(), 5);
  EXPECT_EQ(n, 7);
  EXPECT_EQ(there_and_back(std::pair<Tensor, Tensor>(arange(3), arange(3))).second.numel(), 3);
}

TEST(Structures, VectorsAndMaps) {
  const std::map<std::string, std::vector<Tensor>> value{{"a", {arange(4)}}, {"b", {arange(4), arange(4)}}};
  const auto parts = scatter(value, cpus(3));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].at("b")[1].device(), Device("cpu:1"));
  const auto back = there_and_back(value);
  EXPECT_EQ(back.at("b")[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 3}));
}

TEST(Structures, MapsWithoutAnOrder) {
  using Map = std::unordered_map<std::string, Tensor>;
  const Map out =
      gather(std::vector<Map>{{{"a", arange(1)}, {"b", ones({2})}}, {{"b", ones({3})}, {"a", arange(1)}}}, "cpu:0");
  EXPECT_EQ(out.at("a").numel(), 2);
  EXPECT_EQ(out.at("b").numel(), 5);
}

TEST(Structures, OwnTypes) {
  const Batch batch{arange(6).reshape({6, 1}), arange(6), "train.csv", ones({6})};
  const std::vector<Batch> parts = scatter(batch, cpus(4));
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[2].label.to_vector<std::int64_t>(), (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(parts[2].source, "train.csv");
  EXPECT_EQ(parts[2].weight->device(), Device("cpu:2"));
  EXPECT_EQ(there_and_back(batch).image.shape(), (Shape{6, 1}));
  EXPECT_FALSE(there_and_back(Batch{arange(2), arange(2), "", {}}).weight.has_value());
}

TEST(Structures, UndefinedTensorsStayUndefined) {
  const auto parts = scatter(std::tuple<Tensor, Tensor>(arange(4), Tensor()), cpus(2));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_FALSE(std::get<1>(parts[1]).defined());
}

TEST(Structures, ScalarsDoNotAskForMoreReplicasThanThereAreRows) {
  EXPECT_EQ(scatter(std::tuple<Tensor, Tensor>(tensor(1.0), arange(2)), cpus(4)).size(), 2U);
}

TEST(StructureErrors, SayWhatDiffers) {
  using Lists = std::vector<std::vector<Tensor>>;
  EXPECT_EQ(
      message_of<ConfigError>([] { gather(Lists{{arange(1)}, {arange(1), arange(1)}}, "cpu:0"); }),
      "gather: the replicas' outputs are built differently: 1 elements in a container in replica 0, 2 in another. "
      "What a forward returns may not depend on its part of the batch");
  using Optionals = std::vector<std::optional<Tensor>>;
  EXPECT_THROW(gather(Optionals{arange(1), std::nullopt}, "cpu:0"), ConfigError);
  using Counted = std::vector<std::tuple<Tensor, int>>;
  EXPECT_THROW(gather(Counted{{arange(1), 3}, {arange(1), 4}}, "cpu:0"), ConfigError);
  using Maps = std::vector<std::map<std::string, Tensor>>;
  EXPECT_EQ(message_of<ConfigError>([] { gather(Maps{{{"a", arange(1)}}, {{"b", arange(1)}}}, "cpu:0"); }),
            "gather: the replicas' outputs are built differently: 1 values for a key of a map in replica 0, 0 in "
            "another. What a forward returns may not depend on its part of the batch");
}

}  // namespace
}  // namespace tandem::parallel
