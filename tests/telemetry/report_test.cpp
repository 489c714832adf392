#include <tandem/telemetry/report.h>

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/telemetry/run_folder.h>
#include <tandem/telemetry/timeline.h>

#include "support/message.h"
#include "support/temp_dir.h"

namespace tandem {
namespace {

using telemetry::html_report;
using telemetry::RunFolder;
using telemetry::Timeline;
using telemetry::Use;
using test::message_of;
using test::TempDir;
using test::write_text;
using testing::HasSubstr;
using testing::Not;

std::string span(int rank, int thread, const char* kind, double begin, double end, const char* name = nullptr) {
  return fmt::format(R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{},"dur":{}}})",
                     name != nullptr ? name : kind, kind, rank, thread, begin, end - begin);
}

std::string names(int rank) {
  return fmt::format(R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"rank {0} on here"}}}},
{{"ph":"M","name":"thread_name","pid":{0},"tid":2,"args":{{"name":"training"}}}},
{{"ph":"M","name":"thread_name","pid":{0},"tid":1,"args":{{"name":"exchange"}}}})",
                     rank);
}

// Two steps of two ranks after the first one: of 100 us and of 200 us.
std::string trace() {
  std::vector<std::string> events;
  for (const int rank : {0, 1}) {
    events.push_back(names(rank));
    events.push_back(span(rank, 2, "optimizer", 990, 1000));
    for (const double at : {1000.0, 1100.0}) {
      const double length = at == 1000 ? 100 : 200;
      events.push_back(span(rank, 2, "input", at, at + 10));
      events.push_back(span(rank, 2, "forward", at + 10, at + 40, "Mlp"));
      events.push_back(span(rank, 2, "forward", at + 15, at + 35, "fc<1>"));
      events.push_back(span(rank, 2, "allocation", at + 20, at + 25));
      events.push_back(span(rank, 2, "backward", at + 40, at + length - 10));
      events.push_back(span(rank, 2, "reduce", at + length - 20, at + length - 10));
      events.push_back(span(rank, 2, "optimizer", at + length - 5, at + length));
      events.push_back(span(rank, 1, "all_reduce", at + 50, at + length - 15));
    }
  }
  return fmt::format("{{\"traceEvents\":[\n{}\n]}}\n", fmt::join(events, ",\n"));
}

double of(const telemetry::StepUse& use, Use what) { return use.training[static_cast<std::size_t>(what)]; }

TEST(Timeline, CountsTheInnermostSpanOfTheThreadThatTrains) {
  const TempDir dir;
  write_text(dir.file("trace.json"), trace());
  const Timeline timeline(dir.file("trace.json"));
  ASSERT_EQ(timeline.ranks().size(), 2);
  ASSERT_EQ(timeline.steps().size(), 2);
  EXPECT_EQ(timeline.typical_step()->begin, 1100);
  EXPECT_EQ(timeline.typical_step()->length(), 200);
  for (const auto& rank : timeline.ranks()) {
    const telemetry::StepUse use = timeline.use_of(rank);
    EXPECT_DOUBLE_EQ(of(use, Use::input), 10);
    EXPECT_DOUBLE_EQ(of(use, Use::copying), 5);
    EXPECT_DOUBLE_EQ(of(use, Use::exchange), 10);
    EXPECT_DOUBLE_EQ(of(use, Use::compute), 120);  // 25 forward, 90 on average backward, 5 of the update
    EXPECT_DOUBLE_EQ(of(use, Use::other), 5);
    EXPECT_DOUBLE_EQ(use.hidden_exchange, 80);  // of 85 on average, until the reduction is waited for
  }
}

TEST(Timeline, IsDrawnWithItsNames) {
  const TempDir dir;
  write_text(dir.file("trace.json"), trace());
  const Timeline timeline(dir.file("trace.json"));
  const std::string svg = timeline.svg(*timeline.typical_step());
  EXPECT_THAT(svg, HasSubstr("rank 1 exchange"));
  EXPECT_THAT(svg, HasSubstr("fc&lt;1&gt; (forward): 20.0 us"));
  EXPECT_THAT(svg, HasSubstr("class=\"exchange\""));
  EXPECT_THAT(svg, HasSubstr("One step of 200.0 us"));
}

TEST(Timeline, NamesWhatIsNoTrace) {
  const TempDir dir;
  const std::string path = dir.file("trace.json");
  for (const char* text : {"", "[]", "{\"traceEvents\": 1}"}) {
    write_text(path, text);
    EXPECT_THAT(message_of<IoError>([&] { Timeline{path}; }), HasSubstr("expected a trace")) << text;
  }
  for (const char* text : {"{\"traceEvents\": [1]}", R"({"traceEvents": [{"ph": "X", "pid": 0, "tid": "one"}]})"}) {
    write_text(path, text);
    EXPECT_THAT(message_of<IoError>([&] { Timeline{path}; }), HasSubstr("not a trace")) << text;
  }
}

void write_run(const std::string& path, double loss) {
  RunFolder folder({.path = path});
  folder.write_config({{"lr", 0.1}, {"note", std::string("<b>&")}});
  for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
    folder.append_metrics({{"epoch", epoch}, {"loss", loss / static_cast<double>(epoch)}, {"name", std::string("x")}});
  }
}

TEST(Report, HasCurvesTimelineDiagnosisAndOptions) {
  const TempDir dir;
  write_run(dir.file("run"), 1);
  write_text(dir.file("run/trace.json"), trace());
  write_text(dir.file("run/diagnosis.txt"), "3 steps\n  forward < backward\n");
  const std::string page = html_report(dir.file("run/"));
  EXPECT_THAT(page, HasSubstr("<title>run</title>"));
  EXPECT_THAT(page, HasSubstr(">loss</text>"));
  EXPECT_THAT(page, HasSubstr("One step of 200.0 us"));
  EXPECT_THAT(page, HasSubstr("Means over 2 steps"));
  EXPECT_THAT(page, HasSubstr("3 steps\n"));
  EXPECT_THAT(page, HasSubstr("forward &lt; backward\n"));
  EXPECT_THAT(page, HasSubstr("<td>note</td><td>\"&lt;b&gt;&amp;\"</td>"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("href")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
}

TEST(Report, DrawsOtherRunsBesideTheFirst) {
  const TempDir dir;
  write_run(dir.file("new"), 1);
  write_run(dir.file("old"), 2);
  const std::string page = html_report(dir.file("new"), {dir.file("old")});
  EXPECT_THAT(page, HasSubstr(">new</text>"));
  EXPECT_THAT(page, HasSubstr(">old</text>"));
  EXPECT_THAT(page, Not(HasSubstr("One step of")));
}

TEST(Report, OfARunThatWasKilledHasItsWholeLines) {
  const TempDir dir;
  write_run(dir.file("run"), 1);
  const std::string metrics = dir.file("run/metrics.jsonl");
  write_text(metrics, test::read_text(metrics) + "{\"epoch\": 4, \"lo");
  EXPECT_EQ(telemetry::read_json_lines(metrics).size(), 3);
  html_report(dir.file("run"));
  write_text(metrics, "{\"epoch\": 4}\n{\"lo\n");
  EXPECT_THAT(message_of<IoError>([&] { html_report(dir.file("run")); }), HasSubstr("metrics.jsonl:2'"));
}

TEST(Report, NamesAFolderThatIsNoRun) {
  const TempDir dir;
  EXPECT_THAT(message_of<IoError>([&] { html_report(dir.file("none")); }),
              HasSubstr("expected the folder of a run, with metrics.jsonl or trace.json"));
}

}  // namespace
}  // namespace tandem
