#include <tandem/telemetry/prediction.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "support/message.h"

namespace tandem::telemetry {
namespace {

using test::message_of;
using ::testing::HasSubstr;

constexpr double kMib = 1 << 20;

/// A network on which 1 MiB takes 1000 us, and messages no time of their own.
const Network kMibPerMs{.name = "1 MiB/ms", .latency_us = 0, .bytes_per_us = kMib / 1000};

/// 2 layers of 8 MiB each.
StepProfile two_layers() {
  return {.rows = 10,
          .step_us = 35000,
          .input_us = 1000,
          .forward_us = 10000,
          .backward_us = 20000,
          .optimizer_us = 3000,
          .rest_us = 1000,
          .state_bytes = 32 * kMib,
          .activation_bytes = 36 * kMib,
          .parameter_bytes = {8 * kMib, 8 * kMib}};
}

Prediction predicted(Way way, int ranks, const PredictionOptions& options = {.network = kMibPerMs}) {
  const std::vector<Prediction> all = predict_step(two_layers(), ranks, options);
  return *std::ranges::find(all, way, &Prediction::way);
}

TEST(Prediction, OfOneRankIsTheRunItself) {
  for (const Prediction& one : predict_step(two_layers(), 1, {.network = kMibPerMs})) {
    EXPECT_DOUBLE_EQ(one.step_us, 35000) << one.name();
    EXPECT_DOUBLE_EQ(one.speedup, 1);
    EXPECT_DOUBLE_EQ(one.exposed_us, 0);
    EXPECT_DOUBLE_EQ(one.memory_bytes, 100 * kMib);
  }
}

TEST(Prediction, OfDdpHidesTheExchangeOfLaterLayers) {
  // The last layer's 8 MiB leave after half of the backward pass and arrive 8 ms later, the first layer's after all.
  const Prediction two = predicted(Way::ddp, 2);
  EXPECT_DOUBLE_EQ(two.step_us, 35000 + 8000);
  EXPECT_DOUBLE_EQ(two.exposed_us, 8000);
  EXPECT_DOUBLE_EQ(two.speedup, 2 * 35.0 / 43);
  EXPECT_DOUBLE_EQ(two.memory_bytes, 100 * kMib);
  // With 4 ranks 3/4 of 16 MiB travel for each: 12 ms, more than the other half of the backward pass.
  EXPECT_DOUBLE_EQ(predicted(Way::ddp, 4).exposed_us, 12000 + 2000);
}

TEST(Prediction, OfShardsDividesTheUpdateAndMemory) {
  const Prediction optimizer = predicted(Way::shard_optimizer, 2);
  // Half of the exchange after the backward pass, and the other half before the first layer's forward pass.
  EXPECT_DOUBLE_EQ(optimizer.step_us, 35000 - 1500 + 4000 + 4000);
  EXPECT_DOUBLE_EQ(optimizer.exposed_us, 8000);
  EXPECT_DOUBLE_EQ(optimizer.memory_bytes, (100 - 16) * kMib);
  EXPECT_DOUBLE_EQ(predicted(Way::shard_gradients, 2).memory_bytes, (100 - 16 - 8) * kMib);
  const Prediction parameters = predicted(Way::shard_parameters, 2);
  EXPECT_DOUBLE_EQ(parameters.memory_bytes, (100 - 16 - 8 - 8) * kMib);
  EXPECT_DOUBLE_EQ(parameters.step_us, optimizer.step_us) << "the second gather hides behind the last layer's pass";
}

TEST(Prediction, OfPipelinesHasTheirBubble) {
  const PredictionOptions options{
      .network = {.name = "none", .latency_us = 0, .bytes_per_us = std::numeric_limits<double>::infinity()},
      .microbatches = 4,
      .activation_bytes = kMib};
  const Prediction pipeline = predicted(Way::pipeline, 2, options);
  EXPECT_EQ(pipeline.name(), "pipeline of 2 stages");
  EXPECT_DOUBLE_EQ(pipeline.step_us, 1000 + 30000 * 5.0 / 4 + 1500 + 1000);
  std::vector<std::string> names;
  for (const Prediction& one : predict_step(two_layers(), 8, options)) {
    names.push_back(one.name());
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("ddp", "shard = optimizer", "shard = gradients", "shard = parameters",
                                     "4 pipelines of 2 stages", "2 pipelines of 4 stages", "pipeline of 8 stages"));
}

TEST(Prediction, KnowsNetworksByTheirRates) {
  EXPECT_DOUBLE_EQ(Network::named("1gbit").bytes_per_us, 117.5);
  EXPECT_DOUBLE_EQ(Network::named("100mbit").bytes_per_us, 11.75);
  EXPECT_DOUBLE_EQ(Network::named("2.5gbit").bytes_per_us, 293.75);
  EXPECT_LT(Network::named("400gbit").latency_us, Network::named("10gbit").latency_us);
  EXPECT_GT(Network::named("nvlink").bytes_per_us, Network::named("400gbit").bytes_per_us);
  for (const char* wrong :
       {"", "gbit", "-1gbit", "0mbit", "1 gbit", "1gb", "infgbit", "nangbit", "fast", "1e-320mbit", "1e300gbit"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { Network::named(wrong); }),
                HasSubstr("expected nvlink or a rate such as 1gbit"))
        << wrong;
  }
}

// What a network loses by its latency it must not win by other buckets.
TEST(Prediction, OfAFasterNetworkIsNeverSlower) {
  StepProfile profile = two_layers();
  profile.parameter_bytes.assign(12, 4e6);
  for (const int ranks : {2, 3, 8, 100}) {
    std::vector<Prediction> slower;
    for (const double latency : {1000.0, 60.0, 10.0, 1.0, 0.0}) {
      const std::vector<Prediction> faster =
          predict_step(profile, ranks, {.network = {.name = "", .latency_us = latency, .bytes_per_us = 5000}});
      for (std::size_t i = 0; i < slower.size(); ++i) {
        EXPECT_LE(faster[i].step_us, slower[i].step_us * (1 + 1e-12)) << faster[i].name() << ", " << latency << " us";
      }
      slower = faster;
    }
  }
}

TEST(Prediction, OfWrongRequestsIsAnError) {
  EXPECT_THROW(predict_step(two_layers(), 0, {.network = kMibPerMs}), ConfigError);
  EXPECT_THROW(predict_step(two_layers(), 2, {}), ConfigError);
  EXPECT_THROW(predict_step(two_layers(), 2, {.network = kMibPerMs, .microbatches = 0}), ConfigError);
}

TEST(StepProfile, SurvivesItsFields) {
  StepProfile profile = two_layers();
  profile.shares_memory = true;
  const StepProfile copy = StepProfile::from_fields(profile.to_fields());
  EXPECT_EQ(to_json(copy.to_fields()), to_json(profile.to_fields()));
  EXPECT_EQ(copy.bytes(), 16 * kMib);
}

TEST(StepProfile, OfWrongFieldsSaysWhichOne) {
  const auto message_with = [](const std::string& name, const FieldValue& value) {
    Fields fields = two_layers().to_fields();
    std::ranges::find(fields, name, &Field::name)->value = value;
    return message_of<IoError>([&] { StepProfile::from_fields(fields); });
  };
  EXPECT_THAT(message_with("rows", std::string("ten")), HasSubstr("'rows': expected a number from 0"));
  EXPECT_THAT(message_with("input_us", -1.0), HasSubstr("'input_us': expected a number from 0"));
  EXPECT_THAT(message_with("step_us", 0.0), HasSubstr("more than 0 in 'step_us'"));
  EXPECT_THAT(message_with("parameter_bytes", std::vector<double>()), HasSubstr("of a model with parameters"));
  EXPECT_THAT(message_with("parameter_bytes", std::vector<double>{0, 0}), HasSubstr("of a model with parameters"));
  EXPECT_THAT(message_with("parameter_bytes", std::vector<double>{-1}), HasSubstr("expected a list of numbers"));
  EXPECT_THAT(message_with("forward_us", 1e308), HasSubstr("'forward_us': expected a number from 0 to 1e15"));
  EXPECT_THAT(message_with("ranks", 1.5), HasSubstr("'ranks': expected a whole number from 1, got 1.5"));
  EXPECT_THAT(message_with("ranks", 1e14), HasSubstr("'ranks': expected a whole number"));
  EXPECT_THAT(message_with("shares_memory", 1.0), HasSubstr("expected true or false"));
  EXPECT_THAT(message_of<IoError>([] { StepProfile::from_fields({}); }), HasSubstr("no field 'ranks'"));
}

}  // namespace
}  // namespace tandem::telemetry
