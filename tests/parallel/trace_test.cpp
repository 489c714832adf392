#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"
#include "support/clock.h"
#include "support/temp_dir.h"

// Pictures of what threads did when.

namespace tandem::test {
namespace {

using nlohmann::json;
using telemetry::Trace;
using testing::Contains;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

std::vector<json> events_in(const std::string& path) {
  std::ifstream file(path);
  const json object = json::parse(file);
  return object.at("traceEvents").get<std::vector<json>>();
}

std::vector<json> events_of(Trace& trace) {
  const TempDir dir;
  trace.write(dir.file("trace.json"));
  return events_in(dir.file("trace.json"));
}

std::vector<json> of_kind(const std::vector<json>& events, const std::string& kind) {
  std::vector<json> found;
  std::ranges::copy_if(events, std::back_inserter(found), [&](const json& event) { return event.at("ph") == kind; });
  return found;
}

std::multiset<std::string> names_of(const std::vector<json>& events) {
  std::multiset<std::string> names;
  for (const json& event : of_kind(events, "X")) {
    names.insert(event.at("name").get<std::string>());
  }
  return names;
}

// On each thread, spans lie within each other or one after another, as Perfetto requires.
void expect_that_spans_nest(const std::vector<json>& events) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  for (const json& event : of_kind(events, "X")) {
    const double begin = event.at("ts").get<double>();
    tracks[{event.at("pid").get<int>(), event.at("tid").get<int>()}].emplace_back(
        begin, begin + event.at("dur").get<double>());
  }
  constexpr double kRounding = 0.002;
  for (auto& [track, spans] : tracks) {
    std::ranges::sort(spans, [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> open;
    for (const auto& [begin, end] : spans) {
      while (!open.empty() && open.back() <= begin + kRounding) {
        open.pop_back();
      }
      ASSERT_TRUE(open.empty() || end <= open.back() + kRounding) << begin << " to " << end;
      open.push_back(end);
    }
  }
}

void train(Mlp& model, int steps) {
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  const Batch batch = batch_of(8);
  for (int i = 0; i < steps; ++i) {
    sgd.zero_grad();
    nn::cross_entropy(model(batch.x), batch.y).backward();
    sgd.step();
  }
}

TEST(Trace, HasThePhasesAndModulesOfEachStep) {
  Mlp model = seeded<Mlp>();
  Trace trace;
  train(model, 3);
  const std::vector<json> events = events_of(trace);
  const auto names = names_of(events);
  for (const char* name : {"Mlp", "fc1", "fc2", "fc3", "backward", "optimizer"}) {
    EXPECT_EQ(names.count(name), 3) << name;
  }
  EXPECT_THAT(names, Contains("linear"));  // in the backward pass
  expect_that_spans_nest(events);
  EXPECT_EQ(trace.dropped(), 0);
}

TEST(Trace, TellsEvaluationFromTraining) {
  Mlp model = seeded<Mlp>();
  Trace trace;
  {
    const NoGradGuard no_grad;
    model(batch_of(8).x);
  }
  const std::vector<json> spans = of_kind(events_of(trace), "X");
  EXPECT_EQ(std::ranges::count(spans, "evaluation", [](const json& span) { return span.at("cat"); }), 4);
  EXPECT_EQ(std::ranges::count(spans, "forward", [](const json& span) { return span.at("cat"); }), 0);
}

TEST(Trace, RecordsWhileItLives) {
  Mlp model = seeded<Mlp>();
  train(model, 1);
  Trace trace;
  const std::size_t before = names_of(events_of(trace)).size();
  train(model, 1);
  EXPECT_EQ(before, 0);
  EXPECT_THAT(names_of(events_of(trace)), IsEmpty());
}

TEST(Trace, KeepsTheLatestSpans) {
  Trace trace({.spans_per_thread = 3});
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    const SpanScope scope({.name = "test", .detail = name});
  }
  EXPECT_EQ(names_of(events_of(trace)), (std::multiset<std::string>{"c", "d", "e"}));
  EXPECT_EQ(trace.dropped(), 2);
  EXPECT_THROW(Trace({.spans_per_thread = 0}), ConfigError);
}

TEST(Trace, NamesThatJsonMustEscapeAreReadBack) {
  Trace trace;
  {
    const SpanScope scope({.name = "test", .detail = "\"quoted\"\n\xff"});
  }
  EXPECT_EQ(names_of(events_of(trace)), (std::multiset<std::string>{"\"quoted\"\n\xef\xbf\xbd"}));
}

TEST(Trace, SpansDeepWithinOthersAreLeftOut) {
  Trace trace;
  const std::function<void(int)> within = [&](int depth) {
    const SpanScope scope({.name = "test"});
    if (depth > 0) {
      within(depth - 1);
    }
  };
  within(200);
  const std::vector<json> events = events_of(trace);
  EXPECT_EQ(names_of(events).size(), 64);
  expect_that_spans_nest(events);
}

TEST(Trace, PhasesAreThoseOfStepTimes) {
  const StepTimes times;
  Trace trace;
  for (int i = 0; i < 5; ++i) {
    const SpanScope outer(Phase::backward);
    const SpanScope between({.name = "between"});
    sleep_ms(2);
    {
      const SpanScope inner(Phase::reduce);
      sleep_ms(3);
    }
  }
  std::map<std::string, double> seconds;
  for (const json& event : of_kind(events_of(trace), "X")) {
    seconds[event.at("name").get<std::string>()] += 1e-6 * event.at("dur").get<double>();
  }
  EXPECT_NEAR(times.seconds(Phase::reduce), seconds["reduce"], 1e-6);
  EXPECT_NEAR(times.seconds(Phase::backward), seconds["backward"] - seconds["reduce"], 1e-6);
}

TEST(Trace, LoadersReplicasAndExchangesHaveTracksOfTheirOwn) {
  const data::TensorDataset set(randn({32, 6}, {.dtype = DType::f64}), randint(0, 3, {32}));
  data::DataLoader loader(set, {.batch_size = 8, .num_workers = 2});
  Mlp model = seeded<Mlp>();
  model.to(Device("cpu:0"));
  parallel::DataParallel replicas(model, {"cpu:0", "cpu:1"});
  Trace trace;
  for (const auto& [x, y] : loader) {
    nn::cross_entropy(replicas(x), y).backward();
  }
  const std::vector<json> events = events_of(trace);
  const auto names = names_of(events);
  EXPECT_EQ(names.count("load batch"), 4);
  EXPECT_EQ(names.count("cpu:0"), 4);
  EXPECT_EQ(names.count("cpu:1"), 4);
  std::set<std::string> tracks;
  for (const json& event : of_kind(events, "M")) {
    tracks.insert(event.at("args").value("name", ""));
  }
  EXPECT_THAT(tracks, IsSupersetOf({"loader", "training"}));
  expect_that_spans_nest(events);
}

TEST(Trace, OfRanksIsOnePicture) {
  const TempDir dir;
  as_ranks(2, [&](parallel::ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    parallel::DistributedDataParallel ddp(model, {.bucket_cap_mb = 1e-4});
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    Trace trace;
    for (int i = 0; i < 2; ++i) {
      const Batch batch = batch_of(4);
      sgd.zero_grad();
      nn::cross_entropy(ddp(batch.x), batch.y).backward();
      sgd.step();
    }
    parallel::write_trace(trace, group, dir.file("trace.json"));
  });
  const std::vector<json> events = events_in(dir.file("trace.json"));
  expect_that_spans_nest(events);
  std::map<int, std::multiset<std::string>> of_rank;
  for (const json& event : of_kind(events, "X")) {
    of_rank[event.at("pid").get<int>()].insert(event.at("name").get<std::string>());
  }
  ASSERT_EQ(of_rank.size(), 2);
  for (const auto& [rank, names] : of_rank) {
    EXPECT_EQ(names.count("optimizer"), 2) << rank;
    EXPECT_THAT(names, Contains("all_reduce")) << rank;
  }
  // An exchange that one thread starts and another one runs is a flow.
  std::map<std::string, std::string> flows;
  for (const char* kind : {"s", "f"}) {
    for (const json& event : of_kind(events, kind)) {
      flows[event.at("id").get<std::string>()] += kind;
    }
  }
  EXPECT_THAT(flows, Not(IsEmpty()));
  for (const auto& [id, sides] : flows) {
    EXPECT_EQ(sides, "sf") << id;
  }
}

TEST(Trace, OfARankHasNoSpansOfOtherRanks) {
  as_ranks(2, [&](parallel::ProcessGroup& group) {
    Trace trace;
    const std::string name = "rank " + std::to_string(group.rank());
    {
      const SpanScope scope({.name = "test", .detail = name});
    }
    group.barrier();
    for (const json& event : of_kind(events_of(trace), "X")) {
      EXPECT_TRUE(event.at("cat") != "test" || event.at("name") == name) << event;
    }
  });
}

// The programs of docs/telemetry.md.
TEST(TelemetryDocs, SummariesAreWritten) {
  const TempDir dir;
  const std::string folder = dir.file("run");
  const Mlp model = seeded<Mlp>();
  telemetry::SummaryWriter writer(folder + "/logs");
  writer.add_scalar("loss/train", 0.25, 100);
  writer.add_histogram("fc1.weight", model.fc1.weight.detach().to(DType::f64).to_vector<double>(), 100);
  writer.add_text("note", "a **learning rate** of 0.1", 0);
  EXPECT_GT(read_text(writer.path()).size(), 500);
}

TEST(TelemetryDocs, ATraceIsWritten) {
  const TempDir dir;
  const std::string folder = dir.file("");
  Mlp model = seeded<Mlp>();
  const auto train = [](Mlp& trained) {
    const SpanScope span({.name = "augmentation", .bytes = 4096});
    test::train(trained, 1);
  };
  telemetry::Trace trace;
  train(model);
  trace.write(folder + "/trace.json");  // open it in https://ui.perfetto.dev
  EXPECT_THAT(names_of(events_in(folder + "/trace.json")), Contains("augmentation"));
}

}  // namespace
}  // namespace tandem::test
