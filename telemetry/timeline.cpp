#include <tandem/telemetry/timeline.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/check.h>
#include <tandem/telemetry/axis.h>
#include <tandem/telemetry/svg.h>
#include <tandem/telemetry/text.h>

namespace tandem::inline v0::telemetry {

namespace {

constexpr double kWidth = 1160;
constexpr double kLabels = 96;
constexpr double kRow = 18;
constexpr double kBandGap = 8;
constexpr std::size_t kRows = 4;  // of spans within each other
constexpr double kTop = kMargin + kTitleHeight + 24;

// The use of a kind of span; none: that of the span around it.
std::optional<Use> use_of_kind(const std::string& kind) {
  static const std::map<std::string, Use, std::less<>> known = [] {
    std::map<std::string, Use, std::less<>> uses;
    for (const char* name : {"forward", "backward", "backward of", "optimizer", "replay", "replica"}) {
      uses[name] = Use::compute;
    }
    for (const char* name : {"reduce", "collective", "pipeline", "start", "launch", "broadcast", "all_reduce",
                             "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "barrier", "new_group"}) {
      uses[name] = Use::exchange;
    }
    for (const char* name : {"scatter", "replicate", "gather", "copy", "allocation"}) {
      uses[name] = Use::copying;
    }
    for (const char* name : {"input", "load batch"}) {
      uses[name] = Use::input;
    }
    for (const char* name : {"checkpoint", "write checkpoint"}) {
      uses[name] = Use::checkpoint;
    }
    uses["evaluation"] = Use::other;
    return uses;
  }();
  const auto found = known.find(kind);
  return found != known.end() ? std::optional(found->second) : std::nullopt;
}

// A time during which the innermost span of a thread has one use.
struct Stretch {
  TimeRange time;
  Use use;
};

// The stretches of a thread within a range, without gaps.
std::vector<Stretch> stretches_of(const TimelineThread& thread, const TimeRange& range) {
  std::vector<Stretch> stretches;
  struct Open {
    double end;
    Use use;
  };
  std::vector<Open> open;
  double at = range.begin;
  const auto go_to = [&](double time) {
    time = std::min(time, range.end);
    if (time > at) {
      stretches.push_back({{at, time}, open.empty() ? Use::other : open.back().use});
      at = time;
    }
  };
  const auto close_until = [&](double time) {
    while (!open.empty() && open.back().end <= time) {
      go_to(open.back().end);
      open.pop_back();
    }
  };
  for (const TimelineSpan& span : thread.spans) {
    if (span.end <= range.begin || span.begin >= range.end) {
      continue;
    }
    close_until(span.begin);
    go_to(span.begin);
    open.push_back({span.end, use_of_kind(span.kind).value_or(open.empty() ? Use::other : open.back().use)});
  }
  close_until(range.end);
  go_to(range.end);
  return stretches;
}

bool is_gpu(const TimelineThread& thread) { return thread.purpose.starts_with("cuda:"); }

// A GPU's track shows the steps of a thread.
std::size_t optimizer_steps(const TimelineThread& thread) {
  return is_gpu(thread) ? 0
                        : static_cast<std::size_t>(std::ranges::count_if(
                              thread.spans, [](const TimelineSpan& span) { return span.kind == "optimizer"; }));
}

// The thread that trains, or null.
const TimelineThread* trainer_of(const TimelineRank& rank) {
  const auto most = std::ranges::max_element(rank.threads, std::ranges::less(), optimizer_steps);
  return most != rank.threads.end() && optimizer_steps(*most) > 0 ? &*most : nullptr;
}

void find_depths(TimelineThread& thread) {
  std::ranges::stable_sort(thread.spans, [](const TimelineSpan& a, const TimelineSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<double> open;
  for (TimelineSpan& span : thread.spans) {
    while (!open.empty() && open.back() <= span.begin) {
      open.pop_back();
    }
    span.depth = open.size();
    open.push_back(span.end);
  }
}

std::string time_text(double us) {
  return us < 1000 ? fmt::format("{:.1f} us", us) : fmt::format("{:.2f} ms", us / 1000);
}

}  // namespace

const char* name_of(Use use) {
  constexpr const char* kNames[kUses] = {"compute", "exchange", "input", "copying", "checkpoint", "other"};
  return kNames[static_cast<std::size_t>(use)];
}

Timeline::Timeline(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const nlohmann::json object = nlohmann::json::parse(file, nullptr, false);
  check<IoError>(object.is_object() && object.contains("traceEvents") && object["traceEvents"].is_array(),
                 "'{}': expected a trace in Chrome's Trace Event Format, as --report writes it", path);
  std::map<std::int64_t, std::pair<std::string, std::map<std::int64_t, TimelineThread>>> ranks;
  try {
    for (const nlohmann::json& event : object["traceEvents"]) {
      const auto kind = event.at("ph").get<std::string>();
      auto& [name, threads] = ranks[event.at("pid").get<std::int64_t>()];
      if (kind == "M" && event.at("name") == "process_name") {
        name = event.at("args").at("name").get<std::string>();
      } else if (kind == "M" && event.at("name") == "thread_name") {
        threads[event.at("tid").get<std::int64_t>()].purpose = event.at("args").at("name").get<std::string>();
      } else if (kind == "X") {
        const double begin = event.at("ts").get<double>();
        threads[event.at("tid").get<std::int64_t>()].spans.push_back({.name = event.at("name").get<std::string>(),
                                                                      .kind = event.at("cat").get<std::string>(),
                                                                      .begin = begin,
                                                                      .end = begin + event.at("dur").get<double>()});
      }
    }
  } catch (const nlohmann::json::exception& error) {
    fail<IoError>("'{}': not a trace as --report writes it: {}", path, error.what());
  }
  for (auto& [number, rank] : ranks) {
    ranks_.push_back({rank.first, {}});
    for (auto& [tid, thread] : rank.second) {
      find_depths(thread);
      ranks_.back().threads.push_back(std::move(thread));
    }
    std::ranges::stable_partition(ranks_.back().threads,
                                  [](const TimelineThread& thread) { return optimizer_steps(thread) > 0; });
  }
  if (const TimelineThread* trainer = ranks_.empty() ? nullptr : trainer_of(ranks_.front()); trainer != nullptr) {
    std::optional<double> last;
    for (const TimelineSpan& span : trainer->spans) {
      if (span.kind == "optimizer") {
        if (last) {
          steps_.push_back({*last, span.end});
        }
        last = span.end;
      }
    }
  }
}

std::optional<TimeRange> Timeline::typical_step() const {
  if (steps_.empty()) {
    return std::nullopt;
  }
  std::vector<TimeRange> sorted = steps_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle, std::ranges::less(), &TimeRange::length);
  return *middle;
}

StepUse Timeline::use_of(const TimelineRank& rank) const {
  StepUse use;
  const TimelineThread* trainer = trainer_of(rank);
  if (trainer == nullptr || steps_.empty()) {
    return use;
  }
  const TimeRange all{steps_.front().begin, steps_.back().end};
  const auto count = static_cast<double>(steps_.size());
  const std::vector<Stretch> training = stretches_of(*trainer, all);
  for (const Stretch& stretch : training) {
    use.training[static_cast<std::size_t>(stretch.use)] += stretch.time.length() / count;
  }
  for (const TimelineThread& thread : rank.threads) {
    if (&thread == trainer || is_gpu(thread)) {
      continue;  // on a GPU's own track an exchange is a wait
    }
    auto beside = training.begin();
    for (const Stretch& stretch : stretches_of(thread, all)) {
      for (; beside != training.end() && beside->time.end <= stretch.time.begin; ++beside) {
      }
      for (auto at = beside; stretch.use == Use::exchange && at != training.end() && at->time.begin < stretch.time.end;
           ++at) {
        const double common = std::min(at->time.end, stretch.time.end) - std::max(at->time.begin, stretch.time.begin);
        use.hidden_exchange += at->use != Use::exchange ? common / count : 0;
      }
    }
  }
  return use;
}

std::string Timeline::svg(const TimeRange& shown) const {
  struct Band {
    std::string label;
    const TimelineThread* thread;
    std::size_t rows;
  };
  std::vector<Band> bands;
  double height = kTop;
  for (const TimelineRank& rank : ranks_) {
    for (const TimelineThread& thread : rank.threads) {
      std::size_t rows = 0;
      for (const TimelineSpan& span : thread.spans) {
        if (span.end > shown.begin && span.begin < shown.end) {
          rows = std::max(rows, std::min(span.depth + 1, kRows));
        }
      }
      if (rows > 0) {
        bands.push_back({ranks_.size() > 1
                             ? fmt::format("{} {}", rank.name.substr(0, rank.name.find(" on ")), thread.purpose)
                             : thread.purpose,
                         &thread, rows});
        height += static_cast<double>(rows) * kRow + kBandGap;
      }
    }
  }
  Picture picture(kWidth, height + 2 * kMargin, fmt::format("One step of {}", time_text(shown.length())));
  const double left = kMargin + kLabels;
  const double scale = (kWidth - kMargin - left) / shown.length();
  for (std::size_t i = 0; i < kUses; ++i) {
    const double x = left + 110 * static_cast<double>(i);
    picture.add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" rx=\"2\" class=\"{}\"/>\n", x,
                kMargin + kTitleHeight - 8, name_of(static_cast<Use>(i)));
    picture.text(x + 17, kMargin + kTitleHeight + 2, "class=\"small\"", name_of(static_cast<Use>(i)));
  }
  const Axis axis(Axis::Kind::position, 0, shown.length());
  for (const Tick& tick : axis.ticks()) {
    const double x = left + tick.place * (kWidth - kMargin - left);
    picture.line(x, kTop - 4, x, height, "class=\"grid\"");
    picture.text(x, height + 15, "class=\"small\" text-anchor=\"middle\"", tick.label);
  }
  picture.text(kWidth - kMargin, height + 32, "class=\"small\" text-anchor=\"end\"", "us");
  double top = kTop;
  for (const Band& band : bands) {
    picture.text(left - 8, top + kRow / 2 + 4, "class=\"small\" text-anchor=\"end\"", band.label);
    std::vector<Use> around;
    for (const TimelineSpan& span : band.thread->spans) {
      around.resize(span.depth);
      around.push_back(use_of_kind(span.kind).value_or(around.empty() ? Use::other : around.back()));
      if (span.end <= shown.begin || span.begin >= shown.end || span.depth >= kRows) {
        continue;
      }
      const double x = left + std::max(0.0, span.begin - shown.begin) * scale;
      const double width = left + std::min(shown.length(), span.end - shown.begin) * scale - x;
      const double y = top + static_cast<double>(span.depth) * kRow;
      const std::string title = fmt::format("{}{}: {}", span.name, span.name == span.kind ? "" : " (" + span.kind + ")",
                                            time_text(span.end - span.begin));
      picture.add(
          "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" rx=\"2\" "
          "class=\"{}\"/>",
          xml_text(title), x, y, std::max(width, 0.5), kRow - 2, name_of(around.back()));
      if (text_width(clean_text(span.name), kSmallText) + 8 < width) {
        picture.text(x + 4, y + kRow / 2 + 3, "class=\"on small\"", span.name);
      }
      picture.add("</g>\n");
    }
    top += static_cast<double>(band.rows) * kRow + kBandGap;
  }
  return picture.take();
}

}  // namespace tandem::inline v0::telemetry
